"""`Source` and `Rows`: what a reader returns, before any split is held out."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice, pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from longtail.core import Scorer
from longtail.data.columns import Columns
from longtail.data.dataset import FeatureBackbone
from longtail.data.images.stores import ImageStore
from longtail.data.request import Geometry, Pairs
from longtail.deprecated import renamed_attribute
from longtail.errors import LongtailError
from longtail.records.groups import Groups

LEAST_ID = 1000
"""Integer labels from here on may be ids: see `numbered_targets`."""


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
    pretraining: str | None = None  # see `Dataset`
    backbone: FeatureBackbone | None = None  # see `Dataset`


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


def listing(items: Iterable[object], *, shown: int = 5) -> str:
    """List the first few items, and how many more there are.

    >>> listing(["a", "b", "c"], shown=2)
    'a, b and 1 more'
    """
    words = [str(item) for item in items]
    rest = f" and {len(words) - shown:,} more" if len(words) > shown else ""
    return ", ".join(words[:shown]) + rest


def check_finite(vectors: NDArray[np.float32], *, where: str) -> None:
    """Raise unless all features (N, D) are finite."""
    if nonfinite := int((~np.isfinite(vectors)).any(axis=1).sum()):
        raise LongtailError(
            f"{where}: features must be finite, got NaN or infinity in {nonfinite:,} rows."
        )


def numbered_targets(
    labels: Mapping[str, Sequence[int]], names: Sequence[str] | None, *, where: str
) -> tuple[tuple[str, ...], dict[str, NDArray[np.int64]]]:
    """Classes from integer labels, and the class index of each row.

    Labels are 0, 1, ... without gaps, or below the number of `names`. Without names, labels that
    are much larger than their number are ids, and become names of classes.
    """
    used = sorted({label for part in labels.values() for label in part})
    below = [label for label in used if label < 0]
    if below:
        raise LongtailError(
            f"{where}: expected labels of 0 or more, got {listing(below)}. Number the classes 0, 1,"
            " 2, ..."
        )
    if names is not None:
        above = [label for label in used if label >= len(names)]
        if above:
            raise LongtailError(
                f"{where}: expected labels 0 to {len(names) - 1} ({len(names)} classes are named),"
                f" got {listing(above)}. Correct the labels or the class names."
            )
    elif used[-1] >= max(LEAST_ID, 10 * len(used)):
        return named_targets(labels)
    elif gaps := used[-1] + 1 - len(used):
        first = [*islice(_missing(used), 5)]
        more = f" and {gaps - len(first):,} more" if gaps > len(first) else ""
        raise LongtailError(
            f"{where}: expected labels 0 to {used[-1]} without gaps, got no image of label"
            f" {', '.join(map(str, first))}{more}. Number the classes 0, 1, 2, ... or use class"
            " names as labels in a .csv."
        )
    targets = {split: np.array(part, dtype=np.int64) for split, part in labels.items()}
    return tuple(map(str, used) if names is None else names), targets


def _missing(used: Sequence[int]) -> Iterator[int]:
    """The integers from 0 on that are not in a sorted sequence."""
    for before, label in pairwise((-1, *used)):
        yield from range(before + 1, label)


def named_targets(
    labels: Mapping[str, Sequence[Any]],
) -> tuple[tuple[str, ...], dict[str, NDArray[np.int64]]]:
    """Classes from text labels, sorted by code point, and the class index of each row."""
    classes = tuple(sorted({str(label) for part in labels.values() for label in part}))
    index = {name: i for i, name in enumerate(classes)}
    return classes, {
        split: np.array([index[str(label)] for label in part], dtype=np.int64)
        for split, part in labels.items()
    }
