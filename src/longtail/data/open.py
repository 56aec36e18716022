"""Open a name, a folder, a list, parquet files, features or a function as a `Dataset`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

from longtail import processes
from longtail.data.assembly import assemble
from longtail.data.dataset import Dataset
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
from longtail.data.source import Source
from longtail.errors import LongtailError, warn
from longtail.naming import expand_user, unknown
from longtail.records.files import check_regular


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
        if root is not None:
            raise LongtailError(
                f"--root applies only to a known name or a list: remove it for the file {path}."
            )
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
        if path.exists():
            check_regular(path, limit=0)  # a pipe or a device
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
