"""Small folders of images of pairs, in the layouts of the field."""

from pathlib import Path

import numpy as np
import torch
from PIL import Image

PAIRS = {
    "train": [("red", "shirt"), ("red", "shoe"), ("blue", "shirt"), ("wet", "dog"), ("old", "dog")],
    "val": [("red", "shirt"), ("blue", "shoe"), ("wet", "shirt")],
    "test": [("blue", "shirt"), ("wet", "dog"), ("old", "shoe"), ("red", "dog")],
}
IMAGES = {"train": 4, "val": 2, "test": 2}


def write_image(path: Path, seed: int, *, side: int = 16) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    pixels = np.random.default_rng(seed).integers(0, 255, (side, side, 3), dtype=np.uint8)
    Image.fromarray(pixels).save(path)


def write_list(folder: Path, *, header: str = "path,attribute,object,split") -> Path:
    """A .csv of PAIRS and its images."""
    lines, seed = [header], 0
    for split, pairs in PAIRS.items():
        for attribute, obj in pairs:
            for _ in range(IMAGES[split]):
                seed += 1
                write_image(folder / "images" / f"{seed}.png", seed)
                lines.append(f"images/{seed}.png,{attribute},{obj},{split}")
    (folder / "pairs.csv").write_text("\n".join(lines) + "\n")
    return folder / "pairs.csv"


def write_layout(root: Path, *, spaced: bool = False, flat: bool = False) -> Path:
    """The layout of MIT-States (`spaced` folders), UT-Zappos, or C-GQA (`flat`)."""
    split_folder = root / "compositional-split-natural"
    split_folder.mkdir(parents=True)
    rows, seed = [], 0
    for split, pairs in PAIRS.items():
        lines = "\n".join(" ".join(pair) for pair in pairs)
        (split_folder / f"{split}_pairs.txt").write_text(lines + "\n")
        for attribute, obj in pairs:
            for _ in range(IMAGES[split]):
                seed += 1
                name = f"{seed}.png" if flat else f"{attribute}_{obj}/{seed}.png"
                place = name.replace("_", " ") if spaced else name
                write_image(root / "images" / place, seed)
                rows.append({"image": name, "attr": attribute, "obj": obj, "set": split})
    rows.append({"image": "none.png", "attr": "NA", "obj": "shirt", "set": "train"})
    rows.append({"image": "none.png", "attr": "red", "obj": "shirt", "set": "NA"})
    torch.save(rows, root / "metadata_compositional-split-natural.t7")
    return root
