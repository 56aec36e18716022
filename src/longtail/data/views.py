"""Views turn an image into a training or evaluation input: centre crop, crop and flip, two views.

`augmentations` has stronger ones. A view is a function of (image, parameters). The loader samples
the parameters of an epoch at once, one row for each position, so the result does not depend on the
process or worker that computes it. Inputs are RGB images, outputs are uint8 squares of one size.
"""

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
    """A function of an image and parameters, which it samples from a generator."""

    @property
    def size(self) -> int:
        """The side of the output, in pixels."""

    def parameters(self, rng: np.random.Generator, rows: int) -> Array:
        """Sample parameters: integers (rows, P), one row for each position of an epoch."""

    def __call__(self, image: Image.Image, parameters: Array) -> Tensor:
        """Return the view as uint8 (3, size, size), given the image's parameters (P,)."""


@runtime_checkable
class Batched(Protocol):
    """A view that also works on a batch of images of its size, with the same result."""

    def batch(self, pixels: Array, parameters: Array) -> Array:
        """Return the views of uint8 images (N, 3, size, size), given parameters (N, P)."""


def to_tensor(image: Image.Image) -> Tensor:
    """Convert an RGB image to uint8 (3, H, W)."""
    return torch.from_numpy(np.array(image)).permute(2, 0, 1).contiguous()


def fitted(image: Image.Image, size: int, resize: int) -> Image.Image:
    """Resize the shorter side to `resize`, then crop the central square of `size` pixels.

    Sizes are rounded as in torchvision's Resize and CenterCrop.
    """
    width, height = image.size
    # A very long image is cropped first: enlarged, it would not fit into memory
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
    """Raise unless the side has at least one pixel."""
    if size < 1:
        raise LongtailError(f"size must be at least 1 pixel, got {size}")


@dataclass(frozen=True)
class CenterCrop:
    """Evaluation view: resize, then keep the share `crop` of the central square.

    An image that already has the size is unchanged. The usual evaluation on ImageNet is
    `CenterCrop(224, crop=0.875)`: the shorter side becomes 256, then 224 pixels are cropped.
    """

    size: int
    crop: float = 1.0

    def __post_init__(self) -> None:
        check_size(self.size)
        if not 0 < self.crop <= 1:
            raise LongtailError(f"crop must be a share of the image in (0, 1], got {self.crop}")

    def parameters(self, rng: np.random.Generator, rows: int) -> Array:
        """Return no parameters: (rows, 0)."""
        return np.zeros((rows, 0), dtype=np.int64)

    def __call__(self, image: Image.Image, parameters: Array | None = None) -> Tensor:
        """Return the centre crop as uint8 (3, size, size)."""
        return to_tensor(fitted(image, self.size, int(self.size / self.crop)))

    def batch(self, pixels: Array, parameters: Array) -> Array:
        """Return the centre crops of images (N, 3, size, size)."""
        if self.crop == 1:
            return pixels
        return np.stack(
            [self(Image.fromarray(np.moveaxis(image, 0, 2))).numpy() for image in pixels]
        )


@dataclass(frozen=True)
class CropFlip:
    """Random crop after reflection padding, horizontal flip, Cutout: as usual for CIFAR.

    Cutout (DeVries & Taylor, 2017) fills a square of `cutout` pixels, whose centre is anywhere in
    the image, with `fill`; 128 is close to their zero after normalisation. Use `flip=False` for
    digits, text and other images whose class changes when mirrored.
    """

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
        """Sample (rows, 5): top and left of the crop, flip, row and column of Cutout's centre."""
        shift = rng.integers(2 * self.pad + 1, size=(rows, 2))
        flipped = rng.integers(2, size=(rows, 1)) * self.flip
        centre = rng.integers(self.size, size=(rows, 2))
        return np.hstack([shift, flipped, centre])

    def __call__(self, image: Image.Image, parameters: Array) -> Tensor:
        """Return the view as uint8 (3, size, size), given the image's parameters (P,)."""
        pixels = to_tensor(fitted(image, self.size, self.size)).numpy()
        return torch.from_numpy(self.batch(pixels[None], parameters[None])[0])

    def batch(self, pixels: Array, parameters: Array) -> Array:
        """Augment images (N, 3, size, size) at once, in a few microseconds each."""
        top, left, flipped, row, column = parameters.T
        edges = (self.pad, self.pad)
        padded = np.pad(pixels, ((0, 0), (0, 0), edges, edges), mode="reflect")
        # Windows are views, and indexing one per image copies contiguous lines: 5 times faster
        # than torch's indexing.
        image: Array = sliding_window_view(padded, (self.size, self.size), axis=(2, 3))[
            np.arange(len(pixels)), :, top, left
        ]
        flip = flipped.astype(bool)
        image[flip] = image[flip][..., ::-1]
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
    """Two views of each image, for contrastive learning.

    The result is (2, 3, size, size), which the loader splits into `view1` and `view2`.
    """

    first: View
    second: View

    def __post_init__(self) -> None:
        if self.first.size != self.second.size:
            raise LongtailError(
                f"both views must have the same size, got {self.first.size} and {self.second.size}"
            )

    @property
    def size(self) -> int:
        """The side of both outputs, in pixels."""
        return self.first.size

    def parameters(self, rng: np.random.Generator, rows: int) -> Array:
        """Sample the first view's columns, then the second's, then the number of the first's."""
        first, second = self.first.parameters(rng, rows), self.second.parameters(rng, rows)
        return np.hstack([first, second, np.full((rows, 1), first.shape[1])])

    def __call__(self, image: Image.Image, parameters: Array) -> Tensor:
        """Return both views as uint8 (2, 3, size, size), given their row of parameters."""
        columns = int(parameters[-1])
        return torch.stack(
            [self.first(image, parameters[:columns]), self.second(image, parameters[columns:-1])]
        )
