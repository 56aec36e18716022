"""One door for every source: a name, a folder, a list or parquet files become a `Dataset`."""

from __future__ import annotations

import sys
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from longtail import processes
from longtail.data.dataset import Dataset, Split
from longtail.data.images.reading import read
from longtail.data.names import KNOWN
from longtail.data.readers.cifar import cifar
from longtail.data.readers.digits import digits
from longtail.data.readers.features import features
from longtail.data.readers.folders import folder
from longtail.data.readers.functions import from_function, is_function
from longtail.data.readers.lists import image_list, published
from longtail.data.readers.parquet import parquet, parquet_files
from longtail.data.request import LIST_SUFFIXES, DataRequest, Protocol, data_flags
from longtail.data.source import Rows, Source, several
from longtail.data.splits import (
    hold_out,
    natural_groups,
    one_group,
    seen_groups,
    shared,
    split_hash,
)
from longtail.errors import LongtailError
from longtail.naming import unknown
from longtail.records.groups import Groups

LARGEST_CROPPED = 224
"""Pixels, up to which `Source.crop` holds: networks for larger images are shown the whole square,
as LiVT's at 384 are.
"""


def open_dataset(
    request: DataRequest, *, size: int | None = None, device: str = "cpu", legacy: bool = False
) -> Dataset:
    """Open requested data: in the first of several processes before the others, so that only one
    downloads.

    Args:
        request: Which data, and how it is split.
        size: The side of the squares that networks see, in pixels; chosen from the images unless given.
        device: Where the processes compute, and so how they talk to each other.
        legacy: As versions did that recorded no geometry: images are padded if all fit into memory and cropped if not,
            and columns of lists and parquet files are left out.
    """
    return first_process_first(lambda: _open(request, size=size, legacy=legacy), device)


def first_process_first(opening: Callable[[], Dataset], device: str) -> Dataset:
    """Open data in the first process, then in the others, and print its warnings once."""
    voting = "cuda" if device.startswith("cuda") else "cpu"  # where nccl, or gloo, hears it
    if processes.rank() != 0:
        processes.any_rank(False, voting)
    dataset = opening()
    if processes.rank() == 0:
        for warning in dataset.warnings:
            print(f"warning: {warning}", file=sys.stderr)
        processes.any_rank(False, voting)
    return dataset


def open_data(source: str | Path, *, size: int | None = None, **flags: Any) -> Dataset:
    """Open a dataset by name or path: the known names are in `longtail.data.names`.

    A path is that of a folder of class folders (`folders.folder`), of a .txt or .csv list of images
    under `root` (`lists.image_list`), of a parquet file or a folder of them (`parquet.parquet`), or
    of an .npz of features (`features.features`). "package.module:function" is a function that gives
    a `Source`. `flags` are the fields of `DataRequest`: `imbalance` and `profile` say how the sets
    called -lt are cut.

    With the protocol `holdout` a validation set is held out of training where the source has none:
    per class one image in ten, at least one from five images on. With `paper` all training images
    train. A test set, where the source has none, is held out under both: one in five, before
    validation. Which images depends on `split_seed` only. `mirror` says whether a mirrored image is
    still one of its class, where that is not known of the data: it is believed to be, but for
    digits. `geometry` says how images become squares; unless given, the published sets crop and
    everything else pads.

    >>> data = open_data("digits-lt")
    >>> data.counts.tolist()
    [108, 77, 55, 40, 28, 20, 14, 10, 7, 5]
    >>> len(data.train), len(data.val), len(data.test)
    (364, 41, 500)
    """
    for name in flags:
        if name not in data_flags():
            raise unknown("data flag", name, data_flags())
    return _open(DataRequest.from_flags(source, flags), size=size)


def _open(request: DataRequest, *, size: int | None = None, legacy: bool = False) -> Dataset:
    if size is not None and size < 1:
        raise LongtailError(f"expected a size of at least 1 pixel, got {size}.")
    source = find(request)
    if request.mirror is not None:
        source = replace(source, mirror=request.mirror)
    if legacy:
        bare = {split: replace(rows, columns={}) for split, rows in source.splits.items()}
        source = replace(source, splits=bare, categories={})
    source = read(
        source,
        size=size,
        geometry=request.geometry,
        on_bad_image=request.on_bad_image,
        geometry_by_memory=legacy,
    )
    dataset = assemble(source, protocol=request.protocol, split_seed=request.split_seed)
    return replace(dataset, scoring=request.scoring)


def open_for_evaluation(
    request: DataRequest,
    *,
    size: int | None = None,
    crop: float | None = None,
    learnt: tuple[str, Protocol, int] | None = None,
) -> Dataset:
    """Open data for evaluation only: nothing is held out of it, and without test images of its own
    all
    are test images.

    But if it is what a network has learnt from, whose hash, protocol and split seed are `learnt`,
    it is split as it was then. `size` and `crop` (the share of the central square that is
    evaluated) are those of the data that the network was trained on."""
    source = read(
        find(request, least=1),
        size=size,
        geometry=request.geometry,
        memory=0,
        on_bad_image=request.on_bad_image,
    )
    if crop is not None:
        source = replace(source, crop=crop)
    if learnt is not None:
        known, protocol, split_seed = learnt
        whole = assemble(source, protocol=protocol, split_seed=split_seed)
        if whole.hash == known:
            return replace(
                whole,
                warnings=(
                    *whole.warnings,
                    "this is what the run has learnt from: its own held-out images are judged.",
                ),
            )
    if "test" in source.splits:
        return assemble(source, protocol="paper")
    whole = assemble(
        replace(source, splits={**source.splits, "test": source.splits["train"]}), protocol="paper"
    )
    return replace(whole, warnings=source.warnings)


def find(request: DataRequest | str, *, least: int = 2) -> Source:
    """Find requested data, or that at a name or path; files are listed, not yet read. A folder has
    `least` classes or more.
    """
    request = request if isinstance(request, DataRequest) else DataRequest(request)
    name, imbalance, profile = request.source, request.imbalance, request.profile
    if (imbalance is not None or profile != "exp") and name not in (
        "digits-lt",
        "cifar10-lt",
        "cifar100-lt",
    ):
        raise LongtailError(
            "expected --imbalance and --profile only with digits-lt, cifar10-lt or cifar100-lt,"
            f" which are cut; got them with {name}."
        )
    root = None if request.root is None else Path(request.root)
    if name == "digits-lt":
        return digits(imbalance=imbalance, profile=profile)
    if name.startswith("cifar") and name in KNOWN:
        return cifar(name, root=root, imbalance=imbalance, profile=profile)
    if name in KNOWN:
        return published(name, root=root)
    path = Path(name).expanduser()
    if path.is_file():
        if path.suffix.lower() in LIST_SUFFIXES:
            return image_list(path, root=root)
        if path.suffix.lower() == ".parquet":
            return parquet(path)
        if path.suffix.lower() == ".npz":
            return features(path)
        raise LongtailError(
            "expected a folder, a .txt or .csv list, a .parquet file or an .npz of features, got"
            f" {path}."
        )
    if is_function(name) and not path.exists():
        return from_function(name, root=root)
    if not path.is_dir():
        other = (
            "or the path of a folder of class folders, of a .txt or .csv list, or of parquet files:"
            " there is none of that name here"
        )
        raise unknown("dataset", name, KNOWN, more=f"; {other}")
    if root is not None:
        raise LongtailError(
            f"expected --root only with a known name or a list, got it with the folder {path}."
            " Leave it out."
        )
    return parquet(path) if parquet_files(path) else folder(path, least=least)


def assemble(source: Source, *, protocol: Protocol = "holdout", split_seed: int = 0) -> Dataset:
    """Hold out what the source has not: a source with digests becomes a dataset."""
    _check_attributes(source)
    source = _classes_to_learn(source)
    classes, train, warnings = source.classes, source.splits["train"], list(source.warnings)
    source_counts = np.bincount(train.target, minlength=len(classes))
    test, val = source.splits.get("test"), source.splits.get("val")
    domains = source.categories.get("domain", ())
    if test is None:
        train, test = hold_out(
            train, classes, share=5, seed=split_seed, purpose="test", domains=domains
        )
    if val is None and protocol == "holdout":
        train, val = hold_out(
            train, classes, share=10, seed=split_seed, purpose="val", domains=domains
        )
    if val is None:
        val = train.take(np.arange(0))

    single = [classes[i] for i in np.flatnonzero(source_counts == 1)]
    if single:
        warnings.append(f"{len(single):,} classes have a single training image: {several(single)}.")
    untested = [
        classes[i] for i in np.flatnonzero(np.bincount(test.target, minlength=len(classes)) == 0)
    ]
    if untested:
        warnings.append(
            f"{len(untested):,} classes have no test image: they are trained, but not evaluated:"
            f" {several(untested)}."
        )
    warnings += [said for said in (shared(train, test),) if said]

    assert source.size is not None
    cropped = source.geometry == "crop" and source.size <= LARGEST_CROPPED
    crop = source.crop if cropped else 1.0
    # A folder may be called what is no text, and files and pages name it
    return Dataset(
        name=source.name.encode(errors="replace").decode(),
        classes=classes,
        train=_split(train, crop),
        val=_split(val, crop),
        test=_split(test, crop),
        counts=torch.bincount(torch.from_numpy(train.target), minlength=len(classes)),
        source_counts=torch.from_numpy(source_counts),
        groups=_grouping(source, source_counts)(source_counts.tolist()),
        size=source.size,
        hash=split_hash(
            {"train": train, "val": val, "test": test},
            categories=source.categories,
            class_attributes=source.class_attributes,
        ),
        protocol=protocol,
        native=source.native,
        mirror=source.mirror,
        geometry=source.geometry,
        caveats=source.caveats,
        warnings=tuple(warnings),
        categories=source.categories,
        class_attributes={
            name: torch.from_numpy(values) for name, values in source.class_attributes.items()
        },
        scorer=source.scorer,
    )


def _grouping(source: Source, counts: NDArray[np.int64]) -> Callable[[Sequence[int]], Groups]:
    """The source's rule; but for people's data, whose rule is about rare classes, one that fits
    data without a tail.
    """
    if source.grouping is not natural_groups:
        return source.grouping
    if not counts.all():
        return seen_groups
    return one_group if "domain" in source.splits["train"].columns else natural_groups


def _check_attributes(source: Source) -> None:
    for name, values in source.class_attributes.items():
        if len(values) != len(source.classes):
            raise LongtailError(
                f"{source.name}: expected a row of the attribute {name!r} for each of"
                f" {len(source.classes)} classes, got {len(values)}."
            )


def _classes_to_learn(source: Source) -> Source:
    """Refuse classes that cannot be told apart or have no image; leave out those that only
    validation or test know.
    """
    alike = defaultdict(list)
    for name in source.classes:
        alike[name.casefold()].append(name)
    clashes = [" and ".join(names) for names in alike.values() if len(names) > 1]
    if clashes:
        raise LongtailError(
            f"{source.name}: expected class names that differ in more than case, got"
            f" {several(clashes)}. Rename or merge them."
        )

    trained = np.bincount(source.splits["train"].target, minlength=len(source.classes)) > 0
    if trained.all() or source.class_attributes:
        return source
    elsewhere = np.zeros_like(trained)
    for rows in source.splits.values():
        elsewhere[rows.target] = True
    empty = [source.classes[i] for i in np.flatnonzero(~elsewhere)]
    if empty:
        raise LongtailError(
            f"{source.name}: expected a training image in every class, got none in"
            f" {several(empty, shown=20)}. Add images or remove them."
        )
    index = np.cumsum(trained) - 1
    splits, left_out = {}, []
    for split, rows in source.splits.items():
        kept = rows.take(np.flatnonzero(trained[rows.target]))
        splits[split] = replace(kept, target=index[kept.target])
        if len(kept) < len(rows):
            left_out.append(f"{len(rows) - len(kept):,} {split} images")
    unseen = [source.classes[i] for i in np.flatnonzero(~trained)]
    said = (
        f"{len(unseen):,} classes have no training image and were left out, with"
        f" {' and '.join(left_out)}: {several(unseen)}."
    )
    classes = tuple(name for name, kept in zip(source.classes, trained, strict=True) if kept)
    return replace(source, classes=classes, splits=splits, warnings=(*source.warnings, said))


def _split(rows: Rows, crop: float) -> Split:
    columns = {name: torch.from_numpy(values) for name, values in rows.columns.items()}
    return Split(rows.inputs, torch.from_numpy(rows.target), rows.ids, crop, columns)
