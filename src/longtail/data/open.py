"""Open a name, a folder, a list, parquet files, features or a function as a `Dataset`."""

from __future__ import annotations

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
from longtail.data.domains import leave_domain_out, with_domain_names
from longtail.data.images.reading import read
from longtail.data.names import KNOWN
from longtail.data.pairs import requested_pairs
from longtail.data.readers.cifar import cifar
from longtail.data.readers.digits import digits
from longtail.data.readers.domains import domains as domains_in
from longtail.data.readers.features import features
from longtail.data.readers.folders import folder
from longtail.data.readers.functions import from_function, is_function
from longtail.data.readers.lists import image_list, published
from longtail.data.readers.mat import mat, mat_files
from longtail.data.readers.pairs import (
    PAIR_DATA,
    is_pair_list,
    named_pairs,
    pair_folder,
    pair_list,
    pair_splits,
)
from longtail.data.readers.parquet import parquet, parquet_files
from longtail.data.readers.shapes import SHAPES_DATA, shapes_lt
from longtail.data.request import LIST_SUFFIXES, DataRequest, Protocol, data_flags
from longtail.data.source import Rows, Source, listing
from longtail.data.splits import (
    hold_out,
    hold_out_classes,
    natural_groups,
    one_group,
    seen_groups,
    shared,
    split_hash,
)
from longtail.errors import LongtailError, warn
from longtail.naming import expand_user, unknown
from longtail.records.groups import Groups

LARGEST_CROPPED = 224
"""The largest size in pixels at which `Source.crop` applies.

Larger inputs use the full central square, as LiVT does at 384.
"""


def open_dataset(
    request: DataRequest, *, size: int | None = None, device: str = "cpu", legacy: bool = False
) -> Dataset:
    """Open the requested data, in the first process before the others so that only one downloads.

    Args:
        request: Which data, and how it is split.
        size: Side of the network's input in pixels; chosen from the images by default.
        device: The device of the processes, which determines how they communicate.
        legacy: Open it like versions that recorded no geometry: pad images that all fit into
            memory, crop them otherwise, and drop the columns of lists and parquet files.
    """
    return first_process_first(lambda: _open(request, size=size, legacy=legacy), device)


def first_process_first(opening: Callable[[], Dataset], device: str) -> Dataset:
    """Open data in the first process, then in the others, and print its warnings once."""
    voting = "cuda" if device.startswith("cuda") else "cpu"  # the backend is nccl or gloo
    if processes.rank() != 0:
        processes.any_rank(False, voting)
    dataset = opening()
    if processes.rank() == 0:
        for warning in dataset.warnings:
            warn(warning)
        processes.any_rank(False, voting)
    return dataset


def open_data(source: str | Path, *, size: int | None = None, **flags: Any) -> Dataset:
    """Open a dataset by name or path: the known names are in `longtail.data.names`.

    A path is a folder of class folders (`folders.folder`), a .txt or .csv list of images under
    `root` (`lists.image_list`), a parquet file or a folder of them (`parquet.parquet`), or an .npz
    of features (`features.features`). "package.module:function" is a function that returns a
    `Source`.

    With the protocol `holdout`, a source without a validation set gets one from training: a tenth
    of each class, and at least one image of a class with five or more. With `paper`, all training
    images are used for training. `adapt` is `holdout`, and `Dataset.unlabelled` has the test images
    without their classes. With all of them, a source without a test set gets one first: a fifth
    of each class. The choice depends on `split_seed` only. With `test_domain`, the test set is all
    images of that domain, and validation is a fifth of each class and training domain.

    Args:
        source: A name, a path or "package.module:function".
        size: Side of the network's input in pixels; chosen from the images by default.
        **flags: The fields of `DataRequest`, such as `imbalance` and `profile` of the -lt datasets,
            `mirror` (whether a horizontal flip keeps the class; true by default except for digits)
            and `geometry` (published datasets crop and all others pad by default).

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
    """Open data for evaluation only: without a test split, all images are test images.

    Args:
        request: Which data.
        size: Side in pixels of the data that the network was trained on.
        crop: Evaluated share of the central square of that data.
        learnt: Hash, protocol and split seed of that data. If this is the same data, it is split
            as it was for training, so that only its held-out images are evaluated.
    """
    source = find(request, least=1)
    source = read(
        source,
        size=size if source.splits["train"].inputs.vectors() is None else None,
        geometry=request.geometry,
        memory=0,
        on_bad_image=request.on_bad_image,
    )
    if crop is not None:
        source = replace(source, crop=crop)
    if learnt is not None:
        trained_hash, protocol, split_seed = learnt
        dataset = assemble(source, protocol=protocol, split_seed=split_seed)
        if dataset.hash == trained_hash:
            return replace(
                dataset,
                warnings=(
                    *dataset.warnings,
                    (
                        "this is the data that the run was trained on: only its held-out images are"
                        " evaluated."
                    ),
                ),
            )
    if "test" in source.splits:
        return assemble(source, protocol="paper")
    dataset = assemble(
        replace(source, splits={**source.splits, "test": source.splits["train"]}), protocol="paper"
    )
    return replace(dataset, warnings=source.warnings)


def find(request: DataRequest | str, *, least: int = 2) -> Source:
    """Find the requested data, or a name or path, and list its files without reading them.

    A folder must have at least `least` classes. With a test domain, that domain is the test split
    and the training domains are the others.
    """
    request = request if isinstance(request, DataRequest) else DataRequest(request)
    source = requested_pairs(_find(request, least=least), request)
    if request.test_domain is None:
        return source
    return leave_domain_out(source, request.test_domain, train=request.train_domains)


def find_all(request: DataRequest) -> Source:
    """Find the requested data like `find`; the test domain "all" leaves no domain out."""
    if request.test_domain != "all":
        return find(request)
    if request.train_domain is not None:
        raise LongtailError("--train-domain has no effect with --test-domain all: remove it.")
    return with_domain_names(requested_pairs(_find(request), request))


def domain_names(request: DataRequest) -> tuple[str, ...]:
    """The domains of the requested data, of which its `test_domain` may be none."""
    source = _find(replace(request, test_domain="any", train_domain=None))
    return with_domain_names(source).categories["domain"]


def _find(request: DataRequest, *, least: int = 2) -> Source:
    """Find the requested data; with a test domain, the folders of a folder are its domains."""
    name, imbalance, profile = request.source, request.imbalance, request.profile
    if (imbalance is not None or profile != "exp") and name not in (
        "digits-lt",
        "shapes-lt",
        "cifar10-lt",
        "cifar100-lt",
    ):
        raise LongtailError(
            "--imbalance and --profile apply only to digits-lt, shapes-lt, cifar10-lt and"
            f" cifar100-lt: remove them for {name}."
        )
    root = None if request.root is None else Path(request.root)
    if name == "digits-lt":
        return digits(imbalance=imbalance, profile=profile)
    if name == "shapes-lt":
        return shapes_lt(imbalance=imbalance, profile=profile)
    if name in SHAPES_DATA:
        return SHAPES_DATA[name]()
    if name.startswith("cifar") and name in KNOWN:
        return cifar(name, root=root, imbalance=imbalance, profile=profile)
    if name in PAIR_DATA:
        return named_pairs(name, root=root)
    if name in KNOWN:
        return published(name, root=root)
    path = expand_user(name)
    if path.is_file():
        if path.suffix.lower() in LIST_SUFFIXES:
            reader = pair_list if is_pair_list(path) else image_list
            return reader(path, root=root)
        if path.suffix.lower() == ".parquet":
            return parquet(path)
        if path.suffix.lower() == ".npz":
            return features(path)
        if path.suffix.lower() == ".mat":
            return mat(path)
        raise LongtailError(
            "expected a folder, a .txt or .csv list, a .parquet file or an .npz of features, got"
            f" {path}."
        )
    if is_function(name) and not path.exists():
        return from_function(name, root=root)
    if not path.is_dir():
        more = (
            "; or the path of a folder of class folders, of a .txt or .csv list, or of parquet"
            " files, but no such path exists"
        )
        raise unknown("dataset", name, KNOWN, more=more)
    shards = parquet_files(path)
    if request.test_domain is not None and not shards:
        return domains_in(path, root=root)
    if root is not None:
        raise LongtailError(
            f"--root applies only to a known name or a list: remove it for the folder {path}."
        )
    if pair_folder(path) is not None:
        return pair_splits(path)
    if mat_files(path):
        return mat(path)
    return parquet(path) if shards else folder(path, least=least)


def joined_labels(classes: Sequence[str]) -> list[str]:
    """The class names that consist of two or more other class names and a separator.

    >>> joined_labels(["cat", "dog", "cat|dog", "dog+cat", "black|white"])
    ['cat|dog', 'dog+cat']
    """
    known = set(classes)
    return [
        name
        for name in classes
        if any(
            separator in name and all(part.strip() in known for part in name.split(separator))
            for separator in "|;,+&/"
        )
    ]


def assemble(source: Source, *, protocol: Protocol = "holdout", split_seed: int = 0) -> Dataset:
    """Build a dataset from a source with digests, holding out the splits that it lacks."""
    _check_attributes(source)
    source = _classes_to_learn(source)
    classes, train, warnings = source.classes, source.splits["train"], list(source.warnings)
    test, val = source.splits.get("test"), source.splits.get("val")
    if _needs_validation_classes(source) and protocol == "holdout":
        train, val, held = hold_out_classes(train, classes, seed=split_seed)
        assert test is not None
        kept = np.flatnonzero(~np.isin(test.target, held))
        warnings.append(
            f"{len(held):,} classes are validation classes: they are not trained on, and their"
            f" {len(test) - len(kept):,} test images are left out. --protocol paper trains on"
            " all classes, without validation."
        )
        test = test.take(kept)
    source_counts = np.bincount(train.target, minlength=len(classes))
    domains = source.categories.get("domain", ())
    if test is None:
        train, test = hold_out(
            train, classes, share=5, seed=split_seed, purpose="test", domains=domains
        )
    if val is None and protocol != "paper":
        share = 10 if source.test_domain is None else 5  # a fifth, as for domains in the field
        train, val = hold_out(
            train, classes, share=share, seed=split_seed, purpose="val", domains=domains
        )
    if val is None:
        val = train.take(np.arange(0))

    if joined := joined_labels(classes):
        warnings.append(
            f"{len(joined):,} labels join others that also occur alone, and each is a separate"
            f" class here: {listing(joined)}. If these images have several labels, give each image"
            " the one that counts."
        )
    single = [classes[i] for i in np.flatnonzero(source_counts == 1)]
    if single:
        warnings.append(f"{len(single):,} classes have a single training image: {listing(single)}.")
    tested = np.bincount(test.target, minlength=len(classes)) > 0
    untested = [classes[i] for i in np.flatnonzero((source_counts > 0) & ~tested)]
    if untested:
        warnings.append(
            f"{len(untested):,} classes have no test image: they are trained, but not evaluated:"
            f" {listing(untested)}."
        )
    if duplicates := shared(train, test):
        warnings.append(duplicates)

    assert source.size is not None
    crop = evaluated_crop(source)
    # The name of a folder may not be valid UTF-8, but the name is written into files and pages
    return Dataset(
        name=source.name.encode(errors="replace").decode(),
        classes=classes,
        train=as_split(train, crop),
        val=as_split(val, crop),
        test=as_split(test, crop),
        counts=torch.bincount(torch.from_numpy(train.target), minlength=len(classes)),
        source_counts=torch.from_numpy(source_counts),
        groups=_grouping(source, source_counts)(source_counts.tolist()),
        size=source.size,
        hash=split_hash(
            {"train": train, "val": val, "test": test},
            categories=source.categories,
            class_attributes=source.class_attributes,
            word_vectors=source.word_vectors,
            pairs=source.pairs,
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
        word_vectors={
            name: torch.from_numpy(values) for name, values in source.word_vectors.items()
        },
        pairs=source.pairs,
        pretraining=source.pretraining,
        backbone=source.backbone,
        scorer=source.scorer,
        test_domain=source.test_domain,
        unlabelled=_unlabelled(test, train, source, crop) if protocol == "adapt" else None,
    )


def _needs_validation_classes(source: Source) -> bool:
    """Whether unseen classes are tested, but none are in validation: for zero-shot learning.

    Only of classes that vectors describe: of pairs, validation needs pairs whose parts are seen.
    """
    if "vector" not in source.class_attributes or "attribute" in source.class_attributes:
        return False
    if "val" in source.splits or "test" not in source.splits:
        return False
    unseen = np.setdiff1d(source.splits["test"].target, source.splits["train"].target)
    return bool(len(unseen)) and len(np.unique(source.splits["train"].target)) >= 3


def _grouping(source: Source, counts: NDArray[np.int64]) -> Callable[[Sequence[int]], Groups]:
    """The source's rule for groups; the default rule is replaced for data without a tail."""
    if source.grouping is not natural_groups:
        return source.grouping
    if not counts.all():
        return seen_groups
    return one_group if "domain" in source.splits["train"].columns else natural_groups


def _check_attributes(source: Source) -> None:
    """Raise unless every class has a row of finite numbers in each class attribute."""
    for name, values in source.class_attributes.items():
        if len(values) != len(source.classes):
            raise LongtailError(
                f"{source.name}: class attribute {name!r} must have a row for each of"
                f" {len(source.classes)} classes, got {len(values)}."
            )
        if values.dtype.kind == "f" and not np.isfinite(values).all():
            broken = ~np.isfinite(values.reshape(len(values), -1)).all(axis=1)
            missing = listing(source.classes[i] for i in np.flatnonzero(broken))
            raise LongtailError(
                f"{source.name}: class attribute {name!r} is missing (NaN or infinite) for"
                f" {missing}: add it, or remove the classes."
            )


def _classes_to_learn(source: Source) -> Source:
    """Drop classes without training images.

    Raises if two names differ only in case, or if a class has no image in any split.
    """
    same_name = defaultdict(list)
    for name in source.classes:
        same_name[name.casefold()].append(name)
    clashes = [" and ".join(names) for names in same_name.values() if len(names) > 1]
    if clashes:
        raise LongtailError(
            f"{source.name}: expected class names that differ in more than case, got"
            f" {listing(clashes)}. Rename or merge them."
        )

    trained = np.bincount(source.splits["train"].target, minlength=len(source.classes)) > 0
    if trained.all() or source.class_attributes:
        return source
    has_images = np.zeros_like(trained)
    for rows in source.splits.values():
        has_images[rows.target] = True
    empty = [source.classes[i] for i in np.flatnonzero(~has_images)]
    if empty:
        raise LongtailError(
            f"{source.name}: expected a training image in every class, got none in"
            f" {listing(empty, shown=20)}. Add images or remove them."
        )
    index = np.cumsum(trained) - 1
    splits, dropped = {}, []
    for split, rows in source.splits.items():
        kept = rows.take(np.flatnonzero(trained[rows.target]))
        splits[split] = replace(kept, target=index[kept.target])
        if len(kept) < len(rows):
            dropped.append(f"{len(rows) - len(kept):,} {split} images")
    unseen = [source.classes[i] for i in np.flatnonzero(~trained)]
    warning = (
        f"{len(unseen):,} classes have no training image and were left out, with"
        f" {' and '.join(dropped)}: {listing(unseen)}."
    )
    classes = tuple(name for name, kept in zip(source.classes, trained, strict=True) if kept)
    return replace(source, classes=classes, splits=splits, warnings=(*source.warnings, warning))


def _unlabelled(test: Rows, train: Rows, source: Source, crop: float) -> Split:
    """The test images without their classes; refuse data whose two parts have other classes."""
    trained, tested = {*train.target.tolist()}, {*test.target.tolist()}
    if differ := sorted(trained ^ tested):
        where = source.test_domain or "the test images"
        names = listing(source.classes[label] for label in differ)
        raise LongtailError(
            f"{source.name}: --protocol adapt needs the same classes in training and in {where},"
            f" and only one of them has {names}. Remove these classes, or add images."
        )
    return replace(as_split(test, crop), target=torch.full((len(test),), -1))


def evaluated_crop(source: Source) -> float:
    """The share of the central square of an image that is evaluated."""
    assert source.size is not None
    return source.crop if source.geometry == "crop" and source.size <= LARGEST_CROPPED else 1.0


def as_split(rows: Rows, crop: float) -> Split:
    """Rows of a source as a split."""
    columns = {name: torch.from_numpy(values) for name, values in rows.columns.items()}
    return Split(rows.inputs, torch.from_numpy(rows.target), rows.ids, crop, columns)
