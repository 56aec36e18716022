"""Images of any kind and size become the squares that a network takes."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple, get_args

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image
from torch import Tensor

from longtail.data.dataset import Dataset
from longtail.data.images.decoding import LONGEST, decode, read_image_file, to_square, upright
from longtail.data.readers.folders import SUFFIXES, walked
from longtail.data.request import Geometry
from longtail.data.views import CenterCrop
from longtail.errors import LongtailError

ImageLike = str | Path | Image.Image | NDArray[np.uint8]
"""One image: a path, a PIL image of any mode, or uint8 (H, W, 3)."""

ImagesLike = ImageLike | Tensor | Sequence[ImageLike] | Sequence[Tensor]
"""One image or several: also uint8 (N, H, W, 3), and floats (N, 3, size, size) in [0, 1]."""


@dataclass(frozen=True)
class Preprocessing:
    """How an image becomes the square that a network takes: as it did when the run was evaluated.

    It is padded or stretched to a square of `stored` pixels, or stays as it is (`crop`). Then the
    central square is resized to `size / crop` pixels, of which `size` are taken.
    """

    size: int
    geometry: Geometry
    stored: int
    crop: float = 1.0

    @staticmethod
    def of(dataset: Dataset, size: int) -> Preprocessing:
        """The preprocessing of a network of this size that was trained on this data."""
        return Preprocessing(size, dataset.geometry, dataset.size, dataset.train.crop)

    @staticmethod
    def from_spec(spec: Mapping[str, Any]) -> Preprocessing:
        """The preprocessing that is recorded in a model's spec.

        Specs of earlier versions record `kept`, the side of padded images, or null for cropped
        ones; the oldest record nothing, and nearly all of them were padded.
        """
        size = int(spec["size"])
        fit = dict(spec.get("fit", {"kept": size}))
        if "kept" in fit:
            kept = fit.pop("kept")
            fit |= {"geometry": "crop" if kept is None else "pad", "stored": kept or size}
        geometry, stored, crop = fit["geometry"], fit["stored"], fit.get("crop", 1.0)
        if (
            geometry not in get_args(Geometry)
            or not all(1 <= side <= LONGEST for side in (size, stored))
            or not 0 < crop <= 1
        ):
            raise LongtailError(
                f"expected a size and a stored size of 1 to {LONGEST} pixels, a crop in (0, 1] and"
                f" the geometry {', '.join(get_args(Geometry))}, got {size}, {stored}, {crop} and"
                f" {geometry!r} in the spec of the model: bring the file back, or train again"
            )
        return Preprocessing(size, geometry, stored, crop)

    def to_spec(self) -> dict[str, Any]:
        """What a model's spec records under `fit`, beside its size."""
        return {"geometry": self.geometry, "stored": self.stored, "crop": self.crop}

    def __call__(self, image: ImageLike) -> Tensor:
        """An image as uint8 (3, size, size)."""
        image = open_image(image)
        if self.geometry != "crop":
            image = to_square(image, self.stored, self.geometry)
        return CenterCrop(self.size, self.crop)(image)

    def __str__(self) -> str:
        if self.geometry == "crop":
            resize = int(self.size / self.crop)
            return (
                f"the shorter side becomes {resize} (bicubic), "
                f"then the central square of {self.size} is taken"
            )
        resized = (
            f"then {self.size} (bicubic)" if self.stored != self.size else "nothing is cut off"
        )
        how = (
            "padded to a square with the median colour of its border, resized"
            if self.geometry == "pad"
            else "stretched"
        )
        return f"{how} to {self.stored} (bilinear), {resized}"


def open_image(image: ImageLike) -> Image.Image:
    """An image, upright and RGB; the error of a file that cannot be read names the file."""
    try:
        if isinstance(image, Image.Image):
            return upright(image)
        if isinstance(image, str | Path):
            return decode(read_image_file(image))
    except FileNotFoundError as error:
        raise LongtailError(f"expected an image, got no file at {image}") from error
    except IsADirectoryError as error:
        raise LongtailError(
            f"expected an image, got the folder {image}: "
            'pass its files, as of Path(...).glob("*.jpg")'
        ) from error
    except (OSError, ValueError) as error:
        raise LongtailError(
            f"expected an image, got something else or a part of it at {image} ({error})"
        ) from error
    if (
        isinstance(image, np.ndarray)
        and image.dtype == np.uint8
        and image.ndim == 3
        and image.shape[2] == 3
        and image.size
    ):
        return Image.fromarray(np.ascontiguousarray(image))
    got = f"{image.dtype} {image.shape}" if isinstance(image, np.ndarray) else type(image).__name__
    raise LongtailError(
        f"expected each image as a path, a PIL image or an array of uint8 (H, W, 3), got {got}"
    )


def as_list(images: Any) -> Tensor | list[Any]:
    """One image or several, as a tensor of floats (N, 3, H, W) or as a list of images."""
    if isinstance(images, Tensor):
        return images[None] if images.ndim == 3 else images
    if isinstance(images, str | Path | Image.Image) or (
        isinstance(images, np.ndarray) and images.ndim != 4
    ):
        return [images]
    if not isinstance(images, Iterable):
        raise LongtailError(
            f"expected images, got {type(images).__name__}: "
            "give paths, PIL images, an array or a tensor"
        )
    items = list(images)
    if not items:
        raise LongtailError("expected at least one image, got none")
    if not all(isinstance(image, Tensor) for image in items):
        return items
    if len({image.shape for image in items}) > 1:
        raise LongtailError("expected tensors of one shape, got several: resize them first")
    return torch.stack(items)


def check_tensor(batch: Tensor, size: int) -> Tensor:
    """Refuse tensors that are not images of this size as floats in [0, 1]."""
    right = (
        batch.ndim == 4
        and len(batch)
        and batch.shape[1:] == (3, size, size)
        and batch.is_floating_point()
    )
    if not right or not 0 <= batch.min() <= batch.max() <= 1:
        values = f" in [{batch.min():g}, {batch.max():g}]" if batch.numel() else ""
        dtype = str(batch.dtype).removeprefix("torch.")
        raise LongtailError(
            f"expected images as floats (N, 3, {size}, {size}) in [0, 1], got {dtype} "
            f"{tuple(batch.shape)}{values}: divide bytes by 255, and leave normalisation to the "
            "network; images of any size are taken as PIL images or uint8 arrays (N, H, W, 3)"
        )
    return batch


class ImageFiles(NamedTuple):
    """The image files among some paths."""

    paths: tuple[Path, ...]
    others: int  # files in folders that are not images by their suffix


def images_at(places: Sequence[str | Path]) -> ImageFiles:
    """List image files: those given by name, and those in given folders, sorted in each folder.

    A file given by name counts whatever its suffix; in folders, at any depth, the suffix decides.
    """
    paths: list[Path] = []
    others = 0
    for place in map(Path, places):
        if place.is_dir():
            before = len(paths)
            unreadable: list[str] = []
            for folder, visible in walked(place, unreadable):
                images = [
                    Path(folder, name)
                    for name in visible
                    if os.path.splitext(name)[1].lower() in SUFFIXES
                ]
                paths += images
                others += len(visible) - len(images)
            paths += map(Path, unreadable)  # reported when they are read
            if len(paths) == before:
                suffixes = " ".join(sorted(SUFFIXES))
                raise LongtailError(
                    f"expected a folder with images ({suffixes}), got none in {place}"
                )
        elif place.exists():
            paths.append(place)
        else:
            raise LongtailError(f"expected an image or a folder of images, got nothing at {place}")
    return ImageFiles(tuple(paths), others)
