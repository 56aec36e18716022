"""Read every image once when data is opened, into memory if all fit, else to hash and check it."""

from __future__ import annotations

import io
from collections.abc import Callable, Sequence
from dataclasses import replace
from hashlib import sha256

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image

from longtail.data.images import digests
from longtail.data.images.decoding import check, decode, to_square
from longtail.data.images.stores import ArrayImages, SquareImages
from longtail.data.progress import map_threaded
from longtail.data.request import Geometry, OnBadImage
from longtail.data.source import Rows, Source, listing
from longtail.errors import LongtailError

MEMORY = 1 << 30  # bytes of decoded pixels up to which a dataset is kept in memory
SAVE_EVERY = 4096  # files, after which digests are written to the cache
CROPPED = 0.875  # share of the central square that is evaluated: 224 of 256 pixels
SIZES = (32, 48, 64, 96, 128, 160, 224)


def read(
    source: Source,
    *,
    size: int | None = None,
    geometry: Geometry | None = None,
    on_bad_image: OnBadImage = "refuse",
    memory: int | None = None,
    geometry_by_memory: bool = False,
) -> Source:
    """Read a source's images once, to check and hash them and to keep them in memory if they fit.

    Padded and stretched squares are kept in memory if all of them fit, and otherwise made whenever
    an image is loaded: the pixels are the same. With the geometry `crop`, training views work on
    the full image, which is always decoded when it is loaded; an image of CIFAR then stays at 32
    pixels, and views and evaluation enlarge it once, by bicubic interpolation.

    Args:
        source: The result of a reader.
        size: Side of the squares in pixels. By default the smallest of 32, 48, 64, 96, 128, 160 and
            224 that is at least the median of the images' longest sides, and at most 224.
        geometry: How images become squares; the source's by default.
        on_bad_image: Whether to raise or to skip images that cannot be read.
        memory: Bytes that decoded images may take; 1 GB by default.
        geometry_by_memory: Pad data that fits into memory and crop other data, like versions that
            recorded no geometry.
    """
    native = source.size or natural_size(source)
    size = size or native
    images = sum(len(rows) for rows in source.splits.values())
    fits = images * 3 * size * size <= (MEMORY if memory is None else memory)
    geometry = geometry or source.geometry
    if geometry_by_memory:
        arrays = all(rows.digests for rows in source.splits.values())
        geometry = "pad" if fits or arrays else "crop"
    splits, bad, crop = {}, [], source.crop
    for split, rows in source.splits.items():
        if rows.digests and geometry == "crop" and rows.inputs.vectors() is None:
            # Arrays of one size, which views enlarge
            splits[split] = rows
            crop = CROPPED if size > native else 1.0
        elif rows.digests:
            splits[split] = _resized(rows, size, fits)
        else:
            splits[split], unreadable = _read_split(rows, size, native, geometry, fits)
            bad += unreadable
    warnings = source.warnings
    if bad and on_bad_image == "refuse":
        raise LongtailError(
            f"{len(bad):,} images cannot be read:\n"
            + "\n".join(f"  {name}: {reason}" for name, reason in bad)
            + "\nRepair or remove them, or skip them with --on-bad-image skip."
        )
    if bad:
        emptied = sorted(
            set(source.splits["train"].target.tolist()) - set(splits["train"].target.tolist())
        )
        if emptied:
            names = listing(source.classes[label] for label in emptied)
            raise LongtailError(
                f"no training image can be read in these classes: {names}. Repair or remove them."
            )
        warnings = (
            *warnings,
            (
                f"{len(bad):,} images cannot be read and were left out:"
                f" {listing(name for name, _ in bad)}."
            ),
        )
    return replace(
        source,
        splits=splits,
        size=size,
        native=native,
        geometry=geometry,
        crop=crop,
        warnings=warnings,
    )


def natural_size(source: Source) -> int:
    """The default size for a source's images: see `read`."""
    images = source.splits["train"].inputs
    sides = []
    for index in np.linspace(0, len(images) - 1, min(len(images), 256)).astype(int).tolist():
        try:
            with Image.open(io.BytesIO(images.content(index) or b"")) as image:
                sides.append(max(image.size))
        except Exception:  # bad images are reported after all are read
            continue
    longest = float(np.median(sides)) if sides else SIZES[-1]
    return next((size for size in SIZES if size >= longest), SIZES[-1])


def _resized(rows: Rows, size: int, fits: bool) -> Rows:
    vectors = rows.inputs.vectors()
    if vectors is not None and vectors.shape[1] != size:
        raise LongtailError(
            f"--size {size} does not apply to feature vectors, which have"
            f" {vectors.shape[1]} numbers each: remove it"
        )
    if vectors is not None or rows.inputs.in_memory(size) is not None:
        return rows
    resized = SquareImages(rows.inputs, size, "stretch")
    return replace(rows, inputs=ArrayImages.decoded(resized, size) if fits else resized)


def _read_split(
    rows: Rows, size: int, native: int, geometry: Geometry, fits: bool
) -> tuple[Rows, list[tuple[str, str]]]:
    """Return the readable rows, with digests, and (id, reason) of the others."""
    count, images = len(rows), rows.inputs
    content_digests: list[bytes | None] = [None] * count
    reasons: dict[int, str] = {}
    pixels = (
        np.empty((count, 3, size, size), dtype=np.uint8) if fits and geometry != "crop" else None
    )

    def read_one(index: int) -> None:
        try:
            content = images.content(index)
            assert content is not None, "a store without digests has encoded images"
            if pixels is None or geometry == "crop":
                check(content)
            else:
                square = to_square(decode(content), size, geometry)
                pixels[index] = np.asarray(square).transpose(2, 0, 1)
            content_digests[index] = sha256(content).digest()
        except (OSError, ValueError) as error:
            reasons[index] = str(error)

    files = [path for index in range(count) if (path := images.file(index)) is not None]
    if pixels is None and files:
        _read_files(files, read_one, content_digests, reasons)
    else:
        map_threaded(read_one, range(count), what="reading images")

    bad = [(rows.ids[index], reasons[index]) for index in sorted(reasons)]
    good: NDArray[np.int64] = np.array(
        [index for index in range(count) if index not in reasons], dtype=np.int64
    )
    if geometry != "crop":
        squares = SquareImages(images, size, geometry, native)
        original = None if size == native else squares.at_native_resolution()
        if pixels is None:
            images = squares
        else:
            images = ArrayImages(torch.from_numpy(pixels), original, images if files else None)
    complete = replace(
        rows, inputs=images, digests=tuple(digest or b"" for digest in content_digests)
    )
    return (complete.take(good) if bad else complete), bad


def _read_files(
    paths: Sequence[str],
    read_one: Callable[[int], None],
    content_digests: list[bytes | None],
    reasons: dict[int, str],
) -> None:
    """Fill `content_digests` of files that stay on disk, from the cache where it has them."""
    stamps = {}
    for index, path in enumerate(paths):
        try:
            stamps[path] = digests.fingerprint(path)
        except OSError as error:  # a broken link, a deleted file
            reasons[index] = str(error)
    cached = digests.get(stamps)
    fresh = [index for index, path in enumerate(paths) if path in stamps and path not in cached]
    unsaved: set[int] = set()
    saved: set[int] = set()

    def save(done: Sequence[int], *, at_least: int = SAVE_EVERY) -> None:
        unsaved.update(done)
        if len(unsaved) >= at_least:
            new = ((paths[i], content_digests[i]) for i in sorted(unsaved))
            digests.put((path, stamps[path], digest) for path, digest in new if digest is not None)
            saved.update(unsaved)
            unsaved.clear()

    try:
        map_threaded(read_one, fresh, what="reading images", then=save)
    finally:
        # Also after an interrupt, so that the next run continues from here
        save(
            [index for index in fresh if content_digests[index] is not None and index not in saved],
            at_least=1,
        )
    for index, path in enumerate(paths):
        content_digests[index] = cached.get(path, content_digests[index])
