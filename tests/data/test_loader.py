from __future__ import annotations

import multiprocessing
import os
import pickle
import random
import signal
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from PIL import Image
from torch import Tensor

from longtail import processes
from longtail.core import Batches, Labelled, LabelledViews
from longtail.data.augmentations import CifarAutoAugment, RandAugment, SimClr
from longtail.data.dataset import Split
from longtail.data.images.stores import ArrayImages, ImageStore
from longtail.data.loader import EvalLoader, TrainLoader, load_images
from longtail.data.samplers import ClassBalanced, Instance, RepeatedAugmentation, Sampler
from longtail.data.views import CenterCrop, CropFlip, TwoViews, View
from longtail.errors import LongtailError

ROWS, SIZE = 43, 8
PIXELS = torch.randint(
    256, (ROWS, 3, SIZE, SIZE), dtype=torch.uint8, generator=torch.Generator().manual_seed(0)
)
TARGET = torch.arange(ROWS) % 4


@dataclass(frozen=True)
class Streamed(ImageStore):
    """The same images, decoded one by one."""

    pixels: Tensor

    def __len__(self) -> int:
        return len(self.pixels)

    def image(self, index: int) -> Image.Image:
        return ArrayImages(self.pixels).image(index)

    def take(self, rows: NDArray[np.int64]) -> Streamed:
        return Streamed(self.pixels[torch.from_numpy(rows)])


MEMORY = Split(ArrayImages(PIXELS), TARGET, tuple(map(str, range(ROWS))))
STREAM = Split(Streamed(PIXELS), TARGET, MEMORY.ids)
VIEWS: list[View] = [CropFlip(SIZE, cutout=4), CifarAutoAugment(SIZE, cutout=4), RandAugment(SIZE)]


def same(left: Mapping[str, Any], right: Mapping[str, Any]) -> bool:
    return left.keys() == right.keys() and all(torch.equal(left[key], right[key]) for key in left)


def all_same(left: Iterator[Any] | list[Any], right: Iterator[Any] | list[Any]) -> bool:
    pairs = list(zip(left, right, strict=True))
    return bool(pairs) and all(same(*pair) for pair in pairs)


@pytest.fixture
def process(monkeypatch: pytest.MonkeyPatch) -> Any:
    def pretend(rank: int, world_size: int) -> None:
        monkeypatch.setattr(processes, "rank", lambda: rank)
        monkeypatch.setattr(processes, "world_size", lambda: world_size)

    return pretend


@pytest.mark.parametrize("split", [MEMORY, STREAM], ids=["memory", "stream"])
@pytest.mark.parametrize("view", VIEWS, ids=lambda view: type(view).__name__)
def test_the_middle_of_an_epoch_equals_its_tail(split: Split, view: View) -> None:
    loader = TrainLoader(split, view=view, batch=10, seed=3)
    batches = list(loader.epoch(2))
    assert len(batches) == len(loader) == 4
    for start in range(4):
        assert all_same(
            TrainLoader(split, view=view, batch=10, seed=3).epoch(2, start=start), batches[start:]
        )
    assert list(loader.epoch(2, start=4)) == []


@pytest.mark.parametrize("sampler", [Instance(), ClassBalanced(), RepeatedAugmentation()], ids=str)
def test_batches_are_what_they_say(sampler: Sampler) -> None:
    for number, batch in enumerate(
        TrainLoader(MEMORY, view=CenterCrop(SIZE), batch=10, seed=3, sampler=sampler).epoch(1)
    ):
        assert set(batch) == {"image", "target", "position", "index"}
        assert batch["image"].dtype == torch.float32
        assert torch.equal(batch["image"], PIXELS[batch["index"]] / 255)
        assert torch.equal(batch["target"], TARGET[batch["index"]])
        assert batch["position"].tolist() == list(range(10 * number, 10 * number + 10))
        assert (
            batch["index"].tolist()
            == sampler.order(TARGET, epoch=1, seed=3)[10 * number : 10 * number + 10].tolist()
        )


def test_images_in_memory_and_on_disk_give_equal_batches() -> None:
    memory, stream = (
        TrainLoader(split, view=VIEWS[0], batch=10, seed=3).epoch(0) for split in (MEMORY, STREAM)
    )
    assert all_same(memory, stream)


def test_images_in_memory_of_another_size_are_resized() -> None:
    batch = next(TrainLoader(MEMORY, view=CropFlip(12), batch=10, seed=3).epoch(0))
    assert batch["image"].shape == (10, 3, 12, 12)


def test_workers_change_nothing() -> None:
    alone = TrainLoader(STREAM, view=VIEWS[1], batch=10, seed=3)
    helped = TrainLoader(STREAM, view=VIEWS[1], batch=10, seed=3, workers=2)
    assert all_same(list(helped.epoch(1, start=1)), alone.epoch(1, start=1))


@pytest.mark.parametrize("view", VIEWS, ids=lambda view: type(view).__name__)
@pytest.mark.parametrize("rows", [ROWS, 11])
def test_the_union_of_two_processes_is_one_processs_batch(
    view: View, rows: int, process: Any
) -> None:
    split = Split(ArrayImages(PIXELS[:rows]), TARGET[:rows], MEMORY.ids[:rows])
    loader = TrainLoader(split, view=view, batch=20, seed=3)
    batches = list(loader.epoch(1))
    shares = []
    for rank in range(2):
        process(rank, 2)
        assert len(loader) == len(batches)
        shares.append(list(loader.epoch(1)))
    for batch, first, second in zip(batches, *shares, strict=True):
        union = {key: torch.cat([first[key], second[key]]) for key in batch}
        shared = len(batch["position"]) // 2 * 2
        assert len(first["position"]) == len(second["position"]) == shared // 2
        assert same(union, {key: value[:shared] for key, value in batch.items()})


def test_epochs_seeds_and_positions_change_the_views() -> None:
    one = Split(ArrayImages(PIXELS[:1].expand(8, -1, -1, -1)), TARGET[:8], MEMORY.ids[:8])
    for view in VIEWS:
        first = next(TrainLoader(one, view=view, batch=8, seed=0).epoch(0))["image"]
        assert len(first.flatten(1).unique(dim=0)) >= 5
        for other in (
            TrainLoader(one, view=view, batch=8, seed=1).epoch(0),
            TrainLoader(one, view=view, batch=8, seed=0).epoch(1),
        ):
            assert not torch.equal(next(other)["image"], first)


def test_small_splits_give_one_batch_and_full_ones_drop_the_rest() -> None:
    assert len(TrainLoader(MEMORY, view=CropFlip(SIZE), batch=ROWS, seed=0)) == 1
    (batch,) = TrainLoader(MEMORY, view=CropFlip(SIZE), batch=64, seed=0).epoch(0)
    assert sorted(batch["index"].tolist()) == list(range(ROWS))


def test_two_views_come_as_view1_and_view2() -> None:
    loader = TrainLoader(MEMORY, view=TwoViews(CropFlip(SIZE), SimClr(SIZE)), batch=10, seed=0)
    views: Batches[LabelledViews] = loader
    batch = next(loader.epoch(0))
    assert set(batch) == {"view1", "view2", "target", "position", "index"}
    assert batch["view1"].shape == batch["view2"].shape == (10, 3, SIZE, SIZE)
    assert not torch.equal(batch["view1"], batch["view2"])
    assert all_same(views.epoch(0, start=2), list(views.epoch(0))[2:])


def states() -> tuple[Any, Any, Tensor]:
    return random.getstate(), np.random.get_state()[1].tolist(), torch.get_rng_state()  # type: ignore[index]  # noqa: NPY002


@pytest.mark.parametrize("workers", [0, 1])
def test_reading_data_does_not_disturb_the_generators(workers: int) -> None:
    before = states()
    for split in (MEMORY, STREAM):
        for _ in TrainLoader(
            split, view=CifarAutoAugment(SIZE), batch=20, seed=0, workers=workers
        ).epoch(0):
            assert states()[:2] == before[:2]
            assert torch.equal(states()[2], before[2])
        list(EvalLoader(split, size=16, batch=20).epoch())
    assert states()[:2] == before[:2]
    assert torch.equal(states()[2], before[2])


@pytest.mark.parametrize("split", [MEMORY, STREAM], ids=["memory", "stream"])
def test_evaluation_goes_through_the_split_in_order(split: Split) -> None:
    data = EvalLoader(split, size=SIZE, batch=10)
    labelled: Batches[Labelled] = data
    batches = list(data.epoch(0))
    assert [len(batch["index"]) for batch in batches] == [10, 10, 10, 10, 3]
    assert len(data) == 5
    assert torch.cat([batch["index"] for batch in batches]).tolist() == list(range(ROWS))
    assert torch.equal(torch.cat([batch["image"] for batch in batches]), PIXELS / 255)
    assert torch.equal(torch.cat([batch["target"] for batch in batches]), TARGET)
    assert all_same(labelled.epoch(7, start=3), batches[3:])


@pytest.mark.parametrize("world_size", [2, 3, 50])
def test_processes_share_the_evaluation_without_duplicates(world_size: int, process: Any) -> None:
    rows = []
    data = EvalLoader(MEMORY, size=SIZE, batch=4)
    for rank in range(world_size):
        process(rank, world_size)
        batches = list(data.epoch(0))
        assert len(batches) == len(data)
        rows += [row for batch in batches for row in batch["index"].tolist()]
    assert rows == list(range(ROWS))


def test_one_image_is_prepared_as_in_evaluation() -> None:
    part = replace(MEMORY, crop=0.75)
    batch = next(EvalLoader(part, size=12, batch=3).epoch())
    assert torch.equal(load_images(part, [2, 0], 12), batch["image"][[2, 0]])
    assert not torch.equal(load_images(MEMORY, [2, 0], 12), batch["image"][[2, 0]])


@pytest.mark.parametrize(
    "view", [*VIEWS, TwoViews(CropFlip(SIZE), SimClr(SIZE))], ids=lambda view: type(view).__name__
)
def test_loaders_can_be_sent_to_spawned_workers(view: View) -> None:
    loader = TrainLoader(STREAM, view=view, batch=10, seed=3)
    assert all_same(pickle.loads(pickle.dumps(loader)).epoch(0), loader.epoch(0))


@dataclass(frozen=True)
class Half:
    def order(self, targets: Tensor, *, epoch: int, seed: int) -> Any:
        return np.arange(len(targets) // 2)


def test_mistakes_are_named(process: Any) -> None:
    with pytest.raises(ValueError, match="must return an order as long as the split"):
        TrainLoader(MEMORY, view=CropFlip(SIZE), batch=10, seed=0, sampler=Half()).epoch(0)
    with pytest.raises(ValueError, match="batch must be at least 1"):
        TrainLoader(MEMORY, view=CropFlip(SIZE), batch=0, seed=0)
    with pytest.raises(ValueError, match="must not be negative"):
        TrainLoader(MEMORY, view=CropFlip(SIZE), batch=10, seed=-1)
    with pytest.raises(ValueError, match="the training split has no rows"):
        TrainLoader(
            Split(ArrayImages(PIXELS[:0]), TARGET[:0], ()), view=CropFlip(SIZE), batch=10, seed=0
        )
    process(0, 3)
    with pytest.raises(ValueError, match="a multiple of the number of processes, 3, got 10: try 9"):
        TrainLoader(MEMORY, view=CropFlip(SIZE), batch=10, seed=0)
    process(0, 50)
    with pytest.raises(ValueError, match="start fewer processes"):
        TrainLoader(MEMORY, view=CropFlip(SIZE), batch=50, seed=0)


def test_workers_leave_signals_to_their_parent() -> None:
    loader = TrainLoader(STREAM, view=VIEWS[2], batch=4, seed=0, workers=1)
    batches = loader.epoch(0)
    first = next(batches)
    for worker in multiprocessing.active_children():
        os.kill(worker.pid or 0, signal.SIGTERM)
    assert all_same([first, *batches], TrainLoader(STREAM, view=VIEWS[2], batch=4, seed=0).epoch(0))


class Unreadable(Streamed):
    def image(self, index: int) -> Image.Image:
        raise LongtailError("image 7 cannot be read: remove it")


@pytest.mark.parametrize("workers", [0, 1])
def test_an_error_in_a_worker_keeps_its_message(workers: int) -> None:
    split = Split(Unreadable(PIXELS), TARGET, STREAM.ids)
    loader = TrainLoader(split, view=VIEWS[2], batch=4, seed=0, workers=workers)
    others = set(multiprocessing.active_children())
    with pytest.raises(LongtailError, match=r"^image 7 cannot be read: remove it$") as caught:
        next(loader.epoch(0))
    assert caught.tb is not None, "it keeps the frames of the loader"
    assert set(multiprocessing.active_children()) <= others, "its workers ended with it"


def test_images_and_labels_that_do_not_fit_are_refused() -> None:
    with pytest.raises(
        ValueError, match=r"expected pixels as uint8 \(N, 3, H, W\), got torch.float32"
    ):
        ArrayImages(PIXELS / 255)
    with pytest.raises(ValueError, match=f"must have equal lengths, got {ROWS}, 3 and 3"):
        Split(ArrayImages(PIXELS), TARGET[:3], MEMORY.ids[:3])
