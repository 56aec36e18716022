"""Predictions on disk: the logits of every head, the targets and the name of every image."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from longtail.errors import LongtailError
from longtail.records.arrays import read_arrays
from longtail.records.files import atomic_write

REPAIR = "delete it and write it again with `longtail eval RUN --rewrite`"


@dataclass(frozen=True)
class SplitPredictions:
    """The predictions of a network for a split, sorted by the index of the images in it."""

    logits: Mapping[str, NDArray[np.float32]]  # "logits" (N, C), and one entry per further head
    target: NDArray[np.int64]
    index: NDArray[np.int64]
    columns: Mapping[str, NDArray[Any]] = field(default_factory=dict)  # as the split has them

    def __post_init__(self) -> None:
        if "logits" not in self.logits:
            raise LongtailError(
                f'expected a head called "logits", got {sorted(self.logits)}: let `predict` give'
                " the main head this name"
            )


def write_predictions(path: Path, predictions: SplitPredictions, ids: Sequence[str]) -> None:
    """Write predictions as a numpy archive; `ids` names every image of the split by its index.

    The archive holds `logits`, `logits.HEAD` for each further head, `target`, `index`, `ids`, and
    `column.NAME` for each column.

    >>> import tempfile
    >>> rows = np.array([0, 1])
    >>> predictions = SplitPredictions({"logits": np.eye(2, dtype=np.float32)}, rows, rows)
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     write_predictions(Path(folder) / "test.npz", predictions, ["cat/1.png", "dog/7.png"])
    ...     read_predictions(Path(folder) / "test.npz")[1].tolist()
    ['cat/1.png', 'dog/7.png']
    """
    if len(predictions.index) and int(predictions.index.max()) >= len(ids):
        raise LongtailError(
            f"expected a name for image {predictions.index.max()}, got {len(ids)} names: pass the"
            " ids of the same split"
        )
    arrays: dict[str, NDArray[Any]] = {
        "logits" if head == "logits" else f"logits.{head}": values.astype(np.float32, copy=False)
        for head, values in predictions.logits.items()
    }
    names = np.array([ids[index] for index in predictions.index], dtype=np.str_)
    arrays |= {"target": predictions.target, "index": predictions.index, "ids": names}
    arrays |= {f"column.{name}": values for name, values in predictions.columns.items()}
    with atomic_write(path) as part, part.open("wb") as file:
        np.savez_compressed(file, allow_pickle=False, **arrays)


def _problem(arrays: Mapping[str, NDArray[Any]]) -> str | None:
    """What arrays of predictions should be instead, and what they are; None if they are right."""
    logits, target, index = arrays["logits"], arrays["target"], arrays["index"]
    if logits.ndim != 2 or logits.dtype.kind != "f":
        return f"logits (N, C) of floats, got {logits.shape} of {logits.dtype}"
    rows, classes = logits.shape
    for name, values in arrays.items():
        if values.shape[:1] != (rows,):
            return f"{name} with {rows} rows, as logits have, got the shape {values.shape}"
        if name.startswith("logits") and (values.ndim != 2 or values.dtype.kind != "f"):
            return f"{name} (N, C) of floats, got {values.shape} of {values.dtype}"
        # A class that is masked out has the logit -inf
        if name.startswith("logits") and not (values < np.inf).all():
            bad = int((~(values < np.inf)).any(axis=1).sum())
            return f"numbers as {name}, got NaN or infinity in {bad:,} rows"
    for name, values in (("target", target), ("index", index)):
        if values.ndim != 1 or values.dtype.kind not in "iu":
            return f"{name} (N,) of integers, got {values.shape} of {values.dtype}"
    if rows and not (target.min() >= 0 and target.max() < classes):
        return f"targets 0 to {classes - 1}, got {target.min()} to {target.max()}"
    if rows and index.min() < 0:
        return f"an index of 0 or more, got {index.min()}"
    return None


def read_predictions(path: Path) -> tuple[SplitPredictions, NDArray[np.str_]]:
    """Read predictions and the name of each row's image. Nothing in the file is executed.

    An example stands with `write_predictions`.
    """
    arrays = read_arrays(path, repair=REPAIR)
    missing = [name for name in ("logits", "target", "index", "ids") if name not in arrays]
    if missing:
        raise LongtailError(
            f"expected logits, target, index and ids in {path}, missing {', '.join(missing)}:"
            f" {REPAIR}"
        )
    if problem := _problem(arrays):
        raise LongtailError(f"expected {problem} in {path}: {REPAIR}")
    heads = {
        name.removeprefix("logits."): values
        for name, values in arrays.items()
        if name == "logits" or name.startswith("logits.")
    }
    columns = {
        name.removeprefix("column."): values
        for name, values in arrays.items()
        if name.startswith("column.")
    }
    return SplitPredictions(heads, arrays["target"], arrays["index"], columns), arrays["ids"]
