"""Feature vectors in the place of images: an .npz of what a frozen network computed. Nothing in it
is
executed.

| array | shape | |
|:--|:--|:--|
| `features` | (N, D) | floats, or uint8 together with `scale` |
| `target` | (N,) | classes as integers from 0 on |
| `split` | (N,) | train, val or test; all rows train unless given |
| `classes` | (C,) | names of the classes |
| `ids` | (N,) | a name for each row |
| `scale` | () | what uint8 features are multiplied with |
| `column.NAME` | (N, ...) | a column: numbers, or words, which become categories |
| `attribute.NAME` | (C, ...) | an attribute of classes; a class then needs no training row |
"""

from __future__ import annotations

from hashlib import sha256
from pathlib import Path
from typing import Any
from zipfile import BadZipFile

import numpy as np
import torch
from numpy.typing import NDArray

from longtail.data.columns import read_columns
from longtail.data.images.stores import VectorRows
from longtail.data.source import Rows, Source, numbered_classes, several, split_named
from longtail.data.splits import natural_groups
from longtail.errors import LongtailError

COLUMN, ATTRIBUTE = "column.", "attribute."


def features(path: Path) -> Source:
    """Read an .npz of features; `Source.size` is their number D."""
    arrays = _arrays(path)
    vectors = _vectors(arrays, path)
    target = arrays["target"].astype(np.int64)
    rows = len(target)
    for name, values in arrays.items():
        per_row = name in ("target", "split", "ids") or name.startswith(COLUMN)
        if per_row and values.shape[:1] != (rows,):
            raise LongtailError(
                f"{path}: expected {name} with a value for each of {rows} rows, got shape"
                f" {values.shape}."
            )
    words = [str(word) for word in arrays.get("split", np.full(rows, "train")).tolist()]
    if strange := sorted({word for word in words if split_named(word) is None}):
        raise LongtailError(
            f"{path}: expected the splits train, val and test, got {several(strange)}."
        )
    names = tuple(map(str, arrays["classes"].tolist())) if "classes" in arrays else None
    classes = numbered_classes({"all": target}, names, where=str(path))
    ids = [str(name) for name in arrays.get("ids", np.arange(rows)).tolist()]
    where = {
        split: np.flatnonzero([split_named(word) == split for word in words])
        for split in ("train", "val", "test")
    }
    columns, categories = _columns(arrays, where)
    splits = {
        split: Rows(
            VectorRows(torch.from_numpy(vectors[own])),
            target[own],
            tuple(ids[row] for row in own.tolist()),
            tuple(sha256(row.tobytes()).digest() for row in vectors[own]),
            columns[split],
        )
        for split, own in where.items()
        if len(own)
    }
    if "train" not in splits:
        raise LongtailError(f"{path}: expected rows to train on, got none whose split is train.")
    attributes = {
        name.removeprefix(ATTRIBUTE): values
        for name, values in arrays.items()
        if name.startswith(ATTRIBUTE)
    }
    return Source(
        path.stem,
        classes,
        splits,
        natural_groups,
        size=vectors.shape[1],
        mirror=False,
        categories=categories,
        class_attributes=attributes,
    )


def _arrays(path: Path) -> dict[str, NDArray[Any]]:
    try:
        with path.open("rb") as file:
            archive = np.load(file, allow_pickle=False)
            arrays = {name: archive[name] for name in archive.files}
    except (BadZipFile, ValueError, OSError, EOFError, AttributeError) as error:
        raise LongtailError(
            f"{path}: expected an .npz with the arrays features and target, got something else"
            f" ({error})."
        ) from error
    missing = [name for name in ("features", "target") if name not in arrays]
    if missing:
        raise LongtailError(
            f"{path}: expected the arrays features and target, missing {several(missing)}."
        )
    return arrays


def _vectors(arrays: dict[str, NDArray[Any]], path: Path) -> NDArray[np.float32]:
    stored = arrays["features"]
    if (stored.dtype == np.uint8) != ("scale" in arrays):
        raise LongtailError(
            f"{path}: expected scale together with uint8 features and only then, got"
            f" {stored.dtype}."
        )
    vectors = np.ascontiguousarray(stored, dtype=np.float32)
    if "scale" in arrays:
        vectors *= np.float32(arrays["scale"])
    target = arrays["target"]
    fits = vectors.ndim == 2 and vectors.size and target.shape == vectors.shape[:1]
    if not fits or target.dtype.kind not in "iu":
        raise LongtailError(
            f"{path}: expected features (N, D) and target (N,) of integers, "
            f"got {vectors.shape} and {target.shape} of {target.dtype}."
        )
    if broken := int((~np.isfinite(vectors)).any(axis=1).sum()):
        raise LongtailError(f"{path}: expected finite features, got others in {broken:,} rows.")
    return vectors


def _columns(
    arrays: dict[str, NDArray[Any]], where: dict[str, NDArray[np.int64]]
) -> tuple[dict[str, dict[str, NDArray[Any]]], dict[str, tuple[str, ...]]]:
    """Numbers stay as they are, of any shape; words become categories."""
    given = {
        name.removeprefix(COLUMN): values
        for name, values in arrays.items()
        if name.startswith(COLUMN)
    }
    words = {name: values for name, values in given.items() if values.dtype.kind in "US"}
    found, categories = read_columns(
        {
            split: {name: values[rows].tolist() for name, values in words.items()}
            for split, rows in where.items()
        }
    )
    for split, rows in where.items():
        found[split] |= {
            name: np.ascontiguousarray(values[rows])
            for name, values in given.items()
            if name not in words
        }
    return found, categories
