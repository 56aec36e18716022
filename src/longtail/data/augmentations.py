"""Strong views, made of timm's and torchvision's transforms: AutoAugment, RandAugment, 3-Augment,
SimCLR's and others.

They are in a file of their own because both libraries take seconds to import, and asking a network
needs none of it."""

from __future__ import annotations

import random
from abc import ABC, abstractmethod
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
import torch
from PIL import Image, ImageFilter
from timm.data.auto_augment import auto_augment_transform, rand_augment_transform
from timm.data.constants import IMAGENET_DEFAULT_MEAN, IMAGENET_DEFAULT_STD
from timm.data.random_erasing import RandomErasing
from timm.data.transforms import RandomResizedCropAndInterpolation
from torch import Tensor
from torchvision import transforms
from torchvision.transforms import v2

from longtail.data.views import Array, CropFlip, check_size, fitted, to_tensor
from longtail.errors import LongtailError

_MEAN, _DEVIATION = (
    torch.tensor(IMAGENET_DEFAULT_MEAN)[:, None, None],
    torch.tensor(IMAGENET_DEFAULT_STD)[:, None, None],
)


class Seeded(ABC):
    """A view made of transforms that read the global generators of torch, numpy and `random`: its
    parameter is a seed.

    To write your own, derive from this and write `look`.
    """

    def parameters(self, rng: np.random.Generator, rows: int) -> Array:
        """A seed for each draw."""
        return rng.integers(2**63, size=(rows, 1))

    def __call__(self, image: Image.Image, parameters: Array) -> Tensor:
        """The image as uint8 (3, size, size), given its seed. Leaves the global generators at
        another place.
        """
        seed = int(parameters[0])
        random.seed(seed)
        np.random.seed(seed % 2**32)  # noqa: NPY002 (timm reads numpy's global generator)
        # torch.manual_seed would reach for the GPUs, and formats a stack trace each time
        torch.default_generator.manual_seed(seed)
        return self.apply(image)

    @abstractmethod
    def apply(self, image: Image.Image) -> Tensor:
        """The image as uint8 (3, size, size); draws from the global generators."""


@cache
def _part(size: int, scale: tuple[float, float], interpolation: str) -> Any:
    return RandomResizedCropAndInterpolation(size, scale=scale, interpolation=interpolation)


@cache
def _reflected(size: int, pad: int) -> Array:
    return np.pad(np.arange(size), pad, mode="reflect")


def _shifted(image: Image.Image, size: int, pad: int) -> Image.Image:
    """The image resized to `size`, then moved by up to `pad` pixels, with reflected edges."""
    rows, columns = (
        _reflected(size, pad)[start : start + size]
        for start in (random.randint(0, 2 * pad), random.randint(0, 2 * pad))
    )
    return Image.fromarray(np.asarray(fitted(image, size, size))[rows[:, None], columns])


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
    """Crop, flip, AutoAugment's policy for CIFAR-10 (Cubuk et al., 2019), then a square cut out:
    the
    strong view of CIFAR.

    The cut-out square is black, as in the released code of Balanced Softmax and PaCo, which cut
    before they normalise."""

    size: int
    cutout: int = 16
    pad: int = 4
    flip: bool = True
    fill: int = 0

    def __post_init__(self) -> None:
        CropFlip(self.size, pad=self.pad, cutout=self.cutout)  # the same limits

    def apply(self, image: Image.Image) -> Tensor:
        """The image as uint8 (3, size, size); draws from the global generators."""
        image = _shifted(image, self.size, self.pad)
        pixels = to_tensor(_cifar_policy()(_flipped(image) if self.flip else image))
        if self.cutout:
            row, column = random.randrange(self.size), random.randrange(self.size)
            half, rest = self.cutout // 2, (self.cutout + 1) // 2
            pixels[:, max(row - half, 0) : row + rest, max(column - half, 0) : column + rest] = (
                self.fill
            )
        return pixels


@dataclass(frozen=True)
class Rotated(Seeded):
    """Shifted crop, flip, then a turn by up to `degrees` either way: RIDE's view of CIFAR (Wang et
    al., 2021). Corners become black.
    """

    size: int
    pad: int = 4
    degrees: float = 15.0
    flip: bool = True

    def __post_init__(self) -> None:
        CropFlip(self.size, pad=self.pad)  # the same limits
        if not 0 <= self.degrees <= 180:
            raise LongtailError(f"degrees must be in [0, 180], got {self.degrees}")

    def apply(self, image: Image.Image) -> Tensor:
        """The image as uint8 (3, size, size); draws from the global generators."""
        image = _shifted(image, self.size, self.pad)
        image = _flipped(image) if self.flip else image
        return to_tensor(image.rotate(random.uniform(-self.degrees, self.degrees)))


@dataclass(frozen=True)
class ResizedCrop(Seeded):
    """A random part of the image, resized (bicubic) and flipped: the view of masked autoencoding
    (He et al., 2022).
    """

    size: int
    scale: tuple[float, float] = (0.2, 1.0)
    flip: bool = True

    def __post_init__(self) -> None:
        check_size(self.size)

    def apply(self, image: Image.Image) -> Tensor:
        """The image as uint8 (3, size, size); draws from the global generators."""
        image = _part(self.size, self.scale, "bicubic")(image)
        return to_tensor(_flipped(image) if self.flip else image)


@dataclass(frozen=True)
class RandAugment(Seeded):
    """A random part, flip, RandAugment, random erasing: the view of DeiT, and of LiVT's second
    stage.

    RandAugment (Cubuk et al., 2020) is timm's, in timm's spelling; rotations and shears are bicubic
    and filled with ImageNet's mean colour. Erased pixels are noise with ImageNet's mean and
    deviation, which is timm's "pixel" mode after normalisation."""

    size: int
    ops: str = "rand-m9-mstd0.5-inc1"
    erase: float = 0.25
    scale: tuple[float, float] = (0.08, 1.0)
    flip: bool = True

    def __post_init__(self) -> None:
        check_size(self.size)
        if not self.ops.startswith("rand-"):
            raise LongtailError(
                f"ops must be in timm's spelling, such as 'rand-m9-mstd0.5-inc1', got {self.ops!r}"
            )
        if not 0 <= self.erase <= 1:
            raise LongtailError(f"erase must be a probability, got {self.erase}")
        _rand_augment(self.ops, self.size)  # a misspelt part fails here and not in a loader worker

    def apply(self, image: Image.Image) -> Tensor:
        """The image as uint8 (3, size, size); draws from the global generators."""
        image = _part(self.size, self.scale, "bicubic")(image)
        image = _rand_augment(self.ops, self.size)(_flipped(image) if self.flip else image)
        return _erased(to_tensor(image), self.erase)


@cache
def _eraser(probability: float) -> Any:
    return RandomErasing(probability, mode="pixel", device="cpu")


def _erased(pixels: Tensor, probability: float) -> Tensor:
    # timm erases normalised floats. Erasing an empty canvas tells where it did and with what, and
    # the image stays uint8.
    canvas: Tensor = _eraser(probability)(torch.full(pixels.shape, torch.nan))
    hit = ~canvas.isnan()
    if hit.any():
        pixels[hit] = (
            (255 * (canvas * _DEVIATION + _MEAN))[hit].round().clamp(0, 255).to(torch.uint8)
        )
    return pixels


@dataclass(frozen=True)
class ThreeAugment(Seeded):
    """A crop, flip, one of grey, solarize and blur, then colour jitter: the view of DeiT III
    (Touvron
    et al., 2022).

    The crop is shifted by up to `pad` pixels, as DeiT III learns from much data; with `scale`, it
    is a part of so much of the image, resized (bicubic), as it learns from ImageNet-1K, with (0.08,
    1.0)."""

    size: int
    pad: int = 4
    jitter: float = 0.3
    flip: bool = True
    scale: tuple[float, float] | None = None

    def __post_init__(self) -> None:
        CropFlip(self.size, pad=self.pad if self.scale is None else 0)  # the same limits

    def apply(self, image: Image.Image) -> Tensor:
        """The image as uint8 (3, size, size); draws from the global generators."""
        image = (
            _shifted(image, self.size, self.pad)
            if self.scale is None
            else _part(self.size, self.scale, "bicubic")(image)
        )
        image = _three_augment(self.size)(_flipped(image) if self.flip else image)
        return to_tensor(_jitter(self.jitter, 0.0)(image))


@dataclass(frozen=True)
class SimClr(Seeded):
    """A random part, flip, colour jitter, grey, blur: the view of SimCLR as MoCo v2 uses it (Chen
    et
    al., 2020).

    `blur` is how often; the radius is drawn from 0.1 to 2 pixels. PaCo's code for CIFAR has no
    blur: `SimClr(32, blur=0)`."""

    size: int
    scale: tuple[float, float] = (0.2, 1.0)
    jitter: float = 0.4
    blur: float = 0.5
    flip: bool = True

    def __post_init__(self) -> None:
        check_size(self.size)
        if not 0 <= self.blur <= 1:
            raise LongtailError(f"blur must be a probability, got {self.blur}")

    def apply(self, image: Image.Image) -> Tensor:
        """The image as uint8 (3, size, size); draws from the global generators."""
        image = _part(self.size, self.scale, "bilinear")(image)
        image = _flipped(image) if self.flip else image
        if random.random() < 0.8:
            image = _jitter(self.jitter, self.jitter / 4)(image)
        if random.random() < 0.2:
            image = image.convert("L").convert("RGB")
        if random.random() < self.blur:
            # Torchvision's is 20 times slower on a CPU
            image = image.filter(ImageFilter.GaussianBlur(random.uniform(0.1, 2.0)))
        return to_tensor(image)
