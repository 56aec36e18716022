"""What every source becomes: three splits, class names in a fixed order, counts, groups, a hash."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal, Protocol, Self

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image
from torch import Tensor

from longtail.core import Groups, Scorer
from longtail.errors import LongtailError


class ImageSource(Protocol):
    """Where the pixels of a split come from."""

    def __len__(self) -> int: ...

    def image(self, index: int) -> Image.Image:
        """One picture, decoded, upright, RGB."""
        ...


class ImageStore(ImageSource, Protocol):
    """Pictures from which some can be taken."""

    def take(self, rows: NDArray[np.int64]) -> Self:
        """The pictures of these rows, in this order."""
        ...


@dataclass(frozen=True)
class ArrayImages:
    """Pictures of one size, held as uint8 (N, 3, H, W)."""

    pixels: Tensor
    original: ImageStore | None = None  # the same at their own size

    def __post_init__(self) -> None:
        if self.pixels.dtype != torch.uint8 or self.pixels.ndim != 4 or self.pixels.shape[1] != 3:
            raise LongtailError(
                f"expected pixels as uint8 (N, 3, H, W), got {self.pixels.dtype} {tuple(self.pixels.shape)}"
            )

    def __len__(self) -> int:
        return len(self.pixels)

    def image(self, index: int) -> Image.Image:
        """One picture, decoded, upright, RGB."""
        return Image.fromarray(self.pixels[index].permute(1, 2, 0).numpy())

    def take(self, rows: NDArray[np.int64]) -> ArrayImages:
        """The pictures of these rows, in this order."""
        chosen = torch.from_numpy(rows)
        return ArrayImages(
            self.pixels[chosen], None if self.original is None else self.original.take(rows)
        )


@dataclass(frozen=True)
class Split:
    """Pictures with their classes and a name for each that a person can find again."""

    pictures: ImageSource
    target: Tensor  # int64 (N,)
    ids: tuple[str, ...]
    crop: float = 1.0  # the share of a picture's central square that evaluation sees

    def __post_init__(self) -> None:
        if not len(self.pictures) == len(self.target) == len(self.ids):
            numbers = f"{len(self.pictures)}, {len(self.target)} and {len(self.ids)}"
            raise LongtailError(f"expected as many pictures as targets and ids, got {numbers}")

    def __len__(self) -> int:
        return len(self.target)


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
    marks: tuple[str, ...] = ()  # stand on every row: "counts conventional, images not"
    warnings: tuple[str, ...] = ()  # said once when the data is opened
    scorer: Scorer | None = None  # brought by data that is scored in a way of its own
    scoring: str | None = (
        None  # the score that was requested as the headline, where not the usual one
    )

    def at_native_resolution(self) -> Dataset:
        """The same at the images' own size, with the pixels that they had before they were resized in memory, where they were."""

        def own(split: Split) -> Split:
            original = getattr(split.pictures, "original", None)
            return split if original is None else replace(split, pictures=original)

        return replace(
            self,
            train=own(self.train),
            val=own(self.val),
            test=own(self.test),
            size=self.native or self.size,
        )
