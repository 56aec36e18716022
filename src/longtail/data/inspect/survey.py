"""Read every image of a source: which are unreadable, their sizes, conversions and thumbnails."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cache
from hashlib import sha256
from os.path import isdir
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from longtail.data.dataset import Dataset, Split
from longtail.data.images.decoding import open_image, upright, why_not
from longtail.data.images.reading import natural_size
from longtail.data.images.stores import ImageStore
from longtail.data.progress import map_threaded
from longtail.data.readers.folders import is_image
from longtail.data.source import Rows, Source, listing
from longtail.errors import LongtailError

KINDS = ("grey", "palette", "CMYK", "16 bits", "transparent", "rotated by EXIF", "animated")
STATS = np.dtype(
    [
        ("digest", "S32"),  # of the content, as in `Rows`
        ("width", "i4"),  # of the upright image
        ("height", "i4"),
        ("kinds", "u2"),  # bit k: `KINDS[k]`
        ("hash", "u2", (4,)),  # see `perceptual_hash`
        ("thumb", "u1", (16, 16)),  # grey, stretched to a square
    ]
)
NAMED = 100  # images at most, of each kind of unusual image
BLANK = 0.75  # standard deviation in grey levels below which an image is blank


@dataclass(frozen=True)
class SurveyedImages(ImageStore):
    """Images with their statistics, which are split together."""

    images: ImageStore
    stats: NDArray[np.void]  # (N,) of `STATS`

    def __len__(self) -> int:
        return len(self.stats)

    def image(self, index: int) -> Image.Image:
        """Decode one image: upright, RGB."""
        return self.images.image(index)

    def small(self, index: int, side: int) -> Image.Image:
        """Decode one image, upright, RGB, reduced to fit into a square of `side` pixels."""
        content = self.images.content(index)
        if content is None:
            image = self.images.image(index)
        else:
            image = open_image(content)
            image.draft("RGB", (2 * side, 2 * side))
            image = upright(image)
        image.thumbnail((side, side), Image.Resampling.BILINEAR)
        return image

    def take(self, rows: NDArray[np.int64]) -> SurveyedImages:
        """Select rows, in the given order."""
        return SurveyedImages(self.images.take(rows), self.stats[rows])


@dataclass(frozen=True)
class Survey:
    """The result of `survey`."""

    source: Source  # its readable rows, as `SurveyedImages` with digests
    unreadable: tuple[dict[str, str], ...]  # image, split, class and reason of each
    emptied: tuple[str, ...]  # classes without a readable training image; training raises


def survey(source: Source) -> Survey:
    """Read every image once; unreadable images and classes without images are named and dropped."""
    splits: dict[str, Rows] = {}
    unreadable: list[dict[str, str]] = []
    if source.splits["train"].inputs.vectors() is not None:
        raise LongtailError(
            f"{source.name} has feature vectors, not images: pass --quick to count them"
        )
    for split, rows in source.splits.items():
        stats, reasons = _image_stats(rows, split)
        for index, reason in sorted(reasons.items()):
            unreadable.append(
                {
                    "image": rows.ids[index],
                    "split": split,
                    "class": source.classes[int(rows.target[index])],
                    "reason": reason,
                }
            )
        digests = rows.digests or tuple(
            digest.ljust(32, b"\0") for digest in stats["digest"].tolist()
        )
        complete = replace(rows, inputs=SurveyedImages(rows.inputs, stats), digests=digests)
        splits[split] = (
            complete.take(
                np.array([i for i in range(len(rows)) if i not in reasons], dtype=np.int64)
            )
            if reasons
            else complete
        )
    if not len(splits["train"]):
        shown = listing(f"{image['image']} ({image['reason']})" for image in unreadable)
        raise LongtailError(
            f"no training image can be read; {len(unreadable):,} files are unreadable:"
            f" {shown}. Repair them."
        )
    trained = set(splits["train"].target.tolist())
    emptied = tuple(
        source.classes[label]
        for label in sorted(set(source.splits["train"].target.tolist()) - trained)
    )
    size = source.size or natural_size(source)
    return Survey(
        _without_empty_classes(replace(source, splits=splits, size=size)),
        tuple(unreadable),
        emptied,
    )


def unread(source: Source) -> Source:
    """The source with digests of names instead of contents: enough to count, no file is read.

    The images held out differ from those in training. Folders that cannot be listed are a warning.
    """
    splits = {
        split: replace(
            rows,
            digests=rows.digests
            or tuple(sha256(name.encode(errors="surrogateescape")).digest() for name in rows.ids),
        )
        for split, rows in source.splits.items()
    }
    folders = [
        name
        for rows in source.splits.values()
        for index, name in enumerate(rows.ids)
        # Where the suffix is that of an image, nothing is opened
        if not is_image(name) and isdir(rows.inputs.file(index) or "")
    ]
    warnings = source.warnings
    if folders:
        warnings += (f"{len(folders):,} folders cannot be listed: {listing(folders)}.",)
    size = source.size or natural_size(source)
    return replace(source, splits=splits, size=size, warnings=warnings)


def files(data: Dataset) -> dict[str, Any]:
    """Sizes and aspect ratios of surveyed images, outliers, conversions and blank images, for JSON.

    An image is an outlier if its longest side is below a quarter or above four times the median, or
    if its aspect ratio differs from the median by a factor above three. The first hundred of each
    kind are named.
    """
    stats = np.concatenate([part.stats for _, _, part in parts(data)])
    where = [(split, row) for split, rows, _ in parts(data) for row in range(len(rows))]
    width, height = stats["width"].astype(np.int64), stats["height"].astype(np.int64)
    longest, aspect = np.maximum(width, height), width / height
    median_longest, median_aspect = float(np.median(longest)), float(np.median(aspect))
    unusual = {
        "tiny": longest < median_longest / 4,
        "huge": longest > median_longest * 4,
        "narrow or wide": np.abs(np.log(aspect / median_aspect)) > np.log(3),
        "blank": blank(stats),
    }
    return {
        "images": len(stats),
        "width": _quantiles(width),
        "height": _quantiles(height),
        "aspect": _quantiles(aspect),
        "smaller_than_the_network": int((longest < data.size).sum()),
        "converted": {
            name: count
            for bit, name in enumerate(KINDS)
            if (count := int((stats["kinds"] >> bit & 1).sum()))
        },
        "unusual": {
            name: {
                "count": int(mask.sum()),
                "images": [image(data, *where[i]) for i in np.flatnonzero(mask)[:NAMED].tolist()],
            }
            for name, mask in unusual.items()
            if mask.any()
        },
    }


def parts(data: Dataset) -> Iterator[tuple[str, Split, SurveyedImages]]:
    """The name, split and surveyed images of each split."""
    for name, split in (("train", data.train), ("val", data.val), ("test", data.test)):
        assert isinstance(split.inputs, SurveyedImages), "expected surveyed data"
        yield name, split, split.inputs


def image(data: Dataset, split: str, row: int) -> dict[str, Any]:
    """Identify an image: id, split, row, class and size."""
    part: Split = getattr(data, split)
    assert isinstance(part.inputs, SurveyedImages)
    stats = part.inputs.stats[row]
    return {
        "image": part.ids[row],
        "split": split,
        "row": row,
        "class": data.classes[int(part.target[row])],
        "width": int(stats["width"]),
        "height": int(stats["height"]),
    }


def blank(stats: NDArray[np.void]) -> NDArray[np.bool_]:
    """Which images are almost of one colour, (N,)."""
    result = np.zeros(len(stats), dtype=bool)
    for start in range(0, len(stats), 1 << 16):
        rows = slice(start, start + (1 << 16))
        result[rows] = stats["thumb"][rows].astype(np.float32).std((1, 2)) < BLANK
    return result


def perceptual_hash(grey: NDArray[Any]) -> NDArray[np.uint16]:
    """64 bits that hardly change when an image is resized, recompressed or brightened, uint16 (4,).

    The signs of the 64 lowest frequencies of `grey` (32, 32), without the mean. It is the pHash of
    Zauner 2010 ("Implementation and Benchmarking of Perceptual Image Hash Functions") with two
    changes: a bit is a sign, not a comparison with the median, and frequencies, sorted by their
    sum, alternate between four words of 16 bits, so that each word has low and high ones.
    """
    rows, columns, basis = _frequencies()
    waves = basis @ np.asarray(grey, dtype=np.float32) @ basis.T
    return np.packbits(waves[rows, columns] > 0).view(np.uint16)


@cache
def _frequencies() -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.float32]]:
    lowest = sorted((i + j, i, j) for i in range(12) for j in range(12) if i + j)[:64]
    order = np.array(lowest)[np.arange(64).reshape(16, 4).T.ravel()]
    k = np.arange(32)
    basis = np.cos(np.pi * (k + 0.5) * k[:12, None] / 32).astype(np.float32)
    return order[:, 1], order[:, 2], basis


def _image_stats(rows: Rows, split: str) -> tuple[NDArray[np.void], dict[int, str]]:
    """The statistics of each row, and why rows are unreadable."""
    stats, reasons, images = np.zeros(len(rows), dtype=STATS), dict[int, str](), rows.inputs

    def read_one(index: int) -> None:
        row = stats[index]
        try:
            content = images.content(index)
            small = images.image(index) if content is None else _decode_small(content, row)
        except Exception as error:  # decoders fail with many types
            reasons[index] = why_not(error)
            return
        if content is None:
            row["width"], row["height"] = small.size
        row["digest"] = rows.digests[index] if content is None else sha256(content).digest()
        grey = small.convert("L").resize((32, 32), Image.Resampling.BILINEAR)
        row["hash"] = perceptual_hash(np.asarray(grey))
        row["thumb"] = np.asarray(grey.resize((16, 16), Image.Resampling.BOX))

    map_threaded(read_one, range(len(rows)), what=f"reading {split} images")
    return stats, reasons


def _decode_small(content: bytes, row: Any) -> Image.Image:
    """Decode an image at a small size, and fill the size and kinds of its row of statistics."""
    image = open_image(content)
    orientation = image.getexif().get(0x0112, 1)
    # Pillow gives the size of a TIFF after rotation
    rotated = orientation in (5, 6, 7, 8) and image.format != "TIFF"
    row["width"], row["height"] = image.size[::-1] if rotated else image.size
    kinds = (  # in the order of `KINDS`
        image.mode in ("1", "L", "LA", "La"),
        image.mode in ("P", "PA"),
        image.mode == "CMYK",
        image.mode.startswith("I"),
        image.has_transparency_data,
        orientation not in (0, 1),
        getattr(image, "n_frames", 1) > 1,
    )
    row["kinds"] = sum(1 << bit for bit, present in enumerate(kinds) if present)
    # Decodes a JPEG at a fraction of its size, at least this, but still to its last byte
    image.draft("RGB", (64, 64))
    return upright(image)


def _quantiles(values: NDArray[Any]) -> dict[str, float]:
    quantiles = np.quantile(values, (0, 0.01, 0.5, 0.99, 1))
    return dict(
        zip(
            ("least", "1%", "median", "99%", "most"),
            (round(float(value), 3) for value in quantiles),
            strict=True,
        )
    )


def _without_empty_classes(source: Source) -> Source:
    used: Sequence[int] = sorted(
        {label for rows in source.splits.values() for label in rows.target.tolist()}
    )
    if len(used) == len(source.classes):
        return source
    index = np.full(len(source.classes), -1)
    index[used] = np.arange(len(used))
    splits = {
        split: replace(rows, target=index[rows.target]) for split, rows in source.splits.items()
    }
    return replace(source, classes=tuple(source.classes[label] for label in used), splits=splits)
