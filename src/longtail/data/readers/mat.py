"""Read the standard splits of generalised zero-shot learning: two MATLAB files in one folder.

Xian et al., "Zero-Shot Learning - A Comprehensive Evaluation of the Good, the Bad and the Ugly",
TPAMI 2019. The first file is usually called res101.mat, the second att_splits.mat; CE-GZSL has
another second file for CUB. Locations count rows from 1.

| array | file | shape | |
|:--|:--|:--|:--|
| `features` | first | (D, N) | a column for each image |
| `labels` | first | (N, 1) | class numbers from 1 |
| `image_files` | first | (N, 1) | optional: paths, whose folders are class names |
| `att` | second | (A, C) | a column for each class, in the order of `allclasses_names` |
| `allclasses_names` | second | (C, 1) | names of the classes |
| `trainval_loc` | second | (M, 1) | the training images |
| `test_seen_loc`, `test_unseen_loc` | second | (M, 1) | the test images |

The arrays `train_loc` and `val_loc` are never read: they share images with `test_seen_loc`.
Settings are chosen with the protocol `holdout`, which holds validation classes out of the images of
`trainval_loc` (`longtail.data.splits.hold_out_classes`).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from functools import partial
from hashlib import sha256
from pathlib import Path, PurePosixPath
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from longtail.data.images.stores import VectorRows
from longtail.data.source import Rows, Source, check_finite, listing
from longtail.data.splits import seen_groups
from longtail.errors import LongtailError
from longtail.records.files import check_regular

FEATURES = ("features", "labels")
SPLITS = ("att", "allclasses_names", "trainval_loc", "test_seen_loc", "test_unseen_loc")
COUNTED = ("labels", "trainval_loc", "test_seen_loc", "test_unseen_loc")
TEXT = ("image_files", "allclasses_names")
LIMIT = 8_000_000_000  # bytes of a file, and of each of its arrays


def mat_files(folder: Path) -> list[Path]:
    """The .mat files of a folder."""
    return sorted(path for path in folder.iterdir() if path.suffix.lower() == ".mat")


def mat(path: Path) -> Source:
    """Read features and splits: `path` is the folder of both files, or one of the two."""
    images, splits = _both(path)
    content = _load(images, (*FEATURES, "image_files"), needed=FEATURES)
    content |= _load(splits, SPLITS, needed=SPLITS)
    where = f"{images} and {splits.name}"
    vectors, attributes = _matrices(content, where)
    classes = _names(content["allclasses_names"])
    if attributes.shape[0] != len(classes):
        raise LongtailError(
            f"{splits}: att must have a column for each of {len(classes)} classes of"
            f" allclasses_names, got {attributes.shape[0]}."
        )
    target = _targets(content, classes, rows=len(vectors), where=where)
    located = {
        name: _located(content[name], len(vectors), f"{splits}: {name}") for name in SPLITS[2:]
    }
    _check_splits(located, target, classes, splits)
    test = np.concatenate([located["test_seen_loc"], located["test_unseen_loc"]])
    ids = _names(content["image_files"]) if "image_files" in content else None

    def rows(index: NDArray[np.int64]) -> Rows:
        return Rows(
            VectorRows(torch.from_numpy(vectors[index])),
            target[index],
            tuple(str(row + 1) if ids is None else ids[row] for row in index.tolist()),
            tuple(sha256(row.tobytes()).digest() for row in vectors[index]),
        )

    return Source(
        images.resolve().parent.name,
        classes,
        {"train": rows(located["trainval_loc"]), "test": rows(test)},
        seen_groups,
        size=vectors.shape[1],
        mirror=False,
        class_attributes={"vector": attributes},
    )


def _both(path: Path) -> tuple[Path, Path]:
    """The file with features and the file with splits."""
    beside = mat_files(path if path.is_dir() else path.parent)
    named = {file: _shapes(file) for file in beside}
    images = [file for file in beside if "features" in named[file]]
    splits = [file for file in beside if "trainval_loc" in named[file]]
    if path in images:
        images = [path]
    if path in splits:
        splits = [path]
    for kind, files, name in (("features", images, "features"), ("splits", splits, "trainval_loc")):
        if not files:
            raise LongtailError(
                f"{path}: no .mat file there has the array {name}: expected a file with"
                f" {', '.join(FEATURES)} (res101.mat) and one with {', '.join(SPLITS)}"
                " (att_splits.mat)."
            )
        if len(files) > 1:
            raise LongtailError(
                f"{path}: {len(files)} files have {kind}"
                f" ({listing(file.name for file in files)}): pass the path of the one to use."
            )
    return images[0], splits[0]


def _scipy() -> Any:
    try:
        import scipy.io
    except ImportError as error:
        raise LongtailError(
            "reading .mat files needs scipy: pip install 'longtail[mat]'"
        ) from error
    return scipy.io


def _shapes(path: Path) -> dict[str, tuple[int, ...]]:
    """The shape of each array, by name."""
    return {name: shape for name, shape, _ in _read(path, _scipy().whosmat)}


def _read(path: Path, reader: Callable[[str], Any]) -> Any:
    check_regular(path, limit=LIMIT)
    try:
        return reader(str(path))
    except Exception as error:  # of a damaged file scipy raises many types
        raise LongtailError(
            f"{path} cannot be read ({type(error).__name__}: {error}): expected a MATLAB file of"
            " version 5 to 7.2."
        ) from error


def _load(path: Path, names: tuple[str, ...], *, needed: tuple[str, ...]) -> dict[str, Any]:
    shapes = _shapes(path)
    missing = [name for name in needed if name not in shapes]
    if missing:
        raise LongtailError(
            f"{path}: expected the arrays {', '.join(needed)}, missing {', '.join(missing)}."
        )
    for name in {*names} & {*shapes}:
        if 8 * math.prod(shapes[name]) > LIMIT:
            raise LongtailError(
                f"{path}: {name} claims the shape {shapes[name]}, and arrays of at most"
                f" {LIMIT // 8:,} numbers are read: write it again."
            )
    load = partial(_scipy().loadmat, variable_names=list(names))
    arrays = {name: values for name, values in _read(path, load).items() if name in names}
    for name, values in arrays.items():
        expected = "OU" if name in TEXT else "fiu"
        if not isinstance(values, np.ndarray) or values.dtype.kind not in expected:
            kind = values.dtype if isinstance(values, np.ndarray) else type(values).__name__
            raise LongtailError(
                f"{path}: {name} must have {'names' if name in TEXT else 'numbers'}, got {kind}."
            )
        if name in COUNTED and not np.isfinite(values).all():
            raise LongtailError(f"{path}: {name} must have finite numbers, got NaN or infinity.")
    return arrays


def _matrices(
    content: Mapping[str, NDArray[Any]], where: str
) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    """Features (N, D) and attributes (C, A)."""
    for name in ("features", "att"):
        values = content[name]
        if values.ndim != 2 or not values.size:
            raise LongtailError(f"{where}: {name} must be a matrix, got shape {values.shape}.")
    vectors = np.ascontiguousarray(content["features"].T, dtype=np.float32)
    attributes = np.ascontiguousarray(content["att"].T, dtype=np.float32)
    labels = content["labels"].size
    if labels != len(vectors):
        raise LongtailError(
            f"{where}: features must have a column for each of {labels} labels, got shape"
            f" {content['features'].shape}."
        )
    check_finite(vectors, where=where)
    return vectors, attributes


def _targets(
    content: Mapping[str, Any], classes: tuple[str, ...], *, rows: int, where: str
) -> NDArray[np.int64]:
    """The position of each image's class in `allclasses_names`.

    By name, where the folders in `image_files` are class names, because `allclasses_names` may not
    be in the order of class numbers; otherwise by number.
    """
    labels = content["labels"].ravel().astype(np.int64) - 1
    position = {name: number for number, name in enumerate(classes)}
    if "image_files" in content:
        files = _names(content["image_files"])
        if len(files) != rows:
            raise LongtailError(
                f"{where}: image_files must have a path for each of {rows} images, got"
                f" {len(files)}."
            )
        folders = [PurePosixPath(file.replace("\\", "/")).parent.name for file in files]
        if all(folder in position for folder in folders):
            return np.array([position[folder] for folder in folders])
    if outside := sorted({*labels.tolist()} - {*range(len(classes))}):
        raise LongtailError(
            f"{where}: expected labels 1 to {len(classes)}, the number of allclasses_names, got"
            f" {listing(label + 1 for label in outside)}."
        )
    return np.asarray(labels)


def _located(values: NDArray[Any], rows: int, where: str) -> NDArray[np.int64]:
    """Locations, which count from 1, as row numbers."""
    index = values.ravel().astype(np.int64) - 1
    if not len(index) or index.min() < 0 or index.max() >= rows:
        got = f"{index.min() + 1} to {index.max() + 1}" if len(index) else "none"
        raise LongtailError(f"{where}: expected locations from 1 to {rows}, got {got}.")
    return np.asarray(index)


def _check_splits(
    located: Mapping[str, NDArray[np.int64]],
    target: NDArray[np.int64],
    classes: tuple[str, ...],
    splits: Path,
) -> None:
    """Refuse test images that are in training, and classes on the wrong side."""
    train = located["trainval_loc"]
    trained = {*target[train].tolist()}
    for name in ("test_seen_loc", "test_unseen_loc"):
        if both := np.intersect1d(train, located[name]).size:
            raise LongtailError(f"{splits}: {both:,} images of {name} are also in trainval_loc.")
    for name, wrong in (
        ("test_seen_loc", {*target[located["test_seen_loc"]].tolist()} - trained),
        ("test_unseen_loc", {*target[located["test_unseen_loc"]].tolist()} & trained),
    ):
        if wrong:
            expected = "only classes" if name == "test_seen_loc" else "no class"
            raise LongtailError(
                f"{splits}: {name} must have {expected} of trainval_loc, got"
                f" {listing(classes[number] for number in sorted(wrong))}: labels and"
                " allclasses_names may be in different orders."
            )


def _names(cells: NDArray[Any]) -> tuple[str, ...]:
    """Strings of a MATLAB cell array, which scipy reads as arrays in arrays."""
    return tuple(
        str(np.asarray(cell).ravel()[0]) if np.asarray(cell).size else "" for cell in cells.ravel()
    )
