"""Convert features of CUB and the splits of CE-GZSL into one .npz for `longtail train`.

    python benchmarks/cub_features.py FEATURES.npz SPLITS.mat OUT.npz

FEATURES.npz has `features` (N, D) as uint8, `scale` (D,) and `names` (N,) of the images, as
CLASS/FILE in the order of CUB's images.txt. SPLITS.mat is read as `longtail.data.readers.mat` reads
it: classes are matched by name, locations count from 1, train_loc and val_loc are not used.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import scipy.io

from longtail.data.readers.mat import mat


def convert(features: Path, splits: Path, out: Path) -> None:
    """Write the .npz, with the features as they are stored."""
    archive = np.load(features, allow_pickle=False)
    vectors = archive["features"] * archive["scale"]
    names = archive["names"]
    folders = np.array([name.split("/")[0] for name in names])
    _, labels = np.unique(folders, return_inverse=True)
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        files = np.empty((len(names), 1), dtype=object)
        files[:, 0] = names
        images = {
            "features": vectors.T,
            "labels": labels[:, None] + 1,
            "image_files": files,
        }
        scipy.io.savemat(folder / "features.mat", images)
        (folder / "splits.mat").write_bytes(splits.read_bytes())
        source = mat(folder)
    row_of = {str(name): number for number, name in enumerate(names)}
    parts = {split: [row_of[name] for name in rows.ids] for split, rows in source.splits.items()}
    order = [row for rows in parts.values() for row in rows]
    content: dict[str, Any] = {
        "features": archive["features"][order],
        "scale": archive["scale"],
        "target": np.concatenate([rows.target for rows in source.splits.values()]),
        "split": np.repeat([*parts], [len(rows) for rows in parts.values()]),
        "classes": np.array(source.classes),
        "ids": names[order],
        "attribute.vector": source.class_attributes["vector"],
    }
    np.savez_compressed(out, **content)


if __name__ == "__main__":
    convert(*map(Path, sys.argv[1:]))
