"""How an image is looked at: crops, flips, colours, erased squares.

A view is a function of (image, parameters). The loader draws the parameters of a whole epoch at once, one row for each draw,
so nothing depends on which process or worker does the work. Images go in as RGB pictures, and come out as uint8 squares of one size.
"""

from __future__ import annotations

import random
from abc import ABC, abstractmethod
from dataclasses import dataclass
from functools import cache
from typing import Any, Protocol, runtime_checkable

import numpy as np
import torch
from numpy.lib.stride_tricks import sliding_window_view
from PIL import Image, ImageFilter
from timm.data.auto_augment import auto_augment_transform, rand_augment_transform
from timm.data.constants import IMAGENET_DEFAULT_MEAN, IMAGENET_DEFAULT_STD
from timm.data.random_erasing import RandomErasing
from timm.data.transforms import RandomResizedCropAndInterpolation
from torch import Tensor
from torchvision import transforms
from torchvision.transforms import v2

Array = np.ndarray[Any, np.dtype[Any]]
_MEAN, _DEVIATION = torch.tensor(IMAGENET_DEFAULT_MEAN)[:, None, None], torch.tensor(IMAGENET_DEFAULT_STD)[:, None, None]


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
    """A view that can also be applied to many images of its own size at once; the answer is the same."""

    def batch(self, pixels: Array, parameters: Array) -> Array:
        """The images as uint8 (N, 3, size, size), given as many, and a row of parameters for each."""
        ...


class Seeded(ABC):
    """A view made of transforms that read the global generators of torch, numpy and `random`: its parameter is a seed.

    To write your own, derive from this and write `look`.
    """

    def parameters(self, rng: np.random.Generator, rows: int) -> Array:
        """A seed for each draw."""
        return rng.integers(2**63, size=(rows, 1))

    def __call__(self, image: Image.Image, parameters: Array) -> Tensor:
        """The image as uint8 (3, size, size), given its seed. Leaves the global generators at another place."""
        seed = int(parameters[0])
        random.seed(seed)
        np.random.seed(seed % 2**32)  # noqa: NPY002 (timm reads numpy's global generator)
        torch.default_generator.manual_seed(seed)  # torch.manual_seed would reach for the GPUs, and formats a stack trace each time
        return self.look(image)

    @abstractmethod
    def look(self, image: Image.Image) -> Tensor:
        """The image as uint8 (3, size, size); draws from the global generators."""


def _tensor(image: Image.Image) -> Tensor:
    return torch.from_numpy(np.array(image)).permute(2, 0, 1).contiguous()


def _fitted(image: Image.Image, size: int, resize: int) -> Image.Image:
    """The central square of `size`, after the shorter side was made `resize`; rounded as torchvision's Resize and CenterCrop do."""
    width, height = image.size
    if max(width, height) > 32 * min(width, height):  # a ribbon: all of it, enlarged, would not fit into memory
        side = min(width, height)
        left, top = (width - side) // 2, (height - side) // 2
        image = image.crop((left, top, left + side, top + side))
        width, height = image.size
    if min(width, height) != resize:
        shorter = min(width, height)
        image = image.resize((resize * width // shorter, resize * height // shorter), Image.Resampling.BICUBIC)
    if image.size == (size, size):
        return image
    left, top = round((image.width - size) / 2), round((image.height - size) / 2)
    return image.crop((left, top, left + size, top + size))


def _positive_size(size: int) -> None:
    if size < 1:
        raise ValueError(f"size must be at least 1 pixel, got {size}")


@dataclass(frozen=True)
class Plain:
    """The image as it is evaluated: its central square, of which the share `crop` is seen, resized.

    An image that already has the size passes untouched. ImageNet's usual evaluation is `Plain(224, crop=0.875)`: the shorter side becomes
    256, then 224 pixels are cut out.
    """

    size: int
    crop: float = 1.0

    def __post_init__(self) -> None:
        _positive_size(self.size)
        if not 0 < self.crop <= 1:
            raise ValueError(f"crop must be a share of the image in (0, 1], got {self.crop}")

    def parameters(self, rng: np.random.Generator, rows: int) -> Array:
        """Nothing is drawn."""
        return np.zeros((rows, 0), dtype=np.int64)

    def __call__(self, image: Image.Image, parameters: Array | None = None) -> Tensor:
        """The image as uint8 (3, size, size)."""
        return _tensor(_fitted(image, self.size, int(self.size / self.crop)))

    def batch(self, pixels: Array, parameters: Array) -> Array:
        """The images as they are, unless a part of them was asked for."""
        if self.crop == 1:
            return pixels
        return np.stack([self(Image.fromarray(np.moveaxis(image, 0, 2))).numpy() for image in pixels])


@dataclass(frozen=True)
class Weak:
    """Crop after reflecting `pad` pixels at each side, flip left-right, cut out a square: the usual view of CIFAR.

    The square (DeVries & Taylor, 2017) has a side of `cutout` pixels, a centre anywhere in the image, and the colour `fill`:
    128 is about what they use, zero after normalisation. Digits and everything else that has a handedness need `flip=False`.
    """

    size: int
    pad: int = 4
    flip: bool = True
    cutout: int = 0
    fill: int = 128

    def __post_init__(self) -> None:
        _positive_size(self.size)
        if not 0 <= self.pad < self.size:
            raise ValueError(f"pad must be in [0, size) because pixels are reflected, got pad {self.pad} and size {self.size}")
        if self.cutout < 0:
            raise ValueError(f"cutout must be a side in pixels, or 0 for none, got {self.cutout}")

    def parameters(self, rng: np.random.Generator, rows: int) -> Array:
        """Columns: top and left of the crop, flipped or not, row and column of the cut-out square's centre."""
        shift = rng.integers(2 * self.pad + 1, size=(rows, 2))
        flipped = rng.integers(2, size=(rows, 1)) * self.flip
        centre = rng.integers(self.size, size=(rows, 2))
        return np.hstack([shift, flipped, centre])

    def __call__(self, image: Image.Image, parameters: Array) -> Tensor:
        """The image as uint8 (3, size, size), given its row of parameters."""
        pixels = _tensor(_fitted(image, self.size, self.size)).numpy()
        return torch.from_numpy(self.batch(pixels[None], parameters[None])[0])

    def batch(self, pixels: Array, parameters: Array) -> Array:
        """The same for many images at once, a few microseconds each."""
        top, left, flipped, row, column = parameters.T
        edges = (self.pad, self.pad)
        padded = np.pad(pixels, ((0, 0), (0, 0), edges, edges), mode="reflect")
        # Windows are a view without a copy, and taking one of them for each image copies whole lines: 5 times faster than torch's indexing.
        image: Array = sliding_window_view(padded, (self.size, self.size), axis=(2, 3))[np.arange(len(pixels)), :, top, left]
        mirrored = flipped.astype(bool)
        image[mirrored] = image[mirrored][..., ::-1]
        if self.cutout:
            line = np.arange(self.size)
            rows, columns = (
                (line >= middle[:, None] - self.cutout // 2) & (line < middle[:, None] + (self.cutout + 1) // 2) for middle in (row, column)
            )
            np.copyto(image, np.uint8(self.fill), where=(rows[:, :, None] & columns[:, None, :])[:, None])
        return image


@cache
def _part(size: int, scale: tuple[float, float], interpolation: str) -> Any:
    return RandomResizedCropAndInterpolation(size, scale=scale, interpolation=interpolation)  # type: ignore[no-untyped-call]


@cache
def _reflected(size: int, pad: int) -> Array:
    return np.pad(np.arange(size), pad, mode="reflect")


def _shifted(image: Image.Image, size: int, pad: int) -> Image.Image:
    """The image resized to `size`, then moved by up to `pad` pixels, with reflected edges."""
    rows, columns = (_reflected(size, pad)[start : start + size] for start in (random.randint(0, 2 * pad), random.randint(0, 2 * pad)))
    return Image.fromarray(np.asarray(_fitted(image, size, size))[rows[:, None], columns])


def _flipped(image: Image.Image) -> Image.Image:
    return image.transpose(Image.Transpose.FLIP_LEFT_RIGHT) if random.random() < 0.5 else image


@cache
def _cifar_policy() -> Any:
    return v2.AutoAugment(v2.AutoAugmentPolicy.CIFAR10, fill=128)


def _timm_settings(size: int) -> dict[str, Any]:
    return {
        "translate_const": int(size * 0.45),
        "img_mean": tuple(round(255 * value) for value in IMAGENET_DEFAULT_MEAN),
        "interpolation": Image.Resampling.BICUBIC,
    }


@cache
def _rand_augment(ops: str, size: int) -> Any:
    return rand_augment_transform(ops, _timm_settings(size))


@cache
def _three_augment(size: int) -> Any:
    return auto_augment_transform("3a", _timm_settings(size))


@cache
def _jitter(strength: float, hue: float) -> Any:
    return transforms.ColorJitter(strength, strength, strength, hue)


@dataclass(frozen=True)
class CifarAutoAugment(Seeded):
    """Crop, flip, AutoAugment's policy for CIFAR-10 (Cubuk et al., 2019), then a square cut out: the strong view of CIFAR.

    The cut-out square is black, as in the released code of Balanced Softmax and PaCo, which cut before they normalise.
    """

    size: int
    cutout: int = 16
    pad: int = 4
    flip: bool = True
    fill: int = 0

    def __post_init__(self) -> None:
        Weak(self.size, pad=self.pad, cutout=self.cutout)  # the same limits

    def look(self, image: Image.Image) -> Tensor:
        """The image as uint8 (3, size, size); draws from the global generators."""
        image = _shifted(image, self.size, self.pad)
        pixels = _tensor(_cifar_policy()(_flipped(image) if self.flip else image))
        if self.cutout:
            row, column = random.randrange(self.size), random.randrange(self.size)
            half, rest = self.cutout // 2, (self.cutout + 1) // 2
            pixels[:, max(row - half, 0) : row + rest, max(column - half, 0) : column + rest] = self.fill
        return pixels


@dataclass(frozen=True)
class Rotated(Seeded):
    """Shifted crop, flip, then a turn by up to `degrees` either way: RIDE's view of CIFAR (Wang et al., 2021). Corners become black."""

    size: int
    pad: int = 4
    degrees: float = 15.0
    flip: bool = True

    def __post_init__(self) -> None:
        Weak(self.size, pad=self.pad)  # the same limits
        if not 0 <= self.degrees <= 180:
            raise ValueError(f"degrees must be in [0, 180], got {self.degrees}")

    def look(self, image: Image.Image) -> Tensor:
        """The image as uint8 (3, size, size); draws from the global generators."""
        image = _shifted(image, self.size, self.pad)
        image = _flipped(image) if self.flip else image
        return _tensor(image.rotate(random.uniform(-self.degrees, self.degrees)))


@dataclass(frozen=True)
class ResizedCrop(Seeded):
    """A random part of the image, resized (bicubic) and flipped: the view of masked autoencoding (He et al., 2022)."""

    size: int
    scale: tuple[float, float] = (0.2, 1.0)
    flip: bool = True

    def __post_init__(self) -> None:
        _positive_size(self.size)

    def look(self, image: Image.Image) -> Tensor:
        """The image as uint8 (3, size, size); draws from the global generators."""
        image = _part(self.size, self.scale, "bicubic")(image)
        return _tensor(_flipped(image) if self.flip else image)


@dataclass(frozen=True)
class RandAugment(Seeded):
    """A random part, flip, RandAugment, random erasing: the view of DeiT, and of LiVT's second stage.

    RandAugment (Cubuk et al., 2020) is timm's, in timm's spelling; rotations and shears are bicubic and filled with ImageNet's mean colour.
    Erased pixels are noise with ImageNet's mean and deviation, which is timm's "pixel" mode after normalisation.
    """

    size: int
    ops: str = "rand-m9-mstd0.5-inc1"
    erase: float = 0.25
    scale: tuple[float, float] = (0.08, 1.0)
    flip: bool = True

    def __post_init__(self) -> None:
        _positive_size(self.size)
        if not self.ops.startswith("rand-"):
            raise ValueError(f"ops must be in timm's spelling, such as 'rand-m9-mstd0.5-inc1', got {self.ops!r}")
        if not 0 <= self.erase <= 1:
            raise ValueError(f"erase must be a probability, got {self.erase}")
        _rand_augment(self.ops, self.size)  # a misspelt part fails here and not in a loader worker

    def look(self, image: Image.Image) -> Tensor:
        """The image as uint8 (3, size, size); draws from the global generators."""
        image = _part(self.size, self.scale, "bicubic")(image)
        image = _rand_augment(self.ops, self.size)(_flipped(image) if self.flip else image)
        return _erased(_tensor(image), self.erase)


@cache
def _eraser(probability: float) -> Any:
    return RandomErasing(probability, mode="pixel", device="cpu")  # type: ignore[no-untyped-call]


def _erased(pixels: Tensor, probability: float) -> Tensor:
    # timm erases normalised floats. Erasing an empty canvas tells where it did and with what, and the image stays uint8.
    canvas: Tensor = _eraser(probability)(torch.full(pixels.shape, torch.nan))
    hit = ~canvas.isnan()
    if hit.any():
        pixels[hit] = (255 * (canvas * _DEVIATION + _MEAN))[hit].round().clamp(0, 255).to(torch.uint8)
    return pixels


@dataclass(frozen=True)
class ThreeAugment(Seeded):
    """Shifted crop, flip, one of grey, solarize and blur, then colour jitter: the view of DeiT III (Touvron et al., 2022)."""

    size: int
    pad: int = 4
    jitter: float = 0.3
    flip: bool = True

    def __post_init__(self) -> None:
        Weak(self.size, pad=self.pad)  # the same limits

    def look(self, image: Image.Image) -> Tensor:
        """The image as uint8 (3, size, size); draws from the global generators."""
        image = _shifted(image, self.size, self.pad)
        image = _three_augment(self.size)(_flipped(image) if self.flip else image)
        return _tensor(_jitter(self.jitter, 0.0)(image))


@dataclass(frozen=True)
class SimClr(Seeded):
    """A random part, flip, colour jitter, grey, blur: the view of SimCLR as MoCo v2 uses it (Chen et al., 2020).

    `blur` is how often; the radius is drawn from 0.1 to 2 pixels. PaCo's code for CIFAR has no blur: `SimClr(32, blur=0)`.
    """

    size: int
    scale: tuple[float, float] = (0.2, 1.0)
    jitter: float = 0.4
    blur: float = 0.5
    flip: bool = True

    def __post_init__(self) -> None:
        _positive_size(self.size)
        if not 0 <= self.blur <= 1:
            raise ValueError(f"blur must be a probability, got {self.blur}")

    def look(self, image: Image.Image) -> Tensor:
        """The image as uint8 (3, size, size); draws from the global generators."""
        image = _part(self.size, self.scale, "bilinear")(image)
        image = _flipped(image) if self.flip else image
        if random.random() < 0.8:
            image = _jitter(self.jitter, self.jitter / 4)(image)
        if random.random() < 0.2:
            image = image.convert("L").convert("RGB")
        if random.random() < self.blur:
            image = image.filter(ImageFilter.GaussianBlur(random.uniform(0.1, 2.0)))  # torchvision's is 20 times slower on a CPU
        return _tensor(image)


@dataclass(frozen=True)
class TwoViews:
    """Two views of each image, for contrastive work: (2, 3, size, size), which the loader splits into `view1` and `view2`."""

    first: View
    second: View

    def __post_init__(self) -> None:
        if self.first.size != self.second.size:
            raise ValueError(f"both views must have one size, got {self.first.size} and {self.second.size}")

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
        return torch.stack([self.first(image, parameters[:columns]), self.second(image, parameters[columns:-1])])
