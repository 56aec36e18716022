"""A close look at every image of a source: what can be read, how large it is, what had to be
converted, and what it looks like in short.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cache
from hashlib import sha256
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from longtail.data.dataset import Dataset, Split
from longtail.data.images.decoding import open_image, upright, why_not
from longtail.data.images.reading import natural_size
from longtail.data.images.stores import ImageStore
from longtail.data.progress import map_threaded
from longtail.data.source import Rows, Source, several
from longtail.errors import LongtailError

KINDS = ("grey", "palette", "CMYK", "16 bits", "transparent", "rotated by EXIF", "animated")
LOOK = np.dtype(
    [
        ("digest", "S32"),  # of the content, as in `Rows`
        ("width", "i4"),  # upright, as the file has it
        ("height", "i4"),
        ("kinds", "u2"),  # bit k: `KINDS[k]`
        ("hash", "u2", (4,)),  # see `perceptual_hash`
        ("thumb", "u1", (16, 16)),  # grey, squeezed into a square
    ]
)
NAMED = 100  # of each kind of unusual image
BLANK = 0.75  # grey levels of standard deviation: below, there is nothing to see


@dataclass(frozen=True)
class SurveyedImages(ImageStore):
    """Pictures with what was seen of each; both go together through every split."""

    images: ImageStore
    looks: NDArray[np.void]  # (N,) of `LOOK`

    def __len__(self) -> int:
        return len(self.looks)

    def image(self, index: int) -> Image.Image:
        """One picture, decoded, upright, RGB."""
        return self.images.image(index)

    def small(self, index: int, side: int) -> Image.Image:
        """One picture, upright, RGB, fitted into a square of this side if it is larger."""
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
        """The pictures of these rows, in this order."""
        return SurveyedImages(self.images.take(rows), self.looks[rows])


@dataclass(frozen=True)
class Survey:
    """A source of which everything was looked at."""

    source: Source  # what can be read: its pictures are `SurveyedImages`, with digests
    unreadable: tuple[dict[str, str], ...]  # image, split, class and reason of each
    # Classes of which no training image can be read: training refuses them
    emptied: tuple[str, ...]


def survey(source: Source) -> Survey:
    """Look at every image once. Those that cannot be read are left out and named, whole classes
    too; the rest is as training sees it.
    """
    splits: dict[str, Rows] = {}
    unreadable: list[dict[str, str]] = []
    if source.splits["train"].inputs.vectors() is not None:
        raise LongtailError(
            f"expected images, got the feature vectors of {source.name}: pass --quick to count them"
        )
    for split, rows in source.splits.items():
        looks, reasons = _looked_at(rows, split)
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
            digest.ljust(32, b"\0") for digest in looks["digest"].tolist()
        )
        whole = replace(rows, inputs=SurveyedImages(rows.inputs, looks), digests=digests)
        splits[split] = (
            whole.take(np.array([i for i in range(len(rows)) if i not in reasons], dtype=np.int64))
            if reasons
            else whole
        )
    if not len(splits["train"]):
        shown = several(f"{own['image']} ({own['reason']})" for own in unreadable)
        raise LongtailError(
            f"expected training images that can be read, got none among {len(unreadable):,} files:"
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
    """The source with names in place of contents: enough to count, without reading a file. Other
    images are held out than in training.
    """
    splits = {
        split: replace(
            rows,
            digests=rows.digests
            or tuple(sha256(name.encode(errors="surrogateescape")).digest() for name in rows.ids),
        )
        for split, rows in source.splits.items()
    }
    return replace(source, splits=splits, size=source.size or natural_size(source))


def files(data: Dataset) -> dict[str, Any]:
    """Sizes and shapes of the surveyed images, those far from the others, what was converted, and
    what
    is blank; ready for JSON.

    Far away is a longest side below a quarter or above four times the median's, or an aspect ratio
    three times off the median's. The first hundred of each kind are named."""
    looks = np.concatenate([part.looks for _, _, part in parts(data)])
    where = [(split, row) for split, own, _ in parts(data) for row in range(len(own))]
    width, height = looks["width"].astype(np.int64), looks["height"].astype(np.int64)
    longest, shape = np.maximum(width, height), width / height
    typical, usual = float(np.median(longest)), float(np.median(shape))
    far = {
        "tiny": longest < typical / 4,
        "huge": longest > typical * 4,
        "narrow or wide": np.abs(np.log(shape / usual)) > np.log(3),
        "blank": blank(looks),
    }
    return {
        "images": len(looks),
        "width": _quantiles(width),
        "height": _quantiles(height),
        "aspect": _quantiles(shape),
        "smaller_than_the_network": int((longest < data.size).sum()),
        "converted": {
            name: count
            for bit, name in enumerate(KINDS)
            if (count := int((looks["kinds"] >> bit & 1).sum()))
        },
        "unusual": {
            name: {
                "count": int(mask.sum()),
                "images": [image(data, *where[i]) for i in np.flatnonzero(mask)[:NAMED].tolist()],
            }
            for name, mask in far.items()
            if mask.any()
        },
    }


def parts(data: Dataset) -> Iterator[tuple[str, Split, SurveyedImages]]:
    """The splits of surveyed data with what was seen of them."""
    for name, split in (("train", data.train), ("val", data.val), ("test", data.test)):
        assert isinstance(split.inputs, SurveyedImages), "expected surveyed data"
        yield name, split, split.inputs


def image(data: Dataset, split: str, row: int) -> dict[str, Any]:
    """What a person needs to find an image again."""
    part: Split = getattr(data, split)
    assert isinstance(part.inputs, SurveyedImages)
    look = part.inputs.looks[row]
    return {
        "image": part.ids[row],
        "split": split,
        "row": row,
        "class": data.classes[int(part.target[row])],
        "width": int(look["width"]),
        "height": int(look["height"]),
    }


def blank(looks: NDArray[np.void]) -> NDArray[np.bool_]:
    """Which images show nothing: almost one colour."""
    found = np.zeros(len(looks), dtype=bool)
    for start in range(0, len(looks), 1 << 16):
        found[start : start + (1 << 16)] = (
            looks["thumb"][start : start + (1 << 16)].astype(np.float32).std((1, 2)) < BLANK
        )
    return found


def perceptual_hash(grey: NDArray[Any]) -> NDArray[np.uint16]:
    """64 bits that hardly change when a picture is resized, recompressed or brightened: the signs
    of
    its 64 lowest frequencies.

    After the pHash of Zauner 2010 ("Implementation and Benchmarking of Perceptual Image Hash
    Functions"), with the sign in place of the median and the frequencies in the order of their sum,
    dealt out to four words of 16 bits so that each word has low and high ones. `grey` is 32 x 32;
    the mean is not among the frequencies."""
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


def _looked_at(rows: Rows, split: str) -> tuple[NDArray[np.void], dict[int, str]]:
    looks, reasons, images = np.zeros(len(rows), dtype=LOOK), dict[int, str](), rows.inputs

    def look(index: int) -> None:
        own = looks[index]
        try:
            content = images.content(index)
            small = images.image(index) if content is None else _opened_small(content, own)
        except Exception as error:  # decoders fail with many types
            reasons[index] = why_not(error)
            return
        if content is None:
            own["width"], own["height"] = small.size
        own["digest"] = rows.digests[index] if content is None else sha256(content).digest()
        grey = small.convert("L").resize((32, 32), Image.Resampling.BILINEAR)
        own["hash"] = perceptual_hash(np.asarray(grey))
        own["thumb"] = np.asarray(grey.resize((16, 16), Image.Resampling.BOX))

    map_threaded(look, range(len(rows)), what=f"looking at {split} images")
    return looks, reasons


def _opened_small(content: bytes, own: Any) -> Image.Image:
    image = open_image(content)
    orientation = image.getexif().get(0x0112, 1)
    # Of which Pillow gives the size as it will be
    turned = orientation in (5, 6, 7, 8) and image.format != "TIFF"
    own["width"], own["height"] = image.size[::-1] if turned else image.size
    seen = (
        image.mode in ("1", "L", "LA", "La"),
        image.mode in ("P", "PA"),
        image.mode == "CMYK",
        image.mode.startswith("I"),
        image.has_transparency_data,
        orientation not in (0, 1),
        getattr(image, "n_frames", 1) > 1,
    )
    own["kinds"] = sum(1 << bit for bit, one in enumerate(seen) if one)
    # A JPEG is decoded at a fraction of its size, not below this, but to its last byte
    image.draft("RGB", (64, 64))
    return upright(image)


def _quantiles(values: NDArray[Any]) -> dict[str, float]:
    found = np.quantile(values, (0, 0.01, 0.5, 0.99, 1))
    return dict(
        zip(
            ("least", "1%", "median", "99%", "most"),
            (round(float(value), 3) for value in found),
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
