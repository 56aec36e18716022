"""Pixels for a page: pictures, maps over them and matrices, as data that the page carries itself."""

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
"""Pixels: a picture file that is wider is made smaller, so that a page stays small."""


def encoded(pixels: NDArray[Any]) -> str:
    """A picture (H, W, 3) of bytes as an address that holds it: PNG when small, JPEG when a photograph would be large as PNG.

    >>> encoded(np.zeros((2, 2, 3), dtype=np.uint8))[:22]
    'data:image/png;base64,'
    """
    kind = "PNG" if max(pixels.shape[:2]) <= 48 else "JPEG"
    return _address(Image.fromarray(np.ascontiguousarray(pixels)), kind)


def spotlight(pixels: NDArray[Any], looked: NDArray[Any]) -> NDArray[np.uint8]:
    """A picture as dark as the network's look is faint: what it looks at stays as it is. No colour carries the meaning.

    >>> spotlight(np.full((2, 2, 3), 100, dtype=np.uint8), np.array([[255, 0], [255, 0]], dtype=np.uint8))[0, :, 0].tolist()
    [100, 18]
    """
    height, width = pixels.shape[:2]
    light = Image.fromarray(looked).resize((width, height), Image.Resampling.BILINEAR)
    share = np.asarray(light, dtype=np.float64)[..., None] / 255
    return np.asarray((pixels * (0.18 + 0.82 * share)).round().clip(0, 255).astype(np.uint8))


def heat(values: NDArray[Any]) -> str:
    """A matrix as a picture, from white for the least to dark blue for the most; nan is grey.

    >>> heat(np.array([[0.0, 1.0]]))[:22]
    'data:image/png;base64,'
    """
    values = _coarse(values)
    known = values[np.isfinite(values)]
    low, high = (float(known.min()), float(known.max())) if len(known) else (0.0, 1.0)
    share = np.nan_to_num((values - low) / max(high - low, 1e-12))[..., None]
    pixels = np.where(
        np.isfinite(values)[..., None], 255 + share * (np.array([18, 62, 120]) - 255), 190
    ).astype(np.uint8)
    times = max(1, -(-240 // max(values.shape)))  # large enough to be seen
    return _address(Image.fromarray(pixels.repeat(times, 0).repeat(times, 1)), "PNG")


def _coarse(values: NDArray[Any]) -> NDArray[Any]:
    """A matrix with at most 512 rows and columns: means over neighbours, without nan. Nobody sees more, and it would make large files.

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


def file(path: Path) -> str:
    """A picture file as an address that holds it. Drawings (SVG) are taken as they are: inside of an image they run nothing."""
    if path.suffix == ".svg":
        return "data:image/svg+xml;base64," + base64.b64encode(path.read_bytes()).decode()
    try:
        with Image.open(path) as opened:
            picture = opened.convert("RGB")
    except (OSError, Image.DecompressionBombError) as error:
        raise LongtailError(
            f"expected a picture, got something else or a part of it in {path} ({error}): delete it"
        ) from error
    if picture.width > WIDEST:
        picture = picture.resize(
            (WIDEST, max(1, round(picture.height * WIDEST / picture.width))),
            Image.Resampling.LANCZOS,
        )
    return min((_address(picture, kind) for kind in ("PNG", "JPEG")), key=len)


def _address(picture: Image.Image, kind: str) -> str:
    content = io.BytesIO()
    picture.save(content, kind, **({"optimize": True} if kind == "PNG" else {"quality": 85}))
    return f"data:image/{kind.lower()};base64," + base64.b64encode(content.getvalue()).decode()
