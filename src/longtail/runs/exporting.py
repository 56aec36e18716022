"""Export a finished run's network for other programs, and check that it predicts the same."""

from __future__ import annotations

import importlib.util
import json
import os
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, cast

import numpy as np
import torch
from torch import Tensor

import longtail
from longtail.data.dataset import Split
from longtail.data.loader import load_images
from longtail.engine.machine import choose
from longtail.errors import LongtailError, MissingExtra
from longtail.nn.networks import input_spec, takes_vectors
from longtail.records.documents import FORMAT
from longtail.records.kinds import read_recipe
from longtail.records.layout import ExportFolder, RunFolder
from longtail.runs.export_program import (
    Target,
    program_logits,
    write_program,
    write_unusual_images,
)
from longtail.runs.identity import open_run_data
from longtail.runs.inference import BATCH
from longtail.runs.model import load
from longtail.runs.predicting import Loaded
from longtail.runs.timm_model import read_timm, write_timm

TOLERANCE = 1e-4
"""How far an exported logit may be from ours, in parts of the largest logit."""

IMAGES = 1000
"""How many images the exported network is checked with."""

# Bytes of weights up to which they are in the ONNX file itself: a message has at most 2 GB.
_SINGLE_FILE = 1 << 30


@dataclass(frozen=True)
class Agreement:
    """How an exported network's logits compare with ours."""

    images: int
    source: str  # which images
    difference: float  # the largest between two logits, in parts of the largest logit
    changed: int  # images with another prediction, all of them ties within the tolerance


@dataclass(frozen=True)
class Exported:
    """Where an exported network is, and that it agrees with the run's."""

    folder: Path
    files: tuple[str, ...]
    agreement: Agreement  # of the network, on images of the network's size
    program: Agreement  # of `predict.py`, on image files


def export(
    run: str | Path,
    to: Target,
    *,
    out: str | Path | None = None,
    root: str | Path | None = None,
    images: int = IMAGES,
    trust: bool = False,
) -> Exported:
    """Write a finished run's network for use without longtail.

    What only training needs (BatchFormer, teacher, decoder, momentum copies) is not in it. The
    exported network predicts test images of the run, or random ones where its data is not here. The
    program `predict.py` beside it predicts image files of the run and generated ones, from the file
    to the logits. If logits are not those of the run, nothing is written.

    Args:
        run: The folder of a finished run.
        to: The format: ONNX, a program of `torch.export`, or a model folder of timm.
        out: Where to write; `export/TO` in the run folder, unless given.
        root: Where the run's images are now, if they were moved.
        images: How many images to check with.
        trust: Whether to run code outside longtail that the run names.
    """
    if to not in _WRITERS:
        raise LongtailError(f"expected to export to {', '.join(_WRITERS)}, got {to!r}")
    if images < 1:
        raise LongtailError(f"expected at least one image to check with, got {images}")
    _need(to)
    loaded = load(run, device="cpu", trust=trust)
    if takes_vectors(loaded.network):
        raise LongtailError(
            f"{run} was trained on feature vectors without their backbone, and export needs a"
            " network that takes images: train on a file of `longtail embed`, which has it"
        )
    # Other programs pass images in the default memory layout, so the network is checked in it, too.
    loaded.network.to(memory_format=torch.contiguous_format)
    loaded = replace(loaded, machine=replace(loaded.machine, channels_last=False))
    folder = RunFolder(loaded.folder).export(to).path if out is None else Path(out)
    _free(folder)
    write, read = _WRITERS[to]
    folder.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder.parent, prefix=".export-") as place:
        part, about = Path(place), _about(loaded, to)
        write(part, loaded)
        write_program(part, to, loaded.preprocessing)
        split, source = _split(loaded, root)
        image = _images(loaded, split, images)
        agreement = check_agreement(loaded.logits(image), read(part), image, source=source)
        # The program reads the classes in it
        _write_json(ExportFolder(part).description, about)
        program = _check_program(part, loaded, split, images)
        about["check"] = asdict(agreement) | {"program": asdict(program)}
        _write_json(ExportFolder(part).description, about)
        ExportFolder(part).readme.write_text(_readme(loaded, to), encoding="utf-8")
        folder.mkdir(exist_ok=True)
        files = tuple(sorted(path.name for path in part.iterdir()))
        for name in files:
            os.replace(part / name, folder / name)
        for path in ExportFolder(folder).models:
            if path.name not in files:  # of an earlier export to something else
                path.unlink(missing_ok=True)
    return Exported(folder, files, agreement, program)


def _write_json(path: Path, content: Mapping[str, Any]) -> None:
    text = json.dumps(content, indent=1, ensure_ascii=False) + "\n"
    path.write_text(text, encoding="utf-8")


def _check_program(folder: Path, loaded: Loaded, split: Split | None, images: int) -> Agreement:
    """Compare what `predict.py` gives for image files with what the run gives for them.

    The files are those of the run, as many as there are, and generated ones of unusual shapes.
    """
    with tempfile.TemporaryDirectory() as place:
        files = [] if split is None else original_files(split, images)
        generated = write_unusual_images(Path(place), loaded.size)
        paths = [*files, *generated]
        theirs = program_logits(folder, paths)
        source = f"image files ({len(files)} of the run, {len(generated)} generated)"
        return compare_logits(loaded.logits(paths), theirs, source=source)


def original_files(split: Split, count: int) -> list[Path]:
    """At most `count` files of a split, evenly spread; none for data without files."""
    files = (split.inputs.file(row) for row in _spread(len(split), count))
    return [Path(file) for file in files if file is not None and Path(file).is_file()]


def _spread(rows: int, count: int) -> list[int]:
    places = np.linspace(0, rows - 1, min(count, rows)).round().astype(np.int64)
    return [int(row) for row in np.unique(places)]


@torch.inference_mode()
def check_agreement(
    ours: Tensor, exported: Callable[[Tensor], Tensor], image: Tensor, *, source: str
) -> Agreement:
    """Compare an exported network's logits (N, C) with ours; refuse one that is not the same."""
    # One image alone first: the number of images must not matter.
    theirs = torch.cat(
        [exported(image[:1]), *(exported(part) for part in image[1:].split(BATCH) if len(part))]
    )
    return compare_logits(ours, theirs, source=source)


def compare_logits(ours: Tensor, theirs: Tensor, *, source: str) -> Agreement:
    """Compare logits (N, C) of an export with ours; refuse them if they are not the same."""
    if theirs.shape != ours.shape or not torch.isfinite(theirs).all():
        raise LongtailError(
            f"expected finite logits {tuple(ours.shape)} from the exported network, "
            f"got {tuple(theirs.shape)}: use another --to"
        )
    largest = ours.abs().max().clamp_min(torch.finfo(ours.dtype).tiny)
    difference = float((ours - theirs).abs().max() / largest)
    rows = torch.arange(len(ours))
    lost = ours.amax(dim=1) - ours[rows, theirs.argmax(dim=1)]
    if difference > TOLERANCE or bool((lost > TOLERANCE * largest).any()):
        raise LongtailError(
            f"expected the exported network to agree with ours to {TOLERANCE:g} of the largest "
            f"logit, got {difference:.2g} on {len(ours)} {source} and "
            f"{int((lost > TOLERANCE * largest).sum())} other predictions: "
            "nothing was written; use another --to"
        )
    return Agreement(
        len(ours), source, difference, int((ours.argmax(dim=1) != theirs.argmax(dim=1)).sum())
    )


def _split(loaded: Loaded, root: str | Path | None) -> tuple[Split | None, str]:
    """The split to check with, and what its images are; None where the data is not here.

    Test images, or those of validation or training where there are none. None also where the data
    has features in the place of images.
    """
    try:
        record = read_recipe(loaded.folder)
        dataset = open_run_data(record, choose(device="cpu", precision="fp32"), root=root)
    except (LongtailError, OSError, ModuleNotFoundError):
        if root is not None:
            raise
        return None, "random images"
    if dataset.has_vectors:
        return None, "random images, as the data has features"
    for name, split in (
        ("test", dataset.test),
        ("validation", dataset.val),
        ("training", dataset.train),
    ):
        if len(split):
            return split, f"{name} images"
    raise AssertionError("a dataset has training images")


def _images(loaded: Loaded, split: Split | None, count: int) -> Tensor:
    """Images of a split, evenly spread, as floats (N, 3, size, size); random ones without it."""
    if split is None:
        shape = (count, 3, loaded.size, loaded.size)
        return torch.rand(shape, generator=torch.Generator().manual_seed(0))
    return load_images(split, _spread(len(split), count), loaded.size)


def _free(folder: Path) -> None:
    if folder.exists() and not folder.is_dir():
        raise LongtailError(f"expected a folder for --out, got a file at {folder}: choose another")
    if folder.is_dir() and any(folder.iterdir()) and not ExportFolder(folder).description.exists():
        raise LongtailError(
            f"expected an empty folder or an earlier export at {folder}, got other files: "
            "choose another --out"
        )


def _need(to: Target) -> None:
    missing = [
        name
        for name in ("onnx", "onnxscript", "onnxruntime")
        if importlib.util.find_spec(name) is None
    ]
    if to == "onnx" and missing:
        raise MissingExtra(
            f"expected {', '.join(missing)} for ONNX, got none: run pip install 'longtail[export]'"
        )


def _about(loaded: Loaded, to: Target) -> dict[str, Any]:
    """What a user of the exported network needs to know."""
    size, row, spec = loaded.size, loaded.row, input_spec(cast(Any, loaded.network.spec))
    outside = f"subtract {spec['mean']}, divide by {spec['std']}, channel by channel"
    return {
        "format": FORMAT,
        "classes": list(loaded.classes),
        "input": {
            "name": "image",
            "shape": ["batch", 3, size, size],
            "type": "float32",
            "channels": "RGB",
            "range": [0, 1],
        },
        "preprocessing": f"upright RGB, {loaded.preprocessing}, divided by 255",
        "normalisation": outside if to == "timm" else "inside the network",
        "output": {
            "name": "logits",
            "shape": ["batch", len(loaded.classes)],
            "probabilities": "softmax",
        },
        "abstain": None if loaded.thresholds is None else loaded.thresholds.to_json(),
        "run": {
            "recipe": row["recipe"],
            "data": row["data"]["name"],
            "seed": row["seed"],
            "longtail": longtail.__version__,
        },
    }


def _example(loaded: Loaded) -> tuple[tuple[Tensor], Any]:
    """Images to trace with, and that their number is free. (Torch takes 1 for a constant.)"""
    return (torch.rand(3, 3, loaded.size, loaded.size),), ({0: torch.export.Dim("batch")},)


def _write_onnx(folder: Path, loaded: Loaded) -> None:
    images, free = _example(loaded)
    program: Any = torch.onnx.export(
        loaded.network,
        images,
        dynamo=True,
        input_names=["image"],
        output_names=["logits"],
        dynamic_shapes=free,
        verbose=False,
    )
    program.model.metadata_props.update(
        {
            name: json.dumps(value, ensure_ascii=False)
            for name, value in _about(loaded, "onnx").items()
        }
    )
    state = loaded.network.state_dict()
    weights = sum(tensor.numel() * tensor.element_size() for tensor in state.values())
    program.save(str(ExportFolder(folder).onnx), external_data=weights > _SINGLE_FILE)


def _read_onnx(folder: Path) -> Callable[[Tensor], Tensor]:
    import onnxruntime

    session = onnxruntime.InferenceSession(
        ExportFolder(folder).onnx, providers=["CPUExecutionProvider"]
    )
    return lambda image: torch.from_numpy(session.run(["logits"], {"image": image.numpy()})[0])


def _write_torch(folder: Path, loaded: Loaded) -> None:
    images, free = _example(loaded)
    program = torch.export.export(loaded.network, images, dynamic_shapes=free)
    torch.export.save(
        program,
        ExportFolder(folder).program,
        extra_files={
            ExportFolder(folder).description.name: json.dumps(
                _about(loaded, "torch"), ensure_ascii=False
            )
        },
    )


def _read_torch(folder: Path) -> Callable[[Tensor], Tensor]:
    return torch.export.load(ExportFolder(folder).program).module()


_WRITERS: dict[
    str, tuple[Callable[[Path, Loaded], None], Callable[[Path], Callable[[Tensor], Tensor]]]
] = {
    "onnx": (_write_onnx, _read_onnx),
    "torch": (_write_torch, _read_torch),
    "timm": (write_timm, read_timm),
}


def _readme(loaded: Loaded, to: Target) -> str:
    row = loaded.row
    transforms = (
        "timm's transforms prepare other images differently: use `preprocess` of `predict.py`.\n"
        if to == "timm"
        else ""
    )
    return f"""# {row["recipe"]} on {row["data"]["name"]}: {len(loaded.classes)} classes

In this folder, without longtail:

```bash
python predict.py image.png
```

```python
from predict import CLASSES, logits

print(CLASSES[logits(["image.png"])[0].argmax()])
```

`predict.py` prepares an image file as the run did: {loaded.preprocessing}.
{transforms}The softmax of the logits gives probabilities. `model.json` says the rest.
"""
