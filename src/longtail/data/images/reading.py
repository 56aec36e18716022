"""Every image is read once when the data is opened: into memory if all fit, else only to know its content and that it is good."""

from __future__ import annotations

import io
from collections.abc import Sequence
from dataclasses import replace
from hashlib import sha256
from typing import Literal

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image

from longtail.data.dataset import ArrayImages
from longtail.data.images import digests
from longtail.data.images.decoding import (
    EncodedImages,
    FileImages,
    PaddedImages,
    ResizedImages,
    check,
    decode,
    square,
)
from longtail.data.progress import map_threaded
from longtail.data.source import Rows, Source, several
from longtail.errors import LongtailError

OnBadImage = Literal["refuse", "skip"]
MEMORY = 1 << 30  # bytes of decoded pixels up to which a dataset lives in memory
REMEMBERED = 4096  # files, between two times that digests are written down
SIZES = (32, 48, 64, 96, 128, 160, 224)


def read(
    source: Source,
    *,
    size: int | None = None,
    on_bad_image: OnBadImage = "refuse",
    memory: int | None = None,
) -> Source:
    """Read a source's images: decoded at `size` where all fit into `memory` (bytes; 1 GB unless given), else streamed from where they are.

    In memory a picture is padded to a square, not cropped (see `decoding.square`). Without `size`, the side is the smallest of 32, 48, 64,
    96, 128, 160, 224 that is not below the median of the images' longest sides, and at most 224.
    """
    native = source.size or natural_size(source)
    size = size or native
    fits = sum(len(rows) for rows in source.splits.values()) * 3 * size * size <= (
        MEMORY if memory is None else memory
    )
    splits, bad = {}, []
    for split, rows in source.splits.items():
        if isinstance(rows.pictures, ArrayImages):
            splits[split] = _resized(rows, rows.pictures, size, fits)
        elif isinstance(rows.pictures, FileImages | EncodedImages):
            splits[split], unreadable = _looked_at(rows, rows.pictures, size, native, fits)
            bad += unreadable
        else:
            splits[split] = rows
    warnings = source.warnings
    if bad and on_bad_image == "refuse":
        raise LongtailError(
            f"expected images that can be read, got {len(bad):,} that cannot:\n"
            + "\n".join(f"  {name}: {reason}" for name, reason in bad)
            + "\nRepair or remove them, or leave them out with --on-bad-image skip."
        )
    if bad:
        emptied = sorted(
            set(source.splits["train"].target.tolist()) - set(splits["train"].target.tolist())
        )
        if emptied:
            names = several(source.classes[label] for label in emptied)
            raise LongtailError(
                f"expected a training image in every class, got none that can be read in {names}. Repair or remove these classes."
            )
        warnings = (
            *warnings,
            f"{len(bad):,} images cannot be read and were left out: {several(name for name, _ in bad)}.",
        )
    return replace(source, splits=splits, size=size, native=native, warnings=warnings)


def natural_size(source: Source) -> int:
    """The side that fits a source's images: see `read`."""
    pictures = source.splits["train"].pictures
    assert isinstance(pictures, FileImages | EncodedImages)
    sides = []
    for index in np.linspace(0, len(pictures) - 1, min(len(pictures), 256)).astype(int).tolist():
        try:
            with Image.open(io.BytesIO(pictures.content(index))) as image:
                sides.append(max(image.size))
        except Exception:  # a bad image: reported with all others once everything is read
            continue
    longest = float(np.median(sides)) if sides else SIZES[-1]
    return next((size for size in SIZES if size >= longest), SIZES[-1])


def _resized(rows: Rows, stored: ArrayImages, size: int, fits: bool) -> Rows:
    if stored.pixels.shape[-1] == size:
        return rows
    resized = ResizedImages(stored.pixels, size)
    if not fits:
        return replace(rows, pictures=resized)
    pixels = np.empty((len(rows), 3, size, size), dtype=np.uint8)
    for index in range(len(rows)):
        pixels[index] = np.asarray(resized.image(index)).transpose(2, 0, 1)
    return replace(rows, pictures=ArrayImages(torch.from_numpy(pixels), stored))


def _looked_at(
    rows: Rows, pictures: FileImages | EncodedImages, size: int, native: int, fits: bool
) -> tuple[Rows, list[tuple[str, str]]]:
    """The rows that can be read, with digests, and (id, reason) of those that cannot."""
    count = len(rows)
    found: list[bytes | None] = [None] * count
    reasons: dict[int, str] = {}
    pixels = np.empty((count, 3, size, size), dtype=np.uint8) if fits else None

    def look(index: int) -> None:
        try:
            content = pictures.content(index)
            if pixels is None:
                check(content)
            else:
                pixels[index] = np.asarray(square(decode(content), size)).transpose(2, 0, 1)
            found[index] = sha256(content).digest()
        except (OSError, ValueError) as error:
            reasons[index] = str(error)

    if pixels is None and isinstance(pictures, FileImages):
        stamps = {}
        for index, path in enumerate(pictures.paths):
            try:
                stamps[path] = digests.fingerprint(path)
            except OSError as error:  # a link to nothing, a file that is gone
                reasons[index] = str(error)
        known = digests.get(stamps)
        fresh = [
            index
            for index, path in enumerate(pictures.paths)
            if path in stamps and path not in known
        ]
        read: set[int] = set()
        written: set[int] = set()

        def remember(done: Sequence[int], *, at_least: int = REMEMBERED) -> None:
            read.update(done)
            if len(read) >= at_least:
                new = ((pictures.paths[i], found[i]) for i in sorted(read))
                digests.put(
                    (path, stamps[path], digest) for path, digest in new if digest is not None
                )
                written.update(read)
                read.clear()

        try:
            map_threaded(look, fresh, what="reading images", then=remember)
        finally:
            # Also when it is interrupted, in the middle of many: the next opening goes on from here.
            remember(
                [index for index in fresh if found[index] is not None and index not in written],
                at_least=1,
            )
        for index, path in enumerate(pictures.paths):
            found[index] = known.get(path, found[index])
    else:
        map_threaded(look, range(count), what="reading images")

    bad = [(rows.ids[index], reasons[index]) for index in sorted(reasons)]
    good: NDArray[np.int64] = np.array(
        [index for index in range(count) if index not in reasons], dtype=np.int64
    )
    original = None if size == native else PaddedImages(pictures, native)
    whole = replace(
        rows,
        pictures=rows.pictures
        if pixels is None
        else ArrayImages(torch.from_numpy(pixels), original),
        digests=tuple(digest or b"" for digest in found),
    )
    return (whole.take(good) if bad else whole), bad
