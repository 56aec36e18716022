"""What is known of each row besides its class: columns of numbers, or of words that become numbers."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from longtail.errors import LongtailError

RESERVED = frozenset({"image", "view1", "view2", "target", "position", "index"})
"""Keys of a batch that are no columns."""

Columns = Mapping[str, NDArray[Any]]


def check_columns(columns: Mapping[str, Any], rows: int) -> None:
    """Refuse columns that are not one row per image, or are named like something else in a batch."""
    for name, values in columns.items():
        if name in RESERVED:
            raise LongtailError(
                f"expected a column under a name that batches do not use, got {name!r}: rename it"
            )
        if len(values) != rows:
            raise LongtailError(
                f"expected a value for each of {rows} rows in column {name!r}, got {len(values)}"
            )


def read_columns(
    cells: Mapping[str, Mapping[str, Sequence[Any]]],
) -> tuple[dict[str, dict[str, NDArray[Any]]], dict[str, tuple[str, ...]]]:
    """Columns of each split from cells of text or numbers, and the categories of those that are
    words.

    A column of numbers becomes float32, with NaN where a cell is empty. Any other becomes int64:
    the position of each word in its categories, which are in code-point order. A column that one of
    the splits lacks is left out.

    Args:
        cells: split -> column -> one cell per row.

    >>> read_columns({"train": {"domain": ["photo", "art"], "age": ["3", ""]}})
    ({'train': {'domain': array([1, 0]), 'age': array([ 3., nan], dtype=float32)}}, {'domain': ('art', 'photo')})
    """
    names = [
        name
        for name in next(iter(cells.values()), {})
        if all(name in own for own in cells.values())
    ]
    found: dict[str, dict[str, NDArray[Any]]] = {split: {} for split in cells}
    categories = {}
    for name in names:
        every = {split: [*columns[name]] for split, columns in cells.items()}
        values = [value for part in every.values() for value in part]
        if _are_numbers(values):
            for split, part in every.items():
                numbers = [float("nan") if _is_empty(value) else float(value) for value in part]
                found[split][name] = np.array(numbers, dtype=np.float32)
            continue
        words = tuple(sorted({_word(value) for value in values}))
        index = {word: number for number, word in enumerate(words)}
        categories[name] = words
        for split, part in every.items():
            found[split][name] = np.array([index[_word(value)] for value in part], np.int64)
    return found, categories


def _are_numbers(values: Iterable[Any]) -> bool:
    known = [value for value in values if not _is_empty(value)]
    try:
        return bool(known) and all(math.isfinite(float(value)) for value in known)
    except ValueError:
        return False


def _is_empty(value: Any) -> bool:
    return value is None or value == ""


def _word(value: Any) -> str:
    return "" if value is None else str(value)
