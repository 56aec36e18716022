"""Batches of an epoch, as functions of (view seed, epoch, draw); no generator is kept.

A `draw` is a row's position in the epoch's order over all processes. The same rows with the same
views come whatever came before, wherever in the epoch one begins, and whatever the number of loader
workers. Processes take contiguous shares of each batch."""

from __future__ import annotations

import random
import signal
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Generic, cast, overload

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import DataLoader
from torch.utils.data import Dataset as TorchDataset

from longtail import processes
from longtail.core import B_co, Labelled, LabelledViews
from longtail.data.dataset import Split
from longtail.data.images.stores import ImageStore
from longtail.data.samplers import Instance, Sampler
from longtail.data.views import Array, Batched, CenterCrop, TwoViews, View
from longtail.errors import LongtailError

_INSTANCE = Instance()


class Drawn(Labelled):
    """Images with class indices, and each one's row in the split."""

    index: Tensor


class DrawnViews(LabelledViews):
    """Two views of each image with class indices, and each one's row in the split."""

    index: Tensor


@contextmanager
def _undisturbed() -> Iterator[None]:
    """Put the global generators back as they were: data must not change what the training step
    draws.
    """
    states = random.getstate(), np.random.get_state(), torch.get_rng_state()  # noqa: NPY002
    try:
        yield
    finally:
        random.setstate(states[0])
        np.random.set_state(states[1])  # noqa: NPY002
        torch.set_rng_state(states[2])


def _follow_the_parent(worker: int) -> None:
    """A signal to all processes asks the parent to save; a worker that died of it would keep it
    from doing so, and ends with it anyway.
    """
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, signal.SIG_IGN)


def _floats(pixels: Tensor) -> Tensor:
    """Pixels in [0, 1]; feature vectors as they are."""
    return pixels if pixels.is_floating_point() else pixels.float().div_(255)


def load_images(split: Split, rows: Iterable[int], size: int) -> Tensor:
    """Some rows of a split as evaluation sees them: floats in [0, 1], (N, 3, size, size); or
    feature vectors (N, size).
    """
    vectors = split.inputs.vectors()
    if vectors is not None:
        return vectors[[*rows]]
    view = CenterCrop(size, split.crop)
    return _floats(torch.stack([view(split.inputs.image(row)) for row in rows]))


@dataclass(frozen=True)
class _Epoch(TorchDataset[dict[str, Tensor]]):
    """The uint8 batches of one process in one epoch; this is what loader workers receive, so all of
    it can be pickled.
    """

    inputs: ImageStore
    target: Tensor
    columns: Mapping[str, Tensor]
    view: View
    order: Array
    parameters: Array  # row = draw
    first: int  # the draw that begins this process's batch 0
    rows: int  # in each batch of this process
    stride: int  # draws from one batch to the next
    stop: int  # no draw beyond

    def __getitem__(self, number: int) -> dict[str, Tensor]:
        begin = self.first + number * self.stride
        draws = np.arange(begin, min(begin + self.rows, self.stop))
        index = self.order[draws]
        row = torch.from_numpy(index)
        return {
            "image": self._images(index, self.parameters[draws]),
            "target": self.target[row],
            "position": torch.from_numpy(draws),
            "index": row,
            **{name: values[row] for name, values in self.columns.items()},
        }

    def _images(self, index: Array, parameters: Array) -> Tensor:
        vectors = self.inputs.vectors()
        if vectors is not None:
            return vectors[torch.from_numpy(index)]
        pixels = self.inputs.in_memory(self.view.size)
        if pixels is not None and isinstance(self.view, Batched):
            return torch.from_numpy(self.view.batch(pixels.numpy()[index], parameters))
        with _undisturbed():
            return torch.stack(
                [
                    self.view(self.inputs.image(int(row)), drawn)
                    for row, drawn in zip(index, parameters, strict=True)
                ]
            )

    @property
    def together(self) -> bool:
        """Whether a batch can be made at once: pixels in memory, of the view's size, and a view for
        batches.
        """
        pixels = self.inputs.in_memory(self.view.size)
        at_once = pixels is not None and isinstance(self.view, Batched)
        return at_once or self.inputs.vectors() is not None

    def batches(self, numbers: range, workers: int) -> Iterator[dict[str, Tensor]]:
        """These batches as floats in [0, 1]. Workers are not asked when making a batch is cheaper
        than sending it.
        """
        source: Any = map(self.__getitem__, numbers)
        if workers and not self.together:
            # Without a generator of its own, a DataLoader draws its base seed from torch's global
            # one.
            source = DataLoader(
                self,
                batch_size=None,
                sampler=numbers,
                num_workers=workers,
                generator=torch.Generator(),
                worker_init_fn=_follow_the_parent,
            )
        for batch in source:
            yield {**batch, "image": _floats(batch["image"])}


def _positive(**values: int) -> None:
    for name, value in values.items():
        if value < 1:
            raise LongtailError(f"{name} must be at least 1, got {value}")


class TrainLoader(Generic[B_co]):
    """Training batches: `batch` rows over all processes, looked at through `view`, in the order of
    `sampler`.

    The last incomplete batch of an epoch is dropped; a split with fewer rows than `batch` gives one
    batch of all of them (of as many as the processes can share equally). `TwoViews` gives `view1`
    and `view2` instead of `image`. Pictures in memory, seen through a view that works on batches,
    need no workers and use none."""

    @overload
    def __init__(
        self: TrainLoader[DrawnViews],
        split: Split,
        *,
        view: TwoViews,
        batch: int,
        seed: int,
        sampler: Sampler = ...,
        workers: int = ...,
    ) -> None: ...
    @overload
    def __init__(
        self: TrainLoader[Drawn],
        split: Split,
        *,
        view: View,
        batch: int,
        seed: int,
        sampler: Sampler = ...,
        workers: int = ...,
    ) -> None: ...
    def __init__(
        self,
        split: Split,
        *,
        view: View,
        batch: int,
        seed: int,
        sampler: Sampler = _INSTANCE,
        workers: int = 0,
    ) -> None:
        _positive(batch=batch)
        if seed < 0 or workers < 0:
            raise LongtailError(
                f"seed and workers must not be negative, got seed {seed} and workers {workers}"
            )
        if isinstance(view, TwoViews) and split.inputs.vectors() is not None:
            raise LongtailError("expected images for two views of each, got feature vectors")
        if not len(split):
            raise LongtailError("expected at least one image to train on, got a split with none")
        self.split, self.view, self.batch, self.seed, self.sampler, self.workers = (
            split,
            view,
            batch,
            seed,
            sampler,
            workers,
        )
        self._rows()

    def _rows(self) -> int:
        """Rows in each batch, over all processes."""
        world = processes.world_size()
        if self.batch % world:
            near = self.batch // world * world or world
            raise LongtailError(
                f"batch is shared by {world} processes and must be a multiple of that, got"
                f" {self.batch}: try {near}"
            )
        if len(self.split) < world:
            raise LongtailError(
                f"expected at least one image for each of {world} processes, got {len(self.split)}:"
                " start fewer processes"
            )
        return min(self.batch, len(self.split) // world * world)

    def __len__(self) -> int:
        """Batches in an epoch."""
        return max(len(self.split) // self.batch, 1)

    def epoch(self, index: int, *, start: int = 0) -> Iterator[B_co]:
        """The batches of an epoch, from batch `start` on: the same rows and views whatever came
        before.
        """
        order = self.sampler.order(self.split.target, epoch=index, seed=self.seed)
        if len(order) != len(self.split):
            raise LongtailError(
                f"{self.sampler} must give an order as long as the split ({len(self.split)} rows),"
                f" got {len(order)}"
            )
        rows, world = self._rows(), processes.world_size()
        # 1: views; samplers use 0
        epoch = _Epoch(
            inputs=self.split.inputs,
            target=self.split.target,
            columns=self.split.columns,
            view=self.view,
            order=order,
            parameters=self.view.parameters(
                np.random.default_rng((self.seed, index, 1)), len(order)
            ),
            first=processes.rank() * (rows // world),
            rows=rows // world,
            stride=rows,
            stop=len(order),
        )
        return self._yielded(epoch.batches(range(start, len(self)), self.workers))

    def _yielded(self, batches: Iterator[dict[str, Tensor]]) -> Iterator[B_co]:
        for batch in batches:
            if isinstance(self.view, TwoViews):
                image = batch.pop("image")
                batch = {
                    "view1": image[:, 0].contiguous(),
                    "view2": image[:, 1].contiguous(),
                    **batch,
                }
            yield cast(B_co, batch)


class EvalLoader:
    """Evaluation batches: the rows of a split in their order, each once, as `CenterCrop(size,
    split.crop)` sees them.

    Processes take contiguous shares without padding, so answers gathered in the order of processes
    are in the split's order. `batch` is the number of rows that one process looks at together."""

    def __init__(self, split: Split, *, size: int, batch: int, workers: int = 0) -> None:
        _positive(batch=batch)
        self.split, self.view, self.batch, self.workers = (
            split,
            CenterCrop(size, split.crop),
            batch,
            workers,
        )

    def _share(self) -> range:
        rows, rank, world = len(self.split), processes.rank(), processes.world_size()
        return range(rows * rank // world, rows * (rank + 1) // world)

    def __len__(self) -> int:
        """Batches of this process."""
        return -(-len(self._share()) // self.batch)

    def epoch(self, index: int = 0, *, start: int = 0) -> Iterator[Drawn]:
        """The batches from `start` on; every epoch is the same."""
        share, rows = self._share(), len(self.split)
        epoch = _Epoch(
            inputs=self.split.inputs,
            target=self.split.target,
            columns=self.split.columns,
            view=self.view,
            order=np.arange(rows),
            parameters=self.view.parameters(np.random.default_rng(0), rows),
            first=share.start,
            rows=self.batch,
            stride=self.batch,
            stop=share.stop,
        )
        return cast(Iterator[Drawn], epoch.batches(range(start, len(self)), self.workers))
