"""Image files of any kind become upright RGB pictures.

Grey, palette and CMYK are converted; transparency is laid on white; 16 bits are scaled to 8, not
clipped; EXIF rotation is applied; of an animation the first frame counts. What cannot be read, is
cut short, or would unpack to more pixels than `PIL.Image.MAX_IMAGE_PIXELS` raises ValueError."""

from __future__ import annotations

import io
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageOps, UnidentifiedImageError

from longtail.errors import LongtailError

LONGEST = 8192  # pixels of a side that is padded to a square


def decode(content: bytes) -> Image.Image:
    """Decode an image file's bytes: upright, RGB."""
    try:
        return upright(open_image(content))
    # Decoders fail with many types: OSError, SyntaxError, struct.error, EOFError, ...
    except Exception as error:
        raise LongtailError(why_not(error)) from error


def check(content: bytes) -> None:
    """Read an image file to its end, as cheaply as its format allows; raises ValueError as `decode`
    would.
    """
    try:
        image = open_image(content)
        # A JPEG is then decoded at an eighth of its size, but still to its last byte
        image.draft("RGB", (1, 1))
        upright(image)
    except Exception as error:
        raise LongtailError(why_not(error)) from error


def why_not(error: Exception) -> str:
    """Why an image could not be decoded, in words."""
    if isinstance(error, UnidentifiedImageError):  # its own words name an object in memory
        return "not an image of a known kind"
    return str(error) or type(error).__name__


def to_square(image: Image.Image, size: int, geometry: Literal["pad", "stretch"]) -> Image.Image:
    """An image as a square of `size` pixels, padded or stretched, then resized (bilinear)."""
    if geometry == "pad":
        image = padded(image)
    return (
        image
        if image.size == (size, size)
        else image.resize((size, size), Image.Resampling.BILINEAR)
    )


def padded(image: Image.Image) -> Image.Image:
    """An image in the middle of a square that has the median colour of its border; nothing is cut
    off.
    """
    if image.width == image.height:
        return image
    longest = max(image.size)
    if longest > LONGEST:  # the square of a ribbon would not fit into memory
        width, height = (max(1, side * LONGEST // longest) for side in image.size)
        image, longest = image.resize((width, height)), LONGEST
    pixels = np.asarray(image)
    border = np.concatenate([pixels[0], pixels[-1], pixels[:, 0], pixels[:, -1]])
    red, green, blue = (int(value) for value in np.median(border, axis=0))
    canvas = Image.new("RGB", (longest, longest), (red, green, blue))
    canvas.paste(image, ((longest - image.width) // 2, (longest - image.height) // 2))
    return canvas


def open_image(content: bytes) -> Image.Image:
    """An image file's header: kind, size, mode. Its pixels are not unpacked, and refused if they
    are too many.
    """
    image = Image.open(io.BytesIO(content))
    limit = Image.MAX_IMAGE_PIXELS
    if limit is not None and image.width * image.height > limit:
        raise LongtailError(
            f"{image.width} x {image.height} pixels are more than the {limit:,} that are safe to"
            " unpack"
        )
    return image


def upright(image: Image.Image) -> Image.Image:
    """The pixels of an opened image: upright, RGB, 8 bits."""
    image.load()
    # A PNG that says nothing but its pixels is upright, and asking takes as long as decoding it
    if image.format != "PNG" or image.info:
        image = ImageOps.exif_transpose(image)
    if image.mode.startswith("I"):
        image = _eight_bits(np.asarray(image), image.mode)
    elif image.mode == "F":
        values = np.asarray(image)
        if not (values.min() >= 0 and values.max() <= 1):
            raise LongtailError(
                f"pixels are real numbers from {values.min():g} to {values.max():g}: save them as 8"
                " or 16 bits, or in [0, 1]"
            )
        image = Image.fromarray(np.round(values * 255).astype(np.uint8))
    elif image.has_transparency_data:
        image = image.convert("RGBA")
        white = Image.new("RGBA", image.size, (255, 255, 255, 255))
        image = Image.alpha_composite(white, image)
    return image.convert("RGB")


def _eight_bits(values: NDArray[Any], mode: str) -> Image.Image:
    # Pillow opens some 16-bit files as 32-bit integers: only larger values show that a file really
    # has 32 bits.
    if values.min() < 0:
        raise LongtailError(
            f"pixels of mode {mode} are negative: save them as 8 or 16 bits without sign"
        )
    top = 65535.0 if values.max() <= 65535 else 2.0**31 - 1
    scaled = values.astype(np.float32)  # and in place: of a large picture every copy counts
    scaled *= 255 / top
    return Image.fromarray(np.round(scaled, out=scaled).astype(np.uint8))
