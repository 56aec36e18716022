"""Decode image files of any format to upright RGB images.

Grey, palette and CMYK images are converted; transparent images are composited on white; 16 bits are
scaled to 8, not clipped; EXIF rotation is applied; an animation gives its first frame. A file that
is unreadable, truncated, very long, of very many scans or larger than `PIL.Image.MAX_IMAGE_PIXELS`
pixels raises `LongtailError`, for its size before it is decoded.
"""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageOps, UnidentifiedImageError

from longtail.errors import LongtailError
from longtail.records.files import read_regular

LONGEST = 8192  # pixels: longer images are reduced before padding
MAX_SIDE = 65_536  # pixels of an image's longest side; decoders of longer ones take minutes
MAX_ASPECT = 1000  # longest side / shortest side
MAX_SCANS = 32  # of a large JPEG; a progressive one usually has 10
MAX_SCANNED = 1_000_000_000  # pixels times scans of a JPEG with more scans than that
MAX_BYTES = 300_000_000  # of an image file; as many pixels as Pillow allows, without compression


def read_image_file(path: str | Path) -> bytes:
    """Read an image file; `LongtailError` for a pipe, a device or a file that is too large."""
    return read_regular(path, limit=MAX_BYTES)


def decode(content: bytes) -> Image.Image:
    """Decode the bytes of an image file to an upright RGB image."""
    try:
        return upright(open_image(content))
    # Decoders fail with many types: OSError, SyntaxError, struct.error, EOFError, ...
    except Exception as error:
        raise LongtailError(why_not(error)) from error


def check(content: bytes) -> None:
    """Raise `LongtailError` if `decode` would, at the lowest cost that the format allows."""
    try:
        image = open_image(content)
        # Decodes a JPEG at an eighth of its size, but still to its last byte
        image.draft("RGB", (1, 1))
        upright(image)
    except Exception as error:
        raise LongtailError(why_not(error)) from error


def why_not(error: Exception) -> str:
    """The reason why an image could not be decoded."""
    if isinstance(error, UnidentifiedImageError):  # its message contains a memory address
        return "not an image of a known kind"
    return str(error) or type(error).__name__


def to_square(image: Image.Image, size: int, geometry: Literal["pad", "stretch"]) -> Image.Image:
    """Pad or stretch an image to a square of `size` pixels (bilinear)."""
    if geometry == "pad":
        image = padded(image)
    return (
        image
        if image.size == (size, size)
        else image.resize((size, size), Image.Resampling.BILINEAR)
    )


def padded(image: Image.Image) -> Image.Image:
    """Centre an image on a square in the median colour of its border; nothing is cut off."""
    if image.width == image.height:
        return image
    longest = max(image.size)
    if longest > LONGEST:  # the square of a very long image would not fit into memory
        width, height = (max(1, side * LONGEST // longest) for side in image.size)
        image, longest = image.resize((width, height)), LONGEST
    pixels = np.asarray(image)
    border = np.concatenate([pixels[0], pixels[-1], pixels[:, 0], pixels[:, -1]])
    red, green, blue = (int(value) for value in np.median(border, axis=0))
    canvas = Image.new("RGB", (longest, longest), (red, green, blue))
    canvas.paste(image, ((longest - image.width) // 2, (longest - image.height) // 2))
    return canvas


def open_image(content: bytes) -> Image.Image:
    """Read the header of an image file (format, size, mode) without decoding its pixels.

    Raises `LongtailError` if it has more than `PIL.Image.MAX_IMAGE_PIXELS` pixels, a side that is
    longer than `MAX_SIDE` or than `MAX_ASPECT` times the other, or very many scans.
    """
    image = Image.open(io.BytesIO(content))
    if image.format == "EPS":  # a program, which Pillow passes to Ghostscript
        raise LongtailError("EPS files are not read: save it as PNG")
    width, height = image.size
    limit = Image.MAX_IMAGE_PIXELS
    if limit is not None and width * height > limit:
        raise LongtailError(
            f"{width} x {height} pixels are more than the limit of {limit:,}: reduce the image"
        )
    if max(width, height) > MAX_SIDE:
        raise LongtailError(
            f"{width} x {height} pixels: the longest side is over the limit of {MAX_SIDE:,}:"
            " reduce the image"
        )
    if max(width, height) > MAX_ASPECT * min(width, height):
        raise LongtailError(
            f"{width} x {height} pixels: one side is over {MAX_ASPECT:,} times the other: cut the"
            " image"
        )
    # In the data of a JPEG, these bytes are only ever the start of a scan
    scans = content.count(b"\xff\xda") if image.format in ("JPEG", "MPO") else 1
    if scans > MAX_SCANS and width * height * scans > MAX_SCANNED:
        raise LongtailError(
            f"a JPEG of {width} x {height} pixels with {scans:,} scans: save it again"
        )
    return image


def upright(image: Image.Image) -> Image.Image:
    """Decode an opened image: upright, RGB, 8 bits."""
    image.load()
    # A PNG without metadata is upright; exif_transpose would take as long as decoding it
    if image.format != "PNG" or image.info:
        image = ImageOps.exif_transpose(image)
    if image.mode.startswith("I"):
        image = _eight_bits(np.asarray(image), image.mode)
    elif image.mode == "F":
        values = np.asarray(image)
        if not (values.min() >= 0 and values.max() <= 1):
            raise LongtailError(
                f"pixels are floats from {values.min():g} to {values.max():g}: save them as 8 or 16"
                " bits, or scale them to [0, 1]"
            )
        image = Image.fromarray(np.round(values * 255).astype(np.uint8))
    elif image.has_transparency_data:
        image = image.convert("RGBA")
        white = Image.new("RGBA", image.size, (255, 255, 255, 255))
        image = Image.alpha_composite(white, image)
    return image.convert("RGB")


def _eight_bits(values: NDArray[Any], mode: str) -> Image.Image:
    # Pillow opens some 16-bit files as 32-bit integers: only values above 65,535 show that a file
    # really has 32 bits.
    if values.min() < 0:
        raise LongtailError(
            f"pixels of mode {mode} are negative: save them as unsigned 8 or 16 bits"
        )
    top = 65535.0 if values.max() <= 65535 else 2.0**31 - 1
    scaled = values.astype(np.float32)  # then in place: a copy of a large image takes much memory
    scaled *= 255 / top
    return Image.fromarray(np.round(scaled, out=scaled).astype(np.uint8))
