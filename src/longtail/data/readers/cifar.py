"""CIFAR-10 and CIFAR-100, complete or as the conventional long-tailed subsets (Cao et al. 2019).

Under `root` (by default `data` in the current folder), or in its sub-folder `cifar10` or
`cifar100`, are torchvision's files (`cifar-10-batches-py`, `cifar-100-python`) or the Hugging Face
Hub's parquet files; otherwise torchvision downloads its files there. The conventional subset
depends on the order of the images: files in another order give the conventional counts but other
images, and a caveat of the dataset says so.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from longtail.data.images.stores import ArrayImages, EncodedImages
from longtail.data.readers.parquet import open_shards, parquet_files
from longtail.data.request import Profile
from longtail.data.source import Rows, Source
from longtail.data.splits import rank_groups, tail_counts, tail_rows, threshold_groups
from longtail.errors import LongtailError

CIFAR10 = "airplane automobile bird cat deer dog frog horse ship truck"
CIFAR100 = """
apple aquarium_fish baby bear beaver bed bee beetle bicycle bottle bowl boy bridge bus butterfly
camel can castle caterpillar cattle chair chimpanzee clock cloud cockroach couch crab crocodile cup
dinosaur dolphin elephant flatfish forest fox girl hamster house kangaroo keyboard lamp lawn_mower
leopard lion lizard lobster man maple_tree motorcycle mountain mouse mushroom oak_tree orange orchid
otter palm_tree pear pickup_truck pine_tree plain plate poppy porcupine possum rabbit raccoon ray
road rocket rose sea seal shark shrew skunk skyscraper snail snake spider squirrel streetcar
sunflower sweet_pepper table tank telephone television tiger tractor train trout tulip turtle
wardrobe whale willow_tree wolf woman worm
"""
CAVEAT = "counts conventional, images not"


@dataclass(frozen=True)
class Kind:
    """What differs between CIFAR-10 and CIFAR-100."""

    name: str  # of torchvision's class in lower case, and of the sub-folder
    folder: str  # of torchvision's files
    classes: tuple[str, ...]
    grouping: Callable[..., Any]
    order: str | None  # sha256 of the training labels in the original order, as bytes


KINDS = {
    "cifar10": Kind(
        "cifar10",
        "cifar-10-batches-py",
        tuple(CIFAR10.split()),
        partial(rank_groups, cuts=(3, 4, 3)),
        "2b7cd2f24487317614016b72ffd53071c3062f592f0eb300c18a770d41ae1253",
    ),
    # The hash of CIFAR-100's original order is not known here: only torchvision's files, whose
    # checksums it verifies, count as being in that order.
    "cifar100": Kind(
        "cifar100", "cifar-100-python", tuple(CIFAR100.split()), threshold_groups, None
    ),
}


@dataclass(frozen=True)
class Part:
    """The labels of a split, and a function from rows to pixels (N, 3, 32, 32).

    A subset decodes only its rows.
    """

    target: NDArray[np.int64]
    pixels: Callable[[NDArray[np.int64]], NDArray[np.uint8]]


def cifar(
    name: str, *, root: Path | None = None, imbalance: float | None = None, profile: Profile = "exp"
) -> Source:
    """CIFAR by name: `cifar10`, `cifar100`, or with `-lt` a long-tailed subset (imbalance 100).

    The test set is always complete.
    """
    kind = KINDS[name.removesuffix("-lt")]
    train, test, original = _find(kind, Path("data") if root is None else root)
    caveats: tuple[str, ...] = ()
    rows = np.arange(len(train.target))
    if name.endswith("-lt"):
        largest = len(train.target) / len(kind.classes)
        rows = tail_rows(
            train.target,
            tail_counts(
                largest,
                len(kind.classes),
                imbalance=100 if imbalance is None else imbalance,
                profile=profile,
            ),
        )
        caveats = () if original else (CAVEAT,)
    splits = {
        "train": _rows(train, rows, "train"),
        "test": _rows(test, np.arange(len(test.target)), "test"),
    }
    return Source(name, kind.classes, splits, kind.grouping, size=32, caveats=caveats)


def _find(kind: Kind, root: Path) -> tuple[Part, Part, bool]:
    folders = (root, root / kind.name)
    for folder in folders:
        if (folder / kind.folder).is_dir():
            return *_torchvision(kind, folder, download=False), True
    for folder in (
        root / kind.name,
        *(root / kind.name / sub for sub in ("plain_text", "cifar100")),
        root,
        root / "plain_text",
    ):
        files = parquet_files(folder) if folder.is_dir() else {}
        if {"train", "test"} <= set(files):
            train, test = (_parquet(kind, files[split]) for split in ("train", "test"))
            order = sha256(train.target.astype(np.uint8).tobytes()).hexdigest()
            return train, test, order == kind.order
    try:
        return *_torchvision(kind, root, download=True), True
    except OSError as error:  # raised by urllib without a network
        raise LongtailError(
            f"{kind.name} is not in {root.resolve()} and could not be downloaded"
            f" ({error}). Put torchvision's folder {kind.folder} or the Hub's train-*.parquet and"
            f" test-*.parquet into {root / kind.name}, or pass their folder with --root."
        ) from error


def _torchvision(kind: Kind, folder: Path, *, download: bool) -> tuple[Part, Part]:
    from torchvision import datasets

    parts = []
    for train in (True, False):
        try:
            # torchvision compares the files with their known checksums before it unpickles them
            dataset = getattr(datasets, kind.name.upper())(folder, train=train, download=download)
        except RuntimeError as error:
            raise LongtailError(
                f"torchvision's files of {kind.name} in {folder / kind.folder} are incomplete or"
                f" changed ({error}). Remove this folder to download it again."
            ) from error
        data: NDArray[np.uint8] = dataset.data.transpose(0, 3, 1, 2)
        parts.append(
            Part(np.array(dataset.targets, dtype=np.int64), partial(np.take, data, axis=0))
        )
    return parts[0], parts[1]


def _parquet(kind: Kind, files: list[Path]) -> Part:
    shards = open_shards(files)
    target = np.array(shards.labels(), dtype=np.int64)
    labels, counts = np.unique(target, return_counts=True)
    if labels.tolist() != list(range(len(kind.classes))) or counts.min() != counts.max():
        raise LongtailError(
            f"expected {kind.name} with labels 0 to {len(kind.classes) - 1}, equally often, in"
            f" {files[0]}; got {len(labels)} labels with {counts.min()} to {counts.max()} rows in"
            f" column {shards.label!r}. Pass the folder of {kind.name} with --root."
        )
    blobs, _ = shards.content()
    if blobs is None:
        raise LongtailError(
            f"expected encoded images in {files[0]}, got paths: download {kind.name} again."
        )
    return Part(target, partial(_decoded, EncodedImages(tuple(blobs))))


def _decoded(blobs: EncodedImages, rows: NDArray[np.int64]) -> NDArray[np.uint8]:
    return np.stack([np.asarray(blobs.image(row)) for row in rows.tolist()]).transpose(0, 3, 1, 2)


def _rows(part: Part, rows: NDArray[np.int64], split: str) -> Rows:
    pixels = np.ascontiguousarray(part.pixels(rows))
    ids = tuple(f"{split}/{row}" for row in rows.tolist())
    return Rows(
        ArrayImages(torch.from_numpy(pixels)),
        part.target[rows],
        ids,
        tuple(sha256(image.tobytes()).digest() for image in pixels),
    )
