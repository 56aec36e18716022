"""Stores for the inputs of a split: images in memory, encoded or on disk, or feature vectors.

A store only keeps and decodes images. The data request determines how they become squares: see
`decoding.to_square`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, Self, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image
from torch import Tensor

from longtail.data.images.decoding import decode, read_image_file, to_square
from longtail.errors import LongtailError

T = TypeVar("T")


class ImageStore(ABC):
    """Base class of stores. Other code uses only these methods, never the type of a store."""

    @abstractmethod
    def __len__(self) -> int: ...

    @abstractmethod
    def image(self, index: int) -> Image.Image:
        """Decode one image: upright, RGB."""

    @abstractmethod
    def take(self, rows: NDArray[np.int64]) -> Self:
        """Select rows, in the given order."""

    def join(self, other: Self) -> Self:
        """Return the rows of this store followed by those of another of the same kind."""
        raise LongtailError(f"{type(self).__name__} cannot be joined: give all rows one split")

    def in_memory(self, size: int) -> Tensor | None:
        """All images as uint8 (N, 3, size, size) if they are in memory at this size, else None."""
        return None

    def content(self, index: int) -> bytes | None:
        """The encoded bytes of one image, or None if the store has none."""
        return None

    def file(self, index: int) -> str | None:
        """The path of one image's file, or None if it has none."""
        return None

    def vectors(self) -> Tensor | None:
        """All rows as float32 (N, D) if they are feature vectors, else None."""
        return None

    def at_native_resolution(self) -> ImageStore:
        """The same images at their native resolution, where another size was requested."""
        return self


@dataclass(frozen=True)
class ArrayImages(ImageStore):
    """Images of one size, in memory as uint8 (N, 3, H, W)."""

    pixels: Tensor
    original: ImageStore | None = None  # the same at native resolution
    files: ImageStore | None = None  # the files that they were read from

    def __post_init__(self) -> None:
        if self.pixels.dtype != torch.uint8 or self.pixels.ndim != 4 or self.pixels.shape[1] != 3:
            raise LongtailError(
                f"expected pixels as uint8 (N, 3, H, W), got {self.pixels.dtype}"
                f" {tuple(self.pixels.shape)}"
            )

    @staticmethod
    def decoded(images: ImageStore, size: int) -> ArrayImages:
        """Decode all images of a store, which are squares of `size`, into memory."""
        pixels = np.empty((len(images), 3, size, size), dtype=np.uint8)
        for index in range(len(images)):
            pixels[index] = np.asarray(images.image(index)).transpose(2, 0, 1)
        return ArrayImages(torch.from_numpy(pixels), images.at_native_resolution())

    def __len__(self) -> int:
        return len(self.pixels)

    def image(self, index: int) -> Image.Image:
        return Image.fromarray(self.pixels[index].permute(1, 2, 0).numpy())

    def take(self, rows: NDArray[np.int64]) -> ArrayImages:
        original = None if self.original is None else self.original.take(rows)
        files = None if self.files is None else self.files.take(rows)
        return ArrayImages(self.pixels[torch.from_numpy(rows)], original, files)

    def file(self, index: int) -> str | None:
        return None if self.files is None else self.files.file(index)

    def join(self, other: ArrayImages) -> ArrayImages:
        return ArrayImages(torch.cat([self.pixels, other.pixels]))

    def in_memory(self, size: int) -> Tensor | None:
        return self.pixels if self.pixels.shape[-2:] == (size, size) else None

    def at_native_resolution(self) -> ImageStore:
        return self.original or self


@dataclass(frozen=True)
class FileImages(ImageStore):
    """Images that stay on disk and are decoded when they are loaded."""

    paths: tuple[str, ...]

    def __len__(self) -> int:
        return len(self.paths)

    def content(self, index: int) -> bytes:
        return read_image_file(self.paths[index])

    def file(self, index: int) -> str:
        return self.paths[index]

    def image(self, index: int) -> Image.Image:
        try:
            return decode(self.content(index))
        except (OSError, ValueError) as error:
            raise LongtailError(
                f"{self.paths[index]} can no longer be read ({error}), but could when the data was"
                " opened: restore it, or start again with --on-bad-image skip."
            ) from error

    def take(self, rows: NDArray[np.int64]) -> FileImages:
        return FileImages(_select(self.paths, rows))

    def join(self, other: FileImages) -> FileImages:
        return FileImages(self.paths + other.paths)


@dataclass(frozen=True)
class EncodedImages(ImageStore):
    """Images in memory as the bytes of encoded files."""

    blobs: tuple[bytes, ...]

    def __len__(self) -> int:
        return len(self.blobs)

    def content(self, index: int) -> bytes:
        return self.blobs[index]

    def image(self, index: int) -> Image.Image:
        try:
            return decode(self.blobs[index])
        except ValueError as error:
            raise LongtailError(
                f"the image in row {index} cannot be read ({error}): download or write the file"
                " again."
            ) from error

    def take(self, rows: NDArray[np.int64]) -> EncodedImages:
        return EncodedImages(_select(self.blobs, rows))

    def join(self, other: EncodedImages) -> EncodedImages:
        return EncodedImages(self.blobs + other.blobs)


@dataclass(frozen=True)
class SquareImages(ImageStore):
    """Images of another store as squares of `size` pixels, resized when they are loaded."""

    images: ImageStore
    size: int
    geometry: Literal["pad", "stretch"]
    native: int | None = None  # side at native resolution; None: `images` are squares already

    def __len__(self) -> int:
        return len(self.images)

    def image(self, index: int) -> Image.Image:
        return to_square(self.images.image(index), self.size, self.geometry)

    def file(self, index: int) -> str | None:
        return self.images.file(index)

    def take(self, rows: NDArray[np.int64]) -> SquareImages:
        return SquareImages(self.images.take(rows), self.size, self.geometry, self.native)

    def at_native_resolution(self) -> ImageStore:
        if self.native is None:
            return self.images
        return SquareImages(self.images, self.native, self.geometry, self.native)


@dataclass(frozen=True)
class VectorRows(ImageStore):
    """Feature vectors instead of images, float32 (N, D). Loaders apply no view to them."""

    rows: Tensor

    def __post_init__(self) -> None:
        if self.rows.dtype != torch.float32 or self.rows.ndim != 2:
            raise LongtailError(
                f"expected features as float32 (N, D), got {self.rows.dtype}"
                f" {tuple(self.rows.shape)}"
            )

    def __len__(self) -> int:
        return len(self.rows)

    def image(self, index: int) -> Image.Image:
        raise LongtailError("this data has feature vectors, not images: use a dataset of images")

    def take(self, rows: NDArray[np.int64]) -> VectorRows:
        return VectorRows(self.rows[torch.from_numpy(rows)])

    def join(self, other: VectorRows) -> VectorRows:
        return VectorRows(torch.cat([self.rows, other.rows]))

    def vectors(self) -> Tensor:
        return self.rows


def _select(items: Sequence[T], rows: NDArray[np.int64]) -> tuple[T, ...]:
    return tuple(items[row] for row in rows.tolist())
