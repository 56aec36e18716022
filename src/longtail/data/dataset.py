"""What every source becomes: three splits, class names in a fixed order, counts, groups, a hash."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from longtail.core import Scorer
from longtail.data.columns import check_columns
from longtail.data.images.stores import ImageStore
from longtail.data.request import Geometry
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
        """These rows, in this order."""
        return replace(
            self,
            inputs=self.inputs.take(rows),
            target=self.target[torch.from_numpy(rows)],
            ids=tuple(self.ids[row] for row in rows.tolist()),
            columns={name: own[torch.from_numpy(rows)] for name, own in self.columns.items()},
        )


@dataclass(frozen=True)
class Dataset:
    """A long-tailed dataset, ready for any recipe. A split that does not exist has no rows."""

    name: str
    classes: tuple[str, ...]
    train: Split
    val: Split
    test: Split
    counts: Tensor  # int64 (C,): training images per class, after holdout; what priors are made of
    source_counts: (
        Tensor  # int64 (C,): training images per class before holdout; what groups are made of
    )
    groups: Groups
    size: int  # pixels: the side of the square that networks see, unless a recipe says otherwise
    hash: str  # of all (image content, label) pairs of the three splits
    protocol: Literal["holdout", "paper"]
    native: int | None = (
        None  # pixels: that of the images themselves, where another side was asked for
    )
    mirror: bool = True  # whether a mirrored image is still one of its class; digits are not
    geometry: Geometry = "pad"  # how images that are not square become squares
    caveats: tuple[str, ...] = ()  # stand on every row: "counts conventional, images not"
    warnings: tuple[str, ...] = ()  # said once when the data is opened
    categories: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """What the integers in a column, or in an attribute of classes, mean."""
    class_attributes: Mapping[str, Tensor] = field(default_factory=dict)
    """What is known of each class, one row per class; a class may then have no training image."""
    scorer: Scorer | None = None  # brought by data that is scored in a way of its own
    scoring: str | None = (
        None  # the score that was requested as the headline, where not the usual one
    )

    @property
    def has_vectors(self) -> bool:
        """Whether rows are feature vectors (N, size) instead of images."""
        return self.train.inputs.vectors() is not None

    def at_native_resolution(self) -> Dataset:
        """The same data at its native resolution, where another size was requested."""

        def native(split: Split) -> Split:
            return replace(split, inputs=split.inputs.at_native_resolution())

        return replace(
            self,
            train=native(self.train),
            val=native(self.val),
            test=native(self.test),
            size=self.native or self.size,
        )
