"""Columns of a split: further labels of each row, as numbers or as categories."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from longtail.errors import LongtailError

RESERVED = frozenset({"image", "view1", "view2", "target", "position", "index"})
"""Keys of a batch that columns must not use."""

Columns = Mapping[str, NDArray[Any]]


def check_columns(columns: Mapping[str, Any], rows: int) -> None:
    """Raise unless every column has one value per row and a name that batches do not use."""
    for name, values in columns.items():
        if name in RESERVED:
            raise LongtailError(
                f"column {name!r} has the name of another key of a batch: rename it"
            )
        if len(values) != rows:
            raise LongtailError(
                f"column {name!r} must have a value for each of {rows} rows, got {len(values)}"
            )


def read_columns(
    cells: Mapping[str, Mapping[str, Sequence[Any]]],
) -> tuple[dict[str, dict[str, NDArray[Any]]], dict[str, tuple[str, ...]]]:
    """Convert the cells of each split to arrays, and return the categories of text columns.

    A column of numbers becomes float32, with NaN for an empty cell. Any other column becomes int64
    indices into its categories, which are sorted by code point. A column that is missing from one
    of the splits is dropped.

    Args:
        cells: split -> column -> one cell per row.

    >>> cells = {"train": {"domain": ["photo", "art"], "age": ["3", ""]}}
    >>> columns, categories = read_columns(cells)
    >>> columns["train"]
    {'domain': array([1, 0]), 'age': array([ 3., nan], dtype=float32)}
    >>> categories
    {'domain': ('art', 'photo')}
    """
    names = [
        name
        for name in next(iter(cells.values()), {})
        if all(name in columns for columns in cells.values())
    ]
    result: dict[str, dict[str, NDArray[Any]]] = {split: {} for split in cells}
    categories = {}
    for name in names:
        by_split = {split: [*columns[name]] for split, columns in cells.items()}
        values = [value for part in by_split.values() for value in part]
        if _are_numbers(values):
            for split, part in by_split.items():
                numbers = [float("nan") if _is_empty(value) else float(value) for value in part]
                result[split][name] = np.array(numbers, dtype=np.float32)
            continue
        categories[name] = tuple(sorted({_text(value) for value in values}))
        index = {word: number for number, word in enumerate(categories[name])}
        for split, part in by_split.items():
            result[split][name] = np.array([index[_text(value)] for value in part], np.int64)
    return result, categories


def _are_numbers(values: Iterable[Any]) -> bool:
    present = [value for value in values if not _is_empty(value)]
    try:
        return bool(present) and all(math.isfinite(float(value)) for value in present)
    except ValueError:
        return False


def _is_empty(value: Any) -> bool:
    return value is None or value == ""


def _text(value: Any) -> str:
    return "" if value is None else str(value)
