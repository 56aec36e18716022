"""A good dataset passes, and each fault is caught by the check that is meant for it."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Self

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from PIL import Image

from longtail.data.dataset import Dataset, Split
from longtail.data.images.stores import ArrayImages, ImageStore
from longtail.data.open import open_data
from longtail.records.groups import Groups
from longtail.testing import check_dataset

OPENED = open_data("digits-lt")


@pytest.mark.parametrize("protocol", ["holdout", "paper"])
def test_known_data_passes(protocol: Any) -> None:
    check_dataset(lambda: open_data("digits-lt", protocol=protocol))


def test_a_folder_of_images_passes(tmp_path: Path) -> None:
    generator = np.random.default_rng(0)
    for name, count in {"cat": 12, "dog": 7}.items():
        (tmp_path / name).mkdir()
        for number in range(count):
            pixels = generator.integers(0, 255, (20, 30, 3), dtype=np.uint8)
            Image.fromarray(pixels).save(tmp_path / name / f"{number}.png")
    check_dataset(lambda: open_data(str(tmp_path)))


@dataclass(frozen=True)
class Noisy(ImageStore):
    """Pixels that are others at each reading."""

    images: ImageStore

    def __len__(self) -> int:
        return len(self.images)

    def image(self, index: int) -> Image.Image:
        noise = np.random.default_rng().integers(0, 255, (8, 8, 3), dtype=np.uint8)
        return Image.fromarray(noise)

    def take(self, rows: NDArray[np.int64]) -> Self:
        return replace(self, images=self.images.take(rows))


@dataclass(frozen=True)
class Unpicklable(Noisy):
    """Holds what cannot be sent to a process."""

    def image(self, index: int) -> Image.Image:
        return self.images.image(index)

    def __reduce__(self) -> Any:
        raise TypeError("an open file")


def train(**changes: Any) -> Callable[[], Dataset]:
    return lambda: replace(OPENED, train=replace(OPENED.train, **changes))


def counter() -> Callable[[], Dataset]:
    opened: list[int] = []

    def opens() -> Dataset:
        opened.append(1)
        return replace(OPENED, hash=f"{len(opened)}" * 64)

    return opens


def shuffled() -> Callable[[], Dataset]:
    generator = np.random.default_rng(0)

    def opens() -> Dataset:
        rows = generator.permutation(len(OPENED.train))
        return replace(OPENED, train=OPENED.train.take(rows))

    return opens


ids = OPENED.train.ids
few = Groups("two", {"many": (0, 1), "few": (1, 2)})
FAULTS: dict[str, tuple[Callable[[], Dataset], str]] = {
    "targets": (train(target=OPENED.train.target + 1), "targets of train are not in 0 to 9"),
    "dtype": (train(target=OPENED.train.target.int()), "instead of int64"),
    "ids": (train(ids=(ids[1], *ids[1:])), "the id .* of train is in train as well"),
    "leak": (lambda: replace(OPENED, val=OPENED.test), "the id .* of test is in val as well"),
    "counts": (lambda: replace(OPENED, counts=OPENED.counts + 1), "counts are"),
    "groups": (lambda: replace(OPENED, groups=few), "groups do not have every class once"),
    "names": (lambda: replace(OPENED, classes=("0",) * 10), "classes have the same name"),
    "hash": (counter(), "opened again, it has another hash"),
    "order": (shuffled(), "opened again, train has other rows"),
    "pixels": (
        train(inputs=Noisy(OPENED.train.inputs)),
        "opened again, train has other pixels",
    ),
    "pickle": (
        train(inputs=Unpicklable(OPENED.train.inputs)),
        "cannot be pickled, as loader workers need: TypeError: an open file",
    ),
}


def with_columns(opened: Dataset = OPENED, **more: Any) -> Dataset:
    """Each row with a domain, and an age that is not always known."""

    def rows(split: Split) -> Split:
        domain = torch.arange(len(split)) % 2
        age = torch.arange(len(split)).float().where(domain == 0, torch.nan)
        return replace(split, columns={"domain": domain, "age": age})

    splits = {"train": rows(opened.train), "val": rows(opened.val), "test": rows(opened.test)}
    attributes = {"size": torch.arange(10.0)}
    named = {"domain": ("photo", "sketch")}
    settings = {**splits, "categories": named, "class_attributes": attributes, **more}
    return replace(opened, **settings)


def redrawn() -> Callable[[], Dataset]:
    opened: list[int] = []

    def opens() -> Dataset:
        opened.append(1)
        data = with_columns()
        ages = {**data.train.columns, "age": data.train.columns["age"] + len(opened)}
        return replace(data, train=replace(data.train, columns=ages))

    return opens


def test_columns_and_attributes_pass() -> None:
    check_dataset(with_columns)


FAULTS |= {
    "lacking column": (lambda: with_columns(val=OPENED.val), "val has the columns {}, train has"),
    "categories": (
        lambda: with_columns(categories={"domain": ("photo",)}),
        "'domain' has numbers from 0 to 1 for 1 categories",
    ),
    "named nothing": (
        lambda: with_columns(categories={"place": ("here",)}),
        "categories name 'place', which is no column",
    ),
    "attributes": (
        lambda: with_columns(class_attributes={"size": torch.arange(9)}),
        "the attribute 'size' has 9 rows for 10 classes",
    ),
    "column": (redrawn(), "opened again, train has another column 'age'"),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_is_caught(fault: str) -> None:
    opens, message = FAULTS[fault]
    with pytest.raises(AssertionError, match=message):
        check_dataset(opens)


def test_an_empty_training_split_is_caught() -> None:
    none = Split(ArrayImages(torch.zeros(0, 3, 8, 8, dtype=torch.uint8)), torch.zeros(0).long(), ())
    with pytest.raises(AssertionError, match="the training split is empty"):
        check_dataset(lambda: replace(OPENED, train=none))
