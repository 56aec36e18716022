"""`Dataset` and `Split`: what recipes train on, whatever the source of the data."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from longtail.core import Scorer
from longtail.data.columns import check_columns
from longtail.data.images.stores import ImageStore
from longtail.data.request import Geometry, Pairs, Protocol
from longtail.deprecated import renamed_attribute
from longtail.errors import LongtailError
from longtail.records.groups import Groups


@dataclass(frozen=True)
class Split:
    """Inputs (images or feature vectors) with their classes and ids."""

    inputs: ImageStore
    target: Tensor  # int64 (N,)
    ids: tuple[str, ...]
    crop: float = 1.0  # the share of an image's central square that is evaluated
    columns: Mapping[str, Tensor] = field(default_factory=dict)
    """Further labels of each row, such as "domain" (N,) or "boxes" (N, M, 4): in every batch."""

    pictures = renamed_attribute("pictures", "inputs")

    def __post_init__(self) -> None:
        check_columns(self.columns, len(self.target))
        if not len(self.inputs) == len(self.target) == len(self.ids):
            numbers = f"{len(self.inputs)}, {len(self.target)} and {len(self.ids)}"
            raise LongtailError(f"inputs, targets and ids must have equal lengths, got {numbers}")

    def __len__(self) -> int:
        return len(self.target)

    def take(self, rows: NDArray[np.int64]) -> Split:
        """Select rows, in the given order."""
        return replace(
            self,
            inputs=self.inputs.take(rows),
            target=self.target[torch.from_numpy(rows)],
            ids=tuple(self.ids[row] for row in rows.tolist()),
            columns={name: values[torch.from_numpy(rows)] for name, values in self.columns.items()},
        )


@dataclass(frozen=True)
class FeatureBackbone:
    """The network that computed the features of a file, and how it took the images."""

    file: Path  # the features file, which may also have the weights
    network: Mapping[str, Any]  # the network's spec
    size: int  # side of its images in pixels
    fit: Mapping[str, Any]  # how an image becomes a square, as a model's spec records it


@dataclass(frozen=True)
class Dataset:
    """A dataset ready for any recipe. A split that does not exist has no rows."""

    name: str
    classes: tuple[str, ...]
    train: Split
    val: Split
    test: Split
    counts: Tensor  # int64 (C,): training images per class after holdout, used for priors
    source_counts: Tensor  # int64 (C,): the same before holdout, used for groups
    groups: Groups
    size: int  # side of the network's input in pixels, unless a recipe sets another
    hash: str  # of all (image content, label) pairs of the three splits
    protocol: Protocol
    native: int | None = None  # side of the images in pixels, where another size was requested
    mirror: bool = True  # whether a horizontal flip keeps the class; for digits it does not
    geometry: Geometry = "pad"  # how images that are not square become squares
    caveats: tuple[str, ...] = ()  # shown with every result: "counts conventional, images not"
    warnings: tuple[str, ...] = ()  # printed once when the data is opened
    categories: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """The meaning of the integers in a column or in a class attribute."""
    class_attributes: Mapping[str, Tensor] = field(default_factory=dict)
    """Arrays with one row per class; with them, a class may have no training images."""
    word_vectors: Mapping[str, Tensor] = field(default_factory=dict)
    """One row for each category of a class attribute, such as "object": its word vector."""
    pairs: Pairs = "closed"  # which pairs of attribute and object can be predicted
    pretraining: str | None = None  # what the network that computed the features was trained on
    backbone: FeatureBackbone | None = None  # that network, where it is known
    scorer: Scorer | None = None  # for data that brings a scorer
    scoring: str | None = None  # the score requested as the headline; None: the scorer's default
    test_domain: str | None = None  # the test images are of this domain, training of others
    unlabelled: Split | None = None  # the test images with targets of -1, to adapt to

    @property
    def has_vectors(self) -> bool:
        """Whether rows are feature vectors (N, size) instead of images."""
        return self.train.inputs.vectors() is not None

    @property
    def evaluated(self) -> dict[str, Split]:
        """The splits "val" and "test", where they have rows."""
        splits = {"val": self.val, "test": self.test}
        return {name: split for name, split in splits.items() if len(split)}

    def at_native_resolution(self) -> Dataset:
        """Return the data at its native resolution, where another size was requested."""

        def native(split: Split) -> Split:
            inputs = split.inputs.at_native_resolution()
            # An image that is not enlarged is evaluated as it is
            complete = inputs.in_memory(self.native or self.size) is not None
            return replace(split, inputs=inputs, crop=1.0 if complete else split.crop)

        return replace(
            self,
            train=native(self.train),
            val=native(self.val),
            test=native(self.test),
            unlabelled=None if self.unlabelled is None else native(self.unlabelled),
            size=self.native or self.size,
        )
