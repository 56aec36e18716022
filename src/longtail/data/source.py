"""`Source` and `Rows`: what a reader returns, before any split is held out."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from longtail.core import Scorer
from longtail.data.columns import Columns
from longtail.data.images.stores import ImageStore
from longtail.data.request import Geometry, Pairs
from longtail.deprecated import renamed_attribute
from longtail.errors import LongtailError
from longtail.records.groups import Groups


@dataclass(frozen=True)
class Rows:
    """Labelled images or feature vectors of one split, before anything is held out.

    `digests` are SHA-256 of each row's content: the pixels of arrays, the bytes of files.
    """

    inputs: ImageStore
    target: NDArray[np.int64]
    ids: tuple[str, ...]
    digests: tuple[bytes, ...] = ()  # empty until the content has been read
    columns: Columns = field(default_factory=dict)  # besides the class; one row per image

    pictures = renamed_attribute("pictures", "inputs")

    def __len__(self) -> int:
        return len(self.target)

    def take(self, rows: NDArray[np.int64]) -> Rows:
        """Select rows, in the given order."""
        selected: list[int] = rows.tolist()
        digests = tuple(self.digests[row] for row in selected) if self.digests else ()
        return Rows(
            self.inputs.take(rows),
            self.target[rows],
            tuple(self.ids[row] for row in selected),
            digests,
            {name: values[rows] for name, values in self.columns.items()},
        )

    def join(self, other: Rows) -> Rows:
        """Return these rows followed by others with the same columns, before images are read."""
        columns = {
            name: np.concatenate([values, other.columns[name]])
            for name, values in self.columns.items()
        }
        return Rows(
            self.inputs.join(other.inputs),
            np.concatenate([self.target, other.target]),
            self.ids + other.ids,
            self.digests + other.digests,
            columns,
        )


@dataclass(frozen=True)
class Source:
    """A dataset as it is published: its splits, and its classes in their order."""

    name: str
    classes: tuple[str, ...]
    splits: Mapping[str, Rows]  # always "train"; "val" and "test" where the source has them
    grouping: Callable[[Sequence[int]], Groups]
    size: int | None = None  # side in pixels; None: chosen from the images
    native: int | None = None  # the size that would have been chosen
    mirror: bool = True  # whether a horizontal flip keeps the class
    geometry: Geometry = "pad"  # how images become squares, unless requested otherwise
    crop: float = 1.0  # share of the central square that is evaluated, with the geometry "crop"
    caveats: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()
    categories: Mapping[str, tuple[str, ...]] = field(default_factory=dict)  # see `Dataset`
    class_attributes: Columns = field(default_factory=dict)  # see `Dataset`
    word_vectors: Mapping[str, NDArray[np.float32]] = field(default_factory=dict)  # see `Dataset`
    pairs: Pairs = "closed"  # see `Dataset`
    scorer: Scorer | None = None  # see `Dataset`
    test_domain: str | None = None  # see `Dataset`


def split_named(word: str) -> str | None:
    """Map the name of a folder, shard or cell to a split, or to None if it names no split.

    >>> split_named("validation"), split_named("Test"), split_named("cats")
    ('val', 'test', None)
    """
    return {
        "train": "train",
        "val": "val",
        "valid": "val",
        "validation": "val",
        "test": "test",
    }.get(word.lower())


def several(items: Iterable[object], *, shown: int = 5) -> str:
    """List the first few items, and how many more there are.

    >>> several(["a", "b", "c"], shown=2)
    'a, b and 1 more'
    """
    words = [str(item) for item in items]
    rest = f" and {len(words) - shown:,} more" if len(words) > shown else ""
    return ", ".join(words[:shown]) + rest


def numbered_classes(
    labels: Mapping[str, NDArray[np.int64]], names: Sequence[str] | None, *, where: str
) -> tuple[str, ...]:
    """Return class names for integer labels, which must be 0, 1, ... without gaps.

    With `names`, every label must be below their number instead.
    """
    used = np.unique(np.concatenate(list(labels.values())))
    below = used[used < 0]
    if len(below):
        raise LongtailError(
            f"{where}: expected labels of 0 or more, got {several(below)}. Number the classes 0, 1,"
            " 2, ..."
        )
    if names is not None:
        above = used[used >= len(names)]
        if len(above):
            raise LongtailError(
                f"{where}: expected labels 0 to {len(names) - 1} ({len(names)} classes are named),"
                f" got {several(above)}. Correct the labels or the class names."
            )
        return tuple(names)
    missing = sorted(set(range(int(used[-1]) + 1)) - set(used.tolist()))
    if missing:
        raise LongtailError(
            f"{where}: expected labels 0 to {int(used[-1])} without gaps, got no image of label"
            f" {several(missing)}. Number the classes 0, 1, 2, ... or use class names as labels in"
            " a .csv."
        )
    return tuple(str(label) for label in used.tolist())
