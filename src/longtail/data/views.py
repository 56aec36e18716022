"""How an image is looked at: as it is, cropped and flipped, or twice; `augmentations` has the
stronger
ways.

A view is a function of (image, parameters). The loader draws the parameters of a whole epoch at
once, one row for each draw, so nothing depends on which process or worker does the work. Images go
in as RGB pictures, and come out as uint8 squares of one size."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

import numpy as np
import torch
from numpy.lib.stride_tricks import sliding_window_view
from PIL import Image
from torch import Tensor

from longtail.errors import LongtailError

Array = np.ndarray[Any, np.dtype[Any]]


class View(Protocol):
    """Draws its parameters from a generator, and is a function of image and parameters."""

    @property
    def size(self) -> int:
        """The side of the square that comes out, in pixels."""
        ...

    def parameters(self, rng: np.random.Generator, rows: int) -> Array:
        """One row of integers for each draw of an epoch."""
        ...

    def __call__(self, image: Image.Image, parameters: Array) -> Tensor:
        """The image as uint8 (3, size, size), given its row of parameters."""
        ...


@runtime_checkable
class Batched(Protocol):
    """A view that can also be applied to many images of its own size at once; the answer is the
    same.
    """

    def batch(self, pixels: Array, parameters: Array) -> Array:
        """The images as uint8 (N, 3, size, size), given as many, and a row of parameters for each."""
        ...


def to_tensor(image: Image.Image) -> Tensor:
    """An RGB picture as uint8 (3, H, W)."""
    return torch.from_numpy(np.array(image)).permute(2, 0, 1).contiguous()


def fitted(image: Image.Image, size: int, resize: int) -> Image.Image:
    """The central square of `size`, after the shorter side was made `resize`; rounded as
    torchvision's Resize and CenterCrop do.
    """
    width, height = image.size
    # A ribbon: all of it, enlarged, would not fit into memory
    if max(width, height) > 32 * min(width, height):
        side = min(width, height)
        left, top = (width - side) // 2, (height - side) // 2
        image = image.crop((left, top, left + side, top + side))
        width, height = image.size
    if min(width, height) != resize:
        shorter = min(width, height)
        image = image.resize(
            (resize * width // shorter, resize * height // shorter), Image.Resampling.BICUBIC
        )
    if image.size == (size, size):
        return image
    left, top = round((image.width - size) / 2), round((image.height - size) / 2)
    return image.crop((left, top, left + size, top + size))


def check_size(size: int) -> None:
    """Refuse a side without pixels."""
    if size < 1:
        raise LongtailError(f"size must be at least 1 pixel, got {size}")


@dataclass(frozen=True)
class CenterCrop:
    """The image as it is evaluated: its central square, of which the share `crop` is seen, resized.

    An image that already has the size passes untouched. ImageNet's usual evaluation is
    `CenterCrop(224, crop=0.875)`: the shorter side becomes 256, then 224 pixels are cut out."""

    size: int
    crop: float = 1.0

    def __post_init__(self) -> None:
        check_size(self.size)
        if not 0 < self.crop <= 1:
            raise LongtailError(f"crop must be a share of the image in (0, 1], got {self.crop}")

    def parameters(self, rng: np.random.Generator, rows: int) -> Array:
        """Nothing is drawn."""
        return np.zeros((rows, 0), dtype=np.int64)

    def __call__(self, image: Image.Image, parameters: Array | None = None) -> Tensor:
        """The image as uint8 (3, size, size)."""
        return to_tensor(fitted(image, self.size, int(self.size / self.crop)))

    def batch(self, pixels: Array, parameters: Array) -> Array:
        """The images as they are, unless a part of them was asked for."""
        if self.crop == 1:
            return pixels
        return np.stack(
            [self(Image.fromarray(np.moveaxis(image, 0, 2))).numpy() for image in pixels]
        )


@dataclass(frozen=True)
class CropFlip:
    """Crop after reflecting `pad` pixels at each side, flip left-right, cut out a square: the usual
    view of CIFAR.

    The square (DeVries & Taylor, 2017) has a side of `cutout` pixels, a centre anywhere in the
    image, and the colour `fill`: 128 is about what they use, zero after normalisation. Digits and
    everything else that has a handedness need `flip=False`."""

    size: int
    pad: int = 4
    flip: bool = True
    cutout: int = 0
    fill: int = 128

    def __post_init__(self) -> None:
        check_size(self.size)
        if not 0 <= self.pad < self.size:
            raise LongtailError(
                f"pad must be in [0, size) because pixels are reflected, got pad {self.pad} and"
                f" size {self.size}"
            )
        if self.cutout < 0:
            raise LongtailError(
                f"cutout must be a side in pixels, or 0 for none, got {self.cutout}"
            )

    def parameters(self, rng: np.random.Generator, rows: int) -> Array:
        """Columns: top and left of the crop, flipped or not, row and column of the cut-out square's
        centre.
        """
        shift = rng.integers(2 * self.pad + 1, size=(rows, 2))
        flipped = rng.integers(2, size=(rows, 1)) * self.flip
        centre = rng.integers(self.size, size=(rows, 2))
        return np.hstack([shift, flipped, centre])

    def __call__(self, image: Image.Image, parameters: Array) -> Tensor:
        """The image as uint8 (3, size, size), given its row of parameters."""
        pixels = to_tensor(fitted(image, self.size, self.size)).numpy()
        return torch.from_numpy(self.batch(pixels[None], parameters[None])[0])

    def batch(self, pixels: Array, parameters: Array) -> Array:
        """The same for many images at once, a few microseconds each."""
        top, left, flipped, row, column = parameters.T
        edges = (self.pad, self.pad)
        padded = np.pad(pixels, ((0, 0), (0, 0), edges, edges), mode="reflect")
        # Windows are a view without a copy, and taking one of them for each image copies whole
        # lines: 5 times faster than torch's indexing.
        image: Array = sliding_window_view(padded, (self.size, self.size), axis=(2, 3))[
            np.arange(len(pixels)), :, top, left
        ]
        mirrored = flipped.astype(bool)
        image[mirrored] = image[mirrored][..., ::-1]
        if self.cutout:
            line = np.arange(self.size)
            rows, columns = (
                (line >= middle[:, None] - self.cutout // 2)
                & (line < middle[:, None] + (self.cutout + 1) // 2)
                for middle in (row, column)
            )
            np.copyto(
                image, np.uint8(self.fill), where=(rows[:, :, None] & columns[:, None, :])[:, None]
            )
        return image


@dataclass(frozen=True)
class TwoViews:
    """Two views of each image, for contrastive work: (2, 3, size, size), which the loader splits
    into `view1` and `view2`.
    """

    first: View
    second: View

    def __post_init__(self) -> None:
        if self.first.size != self.second.size:
            raise LongtailError(
                f"both views must have one size, got {self.first.size} and {self.second.size}"
            )

    @property
    def size(self) -> int:
        """The side of both squares, in pixels."""
        return self.first.size

    def parameters(self, rng: np.random.Generator, rows: int) -> Array:
        """The columns of the first view, then those of the second, then how many the first has."""
        first, second = self.first.parameters(rng, rows), self.second.parameters(rng, rows)
        return np.hstack([first, second, np.full((rows, 1), first.shape[1])])

    def __call__(self, image: Image.Image, parameters: Array) -> Tensor:
        """Both views as uint8 (2, 3, size, size), given their row of parameters."""
        columns = int(parameters[-1])
        return torch.stack(
            [self.first(image, parameters[:columns]), self.second(image, parameters[columns:-1])]
        )
