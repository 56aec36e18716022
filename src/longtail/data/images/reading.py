"""Every image is read once when the data is opened: into memory if all fit, else to know its
content and that it is good.
"""

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
from longtail.data.source import Rows, Source, several
from longtail.errors import LongtailError

MEMORY = 1 << 30  # bytes of decoded pixels up to which a dataset lives in memory
REMEMBERED = 4096  # files, between two times that digests are written down
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
    """Read a source's images once: to keep them in memory as squares, or to know their content and
    that they are good.

    Padded and stretched squares of `size` pixels are kept where all of them fit into `memory`
    (bytes; 1 GB unless given), and otherwise made again whenever an image is loaded: the pixels are
    the same. With the geometry `crop` training views work on the full image, which is decoded
    whenever it is loaded.

    Args:
        source: What a reader lists.
        size: The side of the squares; unless given, the smallest of 32, 48, 64, 96, 128, 160, 224 that is not below the
            median of the images' longest sides, and at most 224.
        geometry: How images become squares; the source's unless given.
        on_bad_image: Whether an image that cannot be read is an error or left out.
        memory: The bytes that decoded images may take.
        geometry_by_memory: Pad what fits into memory and crop the rest, as versions did that recorded no geometry.
    """
    native = source.size or natural_size(source)
    size = size or native
    images = sum(len(rows) for rows in source.splits.values())
    fits = images * 3 * size * size <= (MEMORY if memory is None else memory)
    geometry = geometry or source.geometry
    if geometry_by_memory:
        arrays = all(rows.digests for rows in source.splits.values())
        geometry = "pad" if fits or arrays else "crop"
    splits, bad = {}, []
    for split, rows in source.splits.items():
        if rows.digests:  # pixels of one size, which came with their digests
            splits[split] = _resized(rows, size, fits)
        else:
            splits[split], unreadable = _read_split(rows, size, native, geometry, fits)
            bad += unreadable
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
                f"expected a training image in every class, got none that can be read in {names}."
                " Repair or remove these classes."
            )
        warnings = (
            *warnings,
            (
                f"{len(bad):,} images cannot be read and were left out:"
                f" {several(name for name, _ in bad)}."
            ),
        )
    return replace(
        source, splits=splits, size=size, native=native, geometry=geometry, warnings=warnings
    )


def natural_size(source: Source) -> int:
    """The side that fits a source's images: see `read`."""
    images = source.splits["train"].inputs
    sides = []
    for index in np.linspace(0, len(images) - 1, min(len(images), 256)).astype(int).tolist():
        try:
            with Image.open(io.BytesIO(images.content(index) or b"")) as image:
                sides.append(max(image.size))
        except Exception:  # a bad image: reported with all others once everything is read
            continue
    longest = float(np.median(sides)) if sides else SIZES[-1]
    return next((size for size in SIZES if size >= longest), SIZES[-1])


def _resized(rows: Rows, size: int, fits: bool) -> Rows:
    vectors = rows.inputs.vectors()
    if vectors is not None and vectors.shape[1] != size:
        raise LongtailError(
            f"expected no --size with features, which have {vectors.shape[1]} numbers each, got"
            f" {size}: remove it"
        )
    if vectors is not None:
        return rows
    if rows.inputs.in_memory(size) is not None:
        return rows
    resized = SquareImages(rows.inputs, size, "stretch")
    return replace(rows, inputs=ArrayImages.decoded(resized, size) if fits else resized)


def _read_split(
    rows: Rows, size: int, native: int, geometry: Geometry, fits: bool
) -> tuple[Rows, list[tuple[str, str]]]:
    """The rows that can be read, with digests, and (id, reason) of those that cannot."""
    count, images = len(rows), rows.inputs
    found: list[bytes | None] = [None] * count
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
            found[index] = sha256(content).digest()
        except (OSError, ValueError) as error:
            reasons[index] = str(error)

    files = [path for index in range(count) if (path := images.file(index)) is not None]
    if pixels is None and files:
        _read_files(files, read_one, found, reasons)
    else:
        map_threaded(read_one, range(count), what="reading images")

    bad = [(rows.ids[index], reasons[index]) for index in sorted(reasons)]
    good: NDArray[np.int64] = np.array(
        [index for index in range(count) if index not in reasons], dtype=np.int64
    )
    if geometry != "crop":
        squares = SquareImages(images, size, geometry, native)
        original = None if size == native else squares.at_native_resolution()
        images = squares if pixels is None else ArrayImages(torch.from_numpy(pixels), original)
    complete = replace(rows, inputs=images, digests=tuple(digest or b"" for digest in found))
    return (complete.take(good) if bad else complete), bad


def _read_files(
    paths: Sequence[str],
    read_one: Callable[[int], None],
    found: list[bytes | None],
    reasons: dict[int, str],
) -> None:
    """Digests of files that stay on disk: those of an earlier reading where a file has not changed
    since.
    """
    stamps = {}
    for index, path in enumerate(paths):
        try:
            stamps[path] = digests.fingerprint(path)
        except OSError as error:  # a link to nothing, a file that is gone
            reasons[index] = str(error)
    known = digests.get(stamps)
    fresh = [index for index, path in enumerate(paths) if path in stamps and path not in known]
    unsaved: set[int] = set()
    saved: set[int] = set()

    def save(done: Sequence[int], *, at_least: int = REMEMBERED) -> None:
        unsaved.update(done)
        if len(unsaved) >= at_least:
            new = ((paths[i], found[i]) for i in sorted(unsaved))
            digests.put((path, stamps[path], digest) for path, digest in new if digest is not None)
            saved.update(unsaved)
            unsaved.clear()

    try:
        map_threaded(read_one, fresh, what="reading images", then=save)
    finally:
        # Also when it is interrupted, in the middle of many: the next opening goes on from here.
        save(
            [index for index in fresh if found[index] is not None and index not in saved],
            at_least=1,
        )
    for index, path in enumerate(paths):
        found[index] = known.get(path, found[index])
