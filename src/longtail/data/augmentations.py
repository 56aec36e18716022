"""Strong augmentations from timm and torchvision: AutoAugment, RandAugment, 3-Augment, SimCLR.

They are separate from `views` because both libraries take seconds to import and inference does not
need them.
"""

from __future__ import annotations

import random
from abc import ABC, abstractmethod
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
import torch
from PIL import Image, ImageFilter, ImageOps
from timm.data.auto_augment import auto_augment_transform, rand_augment_transform
from timm.data.constants import IMAGENET_DEFAULT_MEAN, IMAGENET_DEFAULT_STD
from timm.data.random_erasing import RandomErasing
from timm.data.transforms import RandomResizedCropAndInterpolation
from torch import Tensor
from torchvision import transforms
from torchvision.transforms import v2

from longtail.data.views import Array, CropFlip, check_size, fitted, to_tensor
from longtail.errors import LongtailError

_MEAN, _STD = (
    torch.tensor(IMAGENET_DEFAULT_MEAN)[:, None, None],
    torch.tensor(IMAGENET_DEFAULT_STD)[:, None, None],
)


class Seeded(ABC):
    """Base class of views whose transforms use the global generators of torch, numpy and `random`.

    The parameter of such a view is a seed. A subclass implements `apply`.
    """

    def parameters(self, rng: np.random.Generator, rows: int) -> Array:
        """A seed for each row, int64 (rows, 1)."""
        return rng.integers(2**63, size=(rows, 1))

    def __call__(self, image: Image.Image, parameters: Array) -> Tensor:
        """Return the augmented image as uint8 (3, size, size).

        This seeds the global generators and does not restore them.
        """
        seed = int(parameters[0])
        random.seed(seed)
        np.random.seed(seed % 2**32)  # noqa: NPY002 (timm reads numpy's global generator)
        # torch.manual_seed would also initialise the GPUs and format a stack trace at every call
        torch.default_generator.manual_seed(seed)
        return self.apply(image)

    @abstractmethod
    def apply(self, image: Image.Image) -> Tensor:
        """Augment an image with the global generators; returns uint8 (3, size, size)."""


@cache
def _random_resized_crop(size: int, scale: tuple[float, float], interpolation: str) -> Any:
    return RandomResizedCropAndInterpolation(size, scale=scale, interpolation=interpolation)


@cache
def _reflected_indices(size: int, pad: int) -> Array:
    return np.pad(np.arange(size), pad, mode="reflect")


def _shifted_crop(image: Image.Image, size: int, pad: int) -> Image.Image:
    """Resize to `size`, pad `pad` pixels by reflection and crop a random square of `size`."""
    rows, columns = (
        _reflected_indices(size, pad)[start : start + size]
        for start in (random.randint(0, 2 * pad), random.randint(0, 2 * pad))
    )
    return Image.fromarray(np.asarray(fitted(image, size, size))[rows[:, None], columns])


def _random_flip(image: Image.Image) -> Image.Image:
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


def _blurred(image: Image.Image) -> Image.Image:
    # torchvision's blur is 20 times slower on a CPU
    return image.filter(ImageFilter.GaussianBlur(random.uniform(0.1, 2.0)))


@dataclass(frozen=True)
class CifarAutoAugment(Seeded):
    """Crop, flip, AutoAugment's CIFAR-10 policy (Cubuk et al., 2019), then Cutout, for CIFAR.

    The square that Cutout removes is black, as in the released code of Balanced Softmax and PaCo,
    which apply Cutout before normalisation.
    """

    size: int
    cutout: int = 16
    pad: int = 4
    flip: bool = True
    fill: int = 0

    def __post_init__(self) -> None:
        CropFlip(self.size, pad=self.pad, cutout=self.cutout)  # checks the shared parameters

    def apply(self, image: Image.Image) -> Tensor:
        """Augment an image with the global generators; returns uint8 (3, size, size)."""
        image = _shifted_crop(image, self.size, self.pad)
        pixels = to_tensor(_cifar_policy()(_random_flip(image) if self.flip else image))
        if self.cutout:
            row, column = random.randrange(self.size), random.randrange(self.size)
            half, rest = self.cutout // 2, (self.cutout + 1) // 2
            pixels[:, max(row - half, 0) : row + rest, max(column - half, 0) : column + rest] = (
                self.fill
            )
        return pixels


@dataclass(frozen=True)
class Rotated(Seeded):
    """Shifted crop, flip, then a rotation by up to `degrees` in either direction.

    This is RIDE's augmentation for CIFAR (Wang et al., 2021). Uncovered corners are black.
    """

    size: int
    pad: int = 4
    degrees: float = 15.0
    flip: bool = True

    def __post_init__(self) -> None:
        CropFlip(self.size, pad=self.pad)  # checks the shared parameters
        if not 0 <= self.degrees <= 180:
            raise LongtailError(f"degrees must be in [0, 180], got {self.degrees}")

    def apply(self, image: Image.Image) -> Tensor:
        """Augment an image with the global generators; returns uint8 (3, size, size)."""
        image = _shifted_crop(image, self.size, self.pad)
        image = _random_flip(image) if self.flip else image
        return to_tensor(image.rotate(random.uniform(-self.degrees, self.degrees)))


@dataclass(frozen=True)
class ResizedCrop(Seeded):
    """Random resized crop (bicubic) and flip, as in masked autoencoders (He et al., 2022)."""

    size: int
    scale: tuple[float, float] = (0.2, 1.0)
    flip: bool = True

    def __post_init__(self) -> None:
        check_size(self.size)

    def apply(self, image: Image.Image) -> Tensor:
        """Augment an image with the global generators; returns uint8 (3, size, size)."""
        image = _random_resized_crop(self.size, self.scale, "bicubic")(image)
        return to_tensor(_random_flip(image) if self.flip else image)


@dataclass(frozen=True)
class RandAugment(Seeded):
    """Random resized crop, flip, RandAugment, random erasing: DeiT and LiVT's second stage.

    RandAugment (Cubuk et al., 2020) is timm's, and `ops` is timm's configuration string. Rotations
    and shears are bicubic and filled with ImageNet's mean colour. Erased pixels become noise with
    ImageNet's mean and standard deviation, which is timm's "pixel" mode after normalisation.

    With `pad`, the crop is a square of `size` from the image with that many black pixels around it:
    what the code of DeiT and DeiT-LT does at 32 pixels and below, with 4 of them.
    """

    size: int
    ops: str = "rand-m9-mstd0.5-inc1"
    erase: float = 0.25
    scale: tuple[float, float] = (0.08, 1.0)
    flip: bool = True
    pad: int | None = None

    def __post_init__(self) -> None:
        check_size(self.size)
        if not self.ops.startswith("rand-"):
            raise LongtailError(
                "ops must be a timm configuration string such as 'rand-m9-mstd0.5-inc1', got"
                f" {self.ops!r}"
            )
        if self.pad is not None:
            CropFlip(self.size, pad=self.pad)  # checks the shared parameters
        if not 0 <= self.erase <= 1:
            raise LongtailError(f"erase must be a probability, got {self.erase}")
        _rand_augment(self.ops, self.size)  # a misspelt string fails here, not in a worker

    def apply(self, image: Image.Image) -> Tensor:
        """Augment an image with the global generators; returns uint8 (3, size, size)."""
        if self.pad is None:
            image = _random_resized_crop(self.size, self.scale, "bicubic")(image)
        else:
            left, top = random.randint(-self.pad, self.pad), random.randint(-self.pad, self.pad)
            image = fitted(image, self.size, self.size)
            image = image.crop((left, top, left + self.size, top + self.size))  # black outside
        image = _rand_augment(self.ops, self.size)(_random_flip(image) if self.flip else image)
        return _erased(to_tensor(image), self.erase)


@cache
def _eraser(probability: float) -> Any:
    return RandomErasing(probability, mode="pixel", device="cpu")


def _erased(pixels: Tensor, probability: float) -> Tensor:
    # timm erases normalised floats. Erasing an empty canvas gives the erased positions and their
    # values, so the image itself stays uint8.
    canvas: Tensor = _eraser(probability)(torch.full(pixels.shape, torch.nan))
    erased = ~canvas.isnan()
    if erased.any():
        pixels[erased] = (
            (255 * (canvas * _STD + _MEAN))[erased].round().clamp(0, 255).to(torch.uint8)
        )
    return pixels


@dataclass(frozen=True)
class ThreeAugment(Seeded):
    """DeiT III's 3-Augment (Touvron et al., 2022).

    Crop, flip, one of grey, solarize and blur, then colour jitter.

    Without `scale` the crop is shifted by up to `pad` pixels, as DeiT III does on ImageNet-21K.
    With `scale` it is a random resized crop (bicubic) of that share of the image's area, as on
    ImageNet-1K with (0.08, 1.0).
    """

    size: int
    pad: int = 4
    jitter: float = 0.3
    flip: bool = True
    scale: tuple[float, float] | None = None

    def __post_init__(self) -> None:
        CropFlip(
            self.size, pad=self.pad if self.scale is None else 0
        )  # checks the shared parameters

    def apply(self, image: Image.Image) -> Tensor:
        """Augment an image with the global generators; returns uint8 (3, size, size)."""
        image = (
            _shifted_crop(image, self.size, self.pad)
            if self.scale is None
            else _random_resized_crop(self.size, self.scale, "bicubic")(image)
        )
        image = _three_augment(self.size)(_random_flip(image) if self.flip else image)
        return to_tensor(_jitter(self.jitter, 0.0)(image))


@dataclass(frozen=True)
class JitteredCrop(Seeded):
    """Random resized crop, flip and colour jitter, then grey, blur and RandAugment if requested.

    The defaults are DomainBed's (Gulrajani & Lopez-Paz). Balanced Softmax and RIDE train on large
    images with `scale=(0.08, 1.0), jitter=0.4, hue=0.0, grey=0.0`; PaCo's first view adds
    `ops="rand-n2-m10-mstd0.5"`, and its second one has `grey=0.2, blur=0.5` instead.

    Args:
        size: side of the output in pixels.
        scale: share of the image's area that is cropped.
        jitter: strength for brightness, contrast and saturation.
        grey: probability of grey.
        flip: whether half of the images are mirrored.
        hue: strength for hue; that of `jitter` unless given.
        blur: probability of a Gaussian blur, whose radius is uniform in 0.1 to 2 pixels.
        ops: timm's configuration string of RandAugment; none by default.
    """

    size: int
    scale: tuple[float, float] = (0.7, 1.0)
    jitter: float = 0.3
    grey: float = 0.1
    flip: bool = True
    hue: float | None = None
    blur: float = 0.0
    ops: str | None = None

    def __post_init__(self) -> None:
        check_size(self.size)

    def apply(self, image: Image.Image) -> Tensor:
        """Augment an image with the global generators; returns uint8 (3, size, size)."""
        image = _random_resized_crop(self.size, self.scale, "bilinear")(image)
        image = _random_flip(image) if self.flip else image
        image = _jitter(self.jitter, self.jitter if self.hue is None else self.hue)(image)
        if random.random() < self.grey:
            image = image.convert("L").convert("RGB")
        if self.blur and random.random() < self.blur:
            image = _blurred(image)
        if self.ops is not None:
            image = _rand_augment(self.ops, self.size)(image)
        return to_tensor(image)


@dataclass(frozen=True)
class SimClr(Seeded):
    """SimCLR's augmentation as in MoCo v2 (Chen et al., 2020).

    Random resized crop, flip, colour jitter, grey and blur. `blur` is the probability of blurring;
    its radius is uniform in 0.1 to 2 pixels. PaCo's code has it for CIFAR as well. `solarize` is
    the probability of inverting bright pixels, as in the second view of MoCo v3.
    """

    size: int
    scale: tuple[float, float] = (0.2, 1.0)
    jitter: float = 0.4
    blur: float = 0.5
    flip: bool = True
    solarize: float = 0.0

    def __post_init__(self) -> None:
        check_size(self.size)
        for name, value in (("blur", self.blur), ("solarize", self.solarize)):
            if not 0 <= value <= 1:
                raise LongtailError(f"{name} must be a probability, got {value}")

    def apply(self, image: Image.Image) -> Tensor:
        """Augment an image with the global generators; returns uint8 (3, size, size)."""
        image = _random_resized_crop(self.size, self.scale, "bilinear")(image)
        image = _random_flip(image) if self.flip else image
        if random.random() < 0.8:
            image = _jitter(self.jitter, self.jitter / 4)(image)
        if random.random() < 0.2:
            image = image.convert("L").convert("RGB")
        if random.random() < self.blur:
            image = _blurred(image)
        if self.solarize and random.random() < self.solarize:
            image = ImageOps.solarize(image)
        return to_tensor(image)
