"""What every dataset must do."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Mapping
from itertools import islice
from typing import Any

import torch
from torch import Tensor

from longtail.data.dataset import Dataset, Split
from longtail.data.loader import EvalLoader, TrainLoader
from longtail.data.views import CropFlip
from longtail.testing.requiring import require

BATCH = 4


def check_dataset(opens: Callable[[], Dataset], *, images: int = 8) -> None:
    """Check that a dataset is the same each time it is opened, and aligned in all its parts.

    It catches:

    - an empty training split, targets that are no class, class names that are not unique;
    - ids that are not unique, or in more than one split, as where test images also train;
    - counts that are not those of the training split, groups that leave a class out or share one;
    - columns that a split lacks or has in another form, categories that do not name all numbers,
      and attributes that are not one row per class;
    - a hash, an order, columns or pixels that change from one opening to the next;
    - images that are not floats (3, size, size) in [0, 1] when loaded;
    - batches that depend on where an epoch was started or on the number of loader workers;
    - a dataset that cannot be pickled, which loader workers need.

    Args:
        opens: opens the dataset; called twice.
        images: how many images of each split are compared.

    >>> from longtail.data.open import open_data
    >>> check_dataset(lambda: open_data("digits-lt"))
    """
    data, reopened = opens(), opens()
    _check_classes(data)
    for name, split in _splits(data).items():
        _check_targets(name, split, len(data.classes))
    _check_ids(data)
    _check_counts(data)
    _check_columns(data)
    _check_same(data, reopened, images, "opened again")
    try:
        copy = pickle.loads(pickle.dumps(data))
    except Exception as error:
        raise AssertionError(
            f"the dataset cannot be pickled, as loader workers need: {type(error).__name__}:"
            f" {error}"
        ) from error
    _check_same(data, copy, images, "unpickled")
    _check_loading(data, images)


def _splits(data: Dataset) -> dict[str, Split]:
    return {"train": data.train, "val": data.val, "test": data.test}


def _check_classes(data: Dataset) -> None:
    require(len(data.train), "the training split is empty")
    repeated = [name for name in data.classes if data.classes.count(name) > 1]
    require(not repeated, f"classes have the same name: {repeated[:3]}")


def _check_targets(name: str, split: Split, classes: int) -> None:
    target = split.target
    require(
        target.dtype == torch.int64 and target.ndim == 1,
        f"targets of {name} are {target.dtype} {tuple(target.shape)} instead of int64 (N,)",
    )
    wrong = target[(target < 0) | (target >= classes)]
    require(
        not len(wrong), f"targets of {name} are not in 0 to {classes - 1}: {wrong[:3].tolist()}"
    )


def _check_ids(data: Dataset) -> None:
    split_of: dict[str, str] = {}
    for name, split in _splits(data).items():
        for row_id in split.ids:
            require(
                row_id not in split_of,
                f"the id {row_id!r} of {name} is in {split_of.get(row_id)} as well: an image"
                " has one"
                " id and is in one split",
            )
            split_of[row_id] = name


def _check_counts(data: Dataset) -> None:
    counted = torch.bincount(data.train.target, minlength=len(data.classes))
    require(
        torch.equal(data.counts, counted),
        f"counts are {data.counts.tolist()[:5]}..., the training split has "
        f"{counted.tolist()[:5]}...",
    )
    require(
        len(data.source_counts) == len(data.classes),
        f"source_counts has {len(data.source_counts)} entries for {len(data.classes)} classes",
    )
    grouped = sorted(c for members in data.groups.members.values() for c in members)
    require(grouped == list(range(len(data.classes))), "groups do not have every class once")


def _check_columns(data: Dataset) -> None:
    splits = {name: split for name, split in _splits(data).items() if len(split)}
    forms = {
        name: {key: (column.dtype, column.shape[1:]) for key, column in split.columns.items()}
        for name, split in splits.items()
    }
    for name, form in forms.items():
        require(
            form == forms["train"], f"{name} has the columns {form}, train has {forms['train']}"
        )
    for name, values in data.class_attributes.items():
        require(
            len(values) == len(data.classes),
            f"the attribute {name!r} has {len(values)} rows for {len(data.classes)} classes",
        )
    for name, words in data.categories.items():
        columns = [split.columns[name] for split in splits.values() if name in split.columns]
        columns += [data.class_attributes[name]] if name in data.class_attributes else []
        require(columns, f"categories name {name!r}, which is no column and no class attribute")
        for values in columns:
            require(
                not values.is_floating_point() and 0 <= values.min() <= values.max() < len(words),
                f"{name!r} has numbers from {values.min()} to {values.max()} for {len(words)} "
                "categories",
            )


def _equal(one: Tensor, other: Tensor) -> bool:
    """Whether two tensors are equal, where an empty cell (NaN) equals another."""
    if one.dtype != other.dtype or one.shape != other.shape:
        return False
    return bool(((one == other) | ((one != one) & (other != other))).all())


def _check_same(data: Dataset, other: Dataset, images: int, label: str) -> None:
    require(data.hash == other.hash, f"{label}, it has another hash: {data.hash} and {other.hash}")
    require(data.classes == other.classes, f"{label}, it has other classes, or in another order")
    for name, split in _splits(data).items():
        counterpart = _splits(other)[name]
        require(
            split.ids == counterpart.ids and torch.equal(split.target, counterpart.target),
            f"{label}, {name} has other rows, or in another order",
        )
        for key, values in split.columns.items():
            same = key in counterpart.columns and _equal(values, counterpart.columns[key])
            require(same, f"{label}, {name} has another column {key!r}")
        if len(split):
            first, second = (_some(part, data.size, images) for part in (split, counterpart))
            require(torch.equal(first, second), f"{label}, {name} has other pixels")


def _some(split: Split, size: int, images: int) -> Tensor:
    batches = EvalLoader(split, size=size, batch=BATCH).epoch()
    return torch.cat([batch["image"] for batch in islice(batches, -(-images // BATCH))])


def _check_loading(data: Dataset, images: int) -> None:
    for name, split in _splits(data).items():
        if not len(split):
            continue
        for number, batch in enumerate(
            islice(EvalLoader(split, size=data.size, batch=BATCH).epoch(), -(-images // BATCH))
        ):
            rows = range(number * BATCH, min((number + 1) * BATCH, len(split)))
            require(
                batch["target"].tolist() == split.target[rows.start : rows.stop].tolist()
                and batch["index"].tolist() == list(rows),
                f"{name} is not loaded in its order",
            )
            loaded: Mapping[str, Any] = batch
            for key, values in split.columns.items():
                require(
                    _equal(loaded[key], values[rows.start : rows.stop]),
                    f"the column {key!r} of {name} is not loaded with its rows",
                )
            image = batch["image"]
            require(
                image.dtype == torch.float32 and bool(image.isfinite().all()),
                f"images of {name} are {image.dtype}, or not finite",
            )
            if image.ndim == 4:
                shape = (3, data.size, data.size)
                require(
                    image.shape[1:] == shape and image.min() >= 0 and image.max() <= 1,
                    f"images of {name} are {tuple(image.shape[1:])} from {image.min():.3g} to "
                    f"{image.max():.3g} instead of {shape} in [0, 1]",
                )
    size = min(BATCH, len(data.train))
    view = CropFlip(data.size, pad=1, flip=data.mirror)

    def batches(*, start: int, workers: int = 0) -> list[Mapping[str, Any]]:
        loader = TrainLoader(data.train, view=view, batch=size, seed=3, workers=workers)
        return list(islice(loader.epoch(1, start=start), 3))

    expected_batches = batches(start=0)
    for label, got, expected in (
        ("the same epoch again", batches(start=0), expected_batches),
        ("an epoch that is started in the middle", batches(start=1)[:2], expected_batches[1:]),
        ("two loader workers", batches(start=0, workers=2), expected_batches),
    ):
        for one, other in zip(got, expected, strict=False):
            differ = [key for key in one if not _equal(one[key], other[key])]
            require(not differ, f"{label}: the batch has another {', '.join(differ)}")
