"""Feature vectors instead of images, in an .npz such as `longtail embed` writes.

Loading the file executes no code in it (no pickles).

| array | shape | |
|:--|:--|:--|
| `features` | (N, D) | floats, or uint8 together with `scale` |
| `target` | (N,) | class indices |
| `split` | (N,) | train, val or test; by default all rows are train |
| `classes` | (C,) | names of the classes |
| `ids` | (N,) | names of the rows |
| `scale` | () or (D,) | factor of uint8 features |
| `column.NAME` | (N, ...) | a column: numbers, or text, which becomes categories |
| `attribute.NAME` | (C, ...) | a class attribute: numbers, or text, which becomes categories |
| `categories.NAME` | (K,) | names for the integers of the column or class attribute NAME |
| `pretraining` | () | text: what the network that computed the features was trained on |
| `backbone` | () | text: that network as JSON, see `FeatureBackbone` |
| `backbone.weights` | (B,) | uint8: its weights, the bytes of a safetensors file |

With a class attribute, classes need no training row.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from longtail.data.columns import read_columns
from longtail.data.dataset import FeatureBackbone
from longtail.data.images.stores import VectorRows
from longtail.data.source import Rows, Source, check_finite, listing, numbered_targets, split_named
from longtail.data.splits import natural_groups
from longtail.errors import LongtailError
from longtail.records.arrays import read_arrays
from longtail.records.files import atomic_write

COLUMN, ATTRIBUTE, CATEGORIES = "column.", "attribute.", "categories."
UNKNOWN = "unknown"
"""The pretraining of features whose file does not state it."""
BACKBONE, WEIGHTS, PRETRAINING = "backbone", "backbone.weights", "pretraining"


def features(path: Path) -> Source:
    """Read an .npz of features (N, D); `Source.size` is D."""
    arrays = _arrays(path)
    vectors = _vectors(arrays, path)
    rows = len(vectors)
    for name, values in arrays.items():
        per_row = name in ("target", "split", "ids") or name.startswith(COLUMN)
        if per_row and values.shape[:1] != (rows,):
            raise LongtailError(
                f"{path}: {name} must have a value for each of {rows} rows, got shape"
                f" {values.shape}."
            )
    words = [str(word) for word in arrays.get("split", np.full(rows, "train")).tolist()]
    if unknown := sorted({word for word in words if split_named(word) is None}):
        raise LongtailError(
            f"{path}: expected the splits train, val and test, got {listing(unknown)}."
        )
    names = tuple(map(str, arrays["classes"].tolist())) if "classes" in arrays else None
    classes, targets = numbered_targets({"all": arrays["target"].tolist()}, names, where=str(path))
    target = targets["all"]
    ids = [str(name) for name in arrays.get("ids", np.arange(rows)).tolist()]
    where = {
        split: np.flatnonzero([split_named(word) == split for word in words])
        for split in ("train", "val", "test")
    }
    columns, categories = _columns(arrays, where)
    attributes, attribute_names = _attributes(arrays)
    for name in set(attribute_names) & set(categories):
        columns = _recoded(columns, name, categories[name], attribute_names[name], path)
    splits = {
        split: Rows(
            VectorRows(torch.from_numpy(vectors[index])),
            target[index],
            tuple(ids[row] for row in index.tolist()),
            tuple(sha256(row.tobytes()).digest() for row in vectors[index]),
            columns[split],
        )
        for split, index in where.items()
        if len(index)
    }
    if "train" not in splits:
        raise LongtailError(f"{path}: no row has the split train: add training rows.")
    named = {
        name.removeprefix(CATEGORIES): tuple(map(str, values.tolist()))
        for name, values in arrays.items()
        if name.startswith(CATEGORIES)
    }
    if twice := sorted({*named} & {*categories, *attribute_names}):
        raise LongtailError(f"{path}: {twice[0]} is text already: remove categories.{twice[0]}.")
    _check_categories(named, columns, attributes, path)
    return Source(
        path.stem,
        classes,
        splits,
        natural_groups,
        size=vectors.shape[1],
        mirror=False,
        categories={**categories, **attribute_names, **named},
        class_attributes=attributes,
        pretraining=_text(arrays, PRETRAINING, path) if PRETRAINING in arrays else UNKNOWN,
        backbone=_backbone(arrays, path),
    )


def write_features(path: Path, arrays: Mapping[str, NDArray[Any]]) -> None:
    """Write a file for `features`, in one move."""
    with atomic_write(path) as part, part.open("wb") as file:
        np.savez(file, allow_pickle=False, **arrays)


def backbone_weights(path: Path) -> bytes | None:
    """The weights of the network that computed the features of a file, if it has them."""
    with np.load(path, allow_pickle=False) as archive:
        return archive[WEIGHTS].tobytes() if WEIGHTS in archive.files else None


def _arrays(
    path: Path, *, needed: Sequence[str] = ("features", "target")
) -> dict[str, NDArray[Any]]:
    # The weights of the backbone may be large, and only a finished run needs them.
    arrays = read_arrays(
        path, repair=f"write an .npz with the arrays {' and '.join(needed)}", skip=(WEIGHTS,)
    )
    missing = [name for name in needed if name not in arrays]
    if missing:
        raise LongtailError(
            f"{path}: expected the arrays {' and '.join(needed)}, missing {listing(missing)}."
        )
    return arrays


def read_rows(path: Path) -> tuple[NDArray[np.float32], list[str]]:
    """The features (N, D) of an .npz, and the ids of its rows; it needs no target."""
    arrays = _arrays(path, needed=("features",))
    if arrays["features"].ndim != 2:
        raise LongtailError(f"{path}: expected features (N, D), got {arrays['features'].shape}.")
    arrays.setdefault("target", np.zeros(len(arrays["features"]), dtype=np.int64))
    vectors = _vectors(arrays, path)
    return vectors, [str(name) for name in arrays.get("ids", np.arange(len(vectors))).tolist()]


def _vectors(arrays: dict[str, NDArray[Any]], path: Path) -> NDArray[np.float32]:
    stored = arrays["features"]
    if (stored.dtype == np.uint8) != ("scale" in arrays):
        raise LongtailError(
            f"{path}: uint8 features need the array scale, and other features must not have it; got"
            f" {stored.dtype}."
        )
    scale = arrays.get("scale", np.ones(()))
    for name, values in (("features", stored), ("scale", scale)):
        if values.dtype.kind not in "fiu":
            raise LongtailError(f"{path}: {name} must be numbers, got {values.dtype}.")
    vectors = np.ascontiguousarray(stored, dtype=np.float32)
    if scale.shape not in ((), stored.shape[1:]):
        raise LongtailError(
            f"{path}: expected one scale, or one for each feature, got shape {scale.shape}."
        )
    if "scale" in arrays:
        vectors *= scale.astype(np.float32)
    target = arrays["target"]
    fits = vectors.ndim == 2 and vectors.size and target.shape == vectors.shape[:1]
    if not fits or target.dtype.kind not in "iu":
        raise LongtailError(
            f"{path}: expected features (N, D) and target (N,) of integers, "
            f"got {vectors.shape} and {target.shape} of {target.dtype}."
        )
    check_finite(vectors, where=str(path))
    return vectors


def _columns(
    arrays: dict[str, NDArray[Any]], where: dict[str, NDArray[np.int64]]
) -> tuple[dict[str, dict[str, NDArray[Any]]], dict[str, tuple[str, ...]]]:
    """Read the columns: numbers of any shape are unchanged, text becomes categories."""
    given = {
        name.removeprefix(COLUMN): values
        for name, values in arrays.items()
        if name.startswith(COLUMN)
    }
    text = {name: values for name, values in given.items() if values.dtype.kind in "US"}
    columns, categories = read_columns(
        {
            split: {name: values[rows].tolist() for name, values in text.items()}
            for split, rows in where.items()
        }
    )
    for split, rows in where.items():
        columns[split] |= {
            name: np.ascontiguousarray(values[rows])
            for name, values in given.items()
            if name not in text
        }
    return columns, categories


def _attributes(
    arrays: dict[str, NDArray[Any]],
) -> tuple[dict[str, NDArray[Any]], dict[str, tuple[str, ...]]]:
    """Read the class attributes: numbers of any shape are unchanged, text becomes categories."""
    attributes, categories = {}, {}
    for name, values in arrays.items():
        if not name.startswith(ATTRIBUTE):
            continue
        short = name.removeprefix(ATTRIBUTE)
        if values.dtype.kind in "US":
            words, values = np.unique(values.astype(np.str_), return_inverse=True)
            categories[short] = tuple(words.tolist())
        attributes[short] = values
    return attributes, categories


def _recoded(
    columns: dict[str, dict[str, NDArray[Any]]],
    name: str,
    words: tuple[str, ...],
    categories: tuple[str, ...],
    path: Path,
) -> dict[str, dict[str, NDArray[Any]]]:
    """Number a column's words as the class attribute of the same name numbers them."""
    if unknown := sorted({*words} - {*categories}):
        raise LongtailError(
            f"{path}: column.{name} has {listing(unknown)}, which attribute.{name} does not have:"
            " correct one of them."
        )
    numbers = np.array([categories.index(word) for word in words], dtype=np.int64)
    return {split: {**part, name: numbers[part[name]]} for split, part in columns.items()}


def _text(arrays: Mapping[str, NDArray[Any]], name: str, path: Path) -> str | None:
    values = arrays[name]
    if values.shape != () or values.dtype.kind != "U":
        raise LongtailError(f"{path}: {name} must be one text, got {values.dtype} {values.shape}.")
    return str(values) or None


def _backbone(arrays: Mapping[str, NDArray[Any]], path: Path) -> FeatureBackbone | None:
    if BACKBONE not in arrays:
        return None
    try:
        content = json.loads(_text(arrays, BACKBONE, path) or "")
        return FeatureBackbone(path, content["network"], int(content["size"]), content["fit"])
    except (KeyError, TypeError, ValueError, RecursionError) as error:
        raise LongtailError(
            f"{path}: the description of the backbone cannot be read ({error}): compute the"
            " features again with longtail embed."
        ) from error


def _check_categories(
    named: Mapping[str, tuple[str, ...]],
    columns: Mapping[str, Mapping[str, NDArray[Any]]],
    attributes: Mapping[str, NDArray[Any]],
    path: Path,
) -> None:
    for name, words in named.items():
        values = [part[name] for part in columns.values() if name in part]
        values += [attributes[name]] if name in attributes else []
        if not values:
            raise LongtailError(
                f"{path}: categories.{name} has no column.{name} or attribute.{name}: remove it."
            )
        for part in values:
            if part.dtype.kind not in "iu" or not ((part >= 0) & (part < len(words))).all():
                raise LongtailError(
                    f"{path}: {name} must have integers below {len(words)}, the number of its"
                    " categories."
                )
