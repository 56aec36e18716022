"""One image of every kind that decoders stumble over."""

from __future__ import annotations

import io
import struct
import zlib
from pathlib import Path

import numpy as np
from PIL import Image

GOOD = ("grey", "alpha", "palette", "cmyk", "sixteen", "rotated", "animated", "large", "wide")
BAD = ("bomb", "cut", "text", "empty")


def pixels(height: int = 12, width: int = 12) -> np.ndarray[tuple[int, ...], np.dtype[np.uint8]]:
    return np.random.default_rng(0).integers(0, 255, (height, width, 3), dtype=np.uint8)


def content(kind: str) -> bytes:
    """The bytes of a file of this kind."""
    image, buffer = Image.fromarray(pixels()), io.BytesIO()
    if kind == "grey":
        image.convert("L").save(buffer, "PNG")
    elif kind == "alpha":
        image.putalpha(Image.fromarray(pixels()[:, :, 0]))
        image.save(buffer, "PNG")
    elif kind == "palette":
        image.convert("P").save(buffer, "GIF")
    elif kind == "cmyk":
        image.convert("CMYK").save(buffer, "JPEG")
    elif kind == "sixteen":
        Image.fromarray(pixels()[:, :, 0].astype(np.uint16) * 257).save(buffer, "PNG")
    elif kind == "rotated":
        exif = Image.Exif()
        exif[0x0112] = 6
        Image.fromarray(pixels(8, 12)).save(buffer, "JPEG", exif=exif)
    elif kind == "animated":
        image.save(buffer, "GIF", save_all=True, append_images=[Image.new("RGB", image.size)])
    elif kind == "large":
        Image.fromarray(pixels(300, 200)).save(buffer, "WEBP")
    elif kind == "wide":
        Image.fromarray(pixels(3, 40)).save(buffer, "TIFF")
    elif kind == "bomb":  # a small file that claims to be 30,000 x 30,000
        header = struct.pack(">IIBBBBB", 30_000, 30_000, 8, 2, 0, 0, 0)
        parts = ((b"IHDR", header), (b"IDAT", zlib.compress(bytes(1000))), (b"IEND", b""))
        chunks = (
            struct.pack(">I", len(content))
            + name
            + content
            + struct.pack(">I", zlib.crc32(name + content))
            for name, content in parts
        )
        return b"\x89PNG\r\n\x1a\n" + b"".join(chunks)
    elif kind == "cut":
        image.save(buffer, "PNG")
        return buffer.getvalue()[:-80]
    elif kind == "text":
        return b"not an image at all"
    return buffer.getvalue()


def write_all(folder: Path, kinds: tuple[str, ...] = GOOD + BAD) -> Path:
    """Write them as files; the suffix is that of an image, whatever is inside."""
    folder.mkdir(parents=True, exist_ok=True)
    for kind in kinds:
        (folder / f"{kind}.png").write_bytes(content(kind))
    return folder
