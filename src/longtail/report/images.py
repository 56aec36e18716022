"""Images, saliency maps and matrices as data URIs for a page."""

from __future__ import annotations

import base64
import io
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from longtail.errors import LongtailError

WIDEST = 1200
"""Pixels: wider image files are shrunk to keep a page small."""


def data_uri(pixels: NDArray[Any]) -> str:
    """An image (H, W, 3) of uint8 as a data URI: PNG if small, else JPEG.

    >>> data_uri(np.zeros((2, 2, 3), dtype=np.uint8))[:22]
    'data:image/png;base64,'
    """
    kind = "PNG" if max(pixels.shape[:2]) <= 48 else "JPEG"
    return _encode(Image.fromarray(np.ascontiguousarray(pixels)), kind)


def shrink(pixels: NDArray[Any], most: int) -> NDArray[Any]:
    """Shrink a square image (H, W, 3) of uint8 to at most `most` pixels per side."""
    if len(pixels) <= most:
        return pixels
    return np.asarray(Image.fromarray(pixels).resize((most, most), Image.Resampling.BOX))


def spotlight(pixels: NDArray[Any], saliency: NDArray[Any]) -> NDArray[np.uint8]:
    """Darken an image (H, W, 3) where a saliency map of uint8 is low.

    >>> pixels = np.full((2, 2, 3), 100, dtype=np.uint8)
    >>> spotlight(pixels, np.array([[255, 0], [255, 0]], dtype=np.uint8))[0, :, 0].tolist()
    [100, 18]
    """
    height, width = pixels.shape[:2]
    light = Image.fromarray(saliency).resize((width, height), Image.Resampling.BILINEAR)
    share = np.asarray(light, dtype=np.float64)[..., None] / 255
    return np.asarray((pixels * (0.18 + 0.82 * share)).round().clip(0, 255).astype(np.uint8))


def heat_map(values: NDArray[Any]) -> str:
    """A matrix as an image, from white for the least to dark blue for the most; nan is grey.

    >>> heat_map(np.array([[0.0, 1.0]]))[:22]
    'data:image/png;base64,'
    """
    values = _coarse(values)
    known = values[np.isfinite(values)]
    low, high = (float(known.min()), float(known.max())) if len(known) else (0.0, 1.0)
    share = np.nan_to_num((values - low) / max(high - low, 1e-12))[..., None]
    pixels = np.where(
        np.isfinite(values)[..., None], 255 + share * (np.array([18, 62, 120]) - 255), 190
    ).astype(np.uint8)
    times = max(1, -(-240 // max(values.shape)))  # enlarge small matrices
    return _encode(Image.fromarray(pixels.repeat(times, 0).repeat(times, 1)), "PNG")


def _coarse(values: NDArray[Any]) -> NDArray[Any]:
    """Average neighbours of a matrix, ignoring nan, to at most 512 rows and columns.

    >>> _coarse(np.arange(1024.0 * 2).reshape(1024, 2)).shape
    (512, 1)
    """
    times = -(-max(values.shape) // 512)
    if times == 1:
        return values
    padded = np.pad(
        values.astype(np.float32),
        [(0, -side % times) for side in values.shape],
        constant_values=np.nan,
    )
    blocks = padded.reshape(padded.shape[0] // times, times, padded.shape[1] // times, times)
    known = np.isfinite(blocks)
    with np.errstate(invalid="ignore"):
        return np.asarray(np.where(known, blocks, 0).sum((1, 3)) / known.sum((1, 3)))


def file_uri(path: Path) -> str:
    """An image file as a data URI.

    SVG files are used unchanged: inside an image element they cannot run scripts.
    """
    if path.suffix == ".svg":
        return "data:image/svg+xml;base64," + base64.b64encode(path.read_bytes()).decode()
    try:
        with Image.open(path) as content:
            image = content.convert("RGB")
    except (OSError, Image.DecompressionBombError) as error:
        raise LongtailError(f"{path} is broken or not an image ({error}): delete it") from error
    if image.width > WIDEST:
        image = image.resize(
            (WIDEST, max(1, round(image.height * WIDEST / image.width))), Image.Resampling.LANCZOS
        )
    return min((_encode(image, kind) for kind in ("PNG", "JPEG")), key=len)


def _encode(image: Image.Image, kind: str) -> str:
    content = io.BytesIO()
    image.save(content, kind, **({"optimize": True} if kind == "PNG" else {"quality": 85}))
    return f"data:image/{kind.lower()};base64," + base64.b64encode(content.getvalue()).decode()
