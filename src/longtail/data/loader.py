"""Loaders: the batches of an epoch as stateless functions of (view seed, epoch, position).

A position is an index into the epoch's order over all processes. The rows and their views do not
depend on earlier epochs, on the batch at which an epoch is resumed, or on the number of workers.
Processes take contiguous shares of each batch.
"""

from __future__ import annotations

import atexit
import multiprocessing
import multiprocessing.process
import random
import signal
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
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
    """A batch of images with class indices, and the row of each in the split."""

    index: Tensor


class DrawnViews(LabelledViews):
    """A batch of two views of each image, with class indices and rows in the split."""

    index: Tensor


@contextmanager
def _preserve_rng() -> Iterator[None]:
    """Restore the global generators, so that loading data does not change the training step."""
    states = random.getstate(), np.random.get_state(), torch.get_rng_state()  # noqa: NPY002
    try:
        yield
    finally:
        random.setstate(states[0])
        np.random.set_state(states[1])  # noqa: NPY002
        torch.set_rng_state(states[2])


def _ignore_signals(worker: int) -> None:
    """Ignore SIGTERM and SIGINT in a worker, which ends with its parent.

    The parent saves a checkpoint when such a signal reaches the process group; it could not if its
    workers died first.
    """
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, signal.SIG_IGN)


def _to_float(pixels: Tensor) -> Tensor:
    """Scale pixels to [0, 1]; return feature vectors unchanged."""
    return pixels if pixels.is_floating_point() else pixels.float().div_(255)


def load_images(split: Split, rows: Iterable[int], size: int) -> Tensor:
    """Load rows as in evaluation: floats in [0, 1] (N, 3, size, size), or vectors (N, size)."""
    vectors = split.inputs.vectors()
    if vectors is not None:
        return vectors[[*rows]]
    view = CenterCrop(size, split.crop)
    return _to_float(torch.stack([view(split.inputs.image(row)) for row in rows]))


@dataclass(frozen=True)
class _Epoch(TorchDataset[dict[str, Tensor]]):
    """The uint8 batches of one process in one epoch. It is pickled for the loader workers."""

    inputs: ImageStore
    target: Tensor
    columns: Mapping[str, Tensor]
    view: View
    order: Array
    parameters: Array  # one row for each position
    first: int  # the first position of this process's batch 0
    rows: int  # in each batch of this process
    stride: int  # positions from one batch to the next
    stop: int  # positions end before this

    def __getitem__(self, number: int) -> dict[str, Tensor]:
        start = self.first + number * self.stride
        position = np.arange(start, min(start + self.rows, self.stop))
        index = self.order[position]
        row = torch.from_numpy(index)
        return {
            "image": self._images(index, self.parameters[position]),
            "target": self.target[row],
            "position": torch.from_numpy(position),
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
        with _preserve_rng():
            return torch.stack(
                [
                    self.view(self.inputs.image(int(row)), values)
                    for row, values in zip(index, parameters, strict=True)
                ]
            )

    @property
    def is_vectorized(self) -> bool:
        """Whether a batch is a single array operation, on vectors or pixels in memory."""
        pixels = self.inputs.in_memory(self.view.size)
        batched = pixels is not None and isinstance(self.view, Batched)
        return batched or self.inputs.vectors() is not None

    def batches(self, numbers: range, workers: int) -> Iterator[dict[str, Tensor]]:
        """Yield batches as floats; workers are unused if making a batch is cheaper than sending."""
        source: Any = map(self.__getitem__, numbers)
        if workers and not self.is_vectorized:
            source = _in_workers(self, numbers, workers)
        for batch in source:
            yield {**batch, "image": _to_float(batch["image"])}


@dataclass(frozen=True)
class _ErrorsAsItems(TorchDataset[Any]):
    """The batches of an epoch, or the error instead of a batch.

    An error that a worker raises would reach the main process with a traceback as its message.
    """

    epoch: _Epoch

    def __getitem__(self, number: int) -> dict[str, Tensor] | LongtailError | OSError:
        try:
            return self.epoch[number]
        except (LongtailError, OSError) as error:
            return error


def _in_workers(epoch: _Epoch, numbers: range, workers: int) -> Iterator[dict[str, Tensor]]:
    # Without this generator, a DataLoader samples its base seed from torch's global one
    loader = DataLoader(
        _ErrorsAsItems(epoch),
        batch_size=None,
        sampler=numbers,
        num_workers=workers,
        generator=torch.Generator(),
        worker_init_fn=_ignore_signals,
    )
    others = set(multiprocessing.active_children())
    batches = iter(loader)
    children = set(multiprocessing.active_children())
    _workers.intersection_update(children)
    _workers.update(children - others)
    try:
        for batch in batches:
            if isinstance(batch, Exception):
                raise batch
            yield batch
    finally:
        # Ends the workers now: the traceback of an error would keep this frame, and them with it
        del batches, loader


_workers: set[multiprocessing.process.BaseProcess] = set()  # of all loaders, unless they ended


@atexit.register
def _end_workers() -> None:
    """End the workers of loaders that an error left open, and those that hang.

    At exit Python sends SIGTERM to its children and waits for them, but workers ignore that signal.
    """
    with suppress(ValueError):  # not in the main thread
        # The handler of torch would report that these workers died
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    for worker in _workers:
        worker.kill()


def _positive(**values: int) -> None:
    for name, value in values.items():
        if value < 1:
            raise LongtailError(f"{name} must be at least 1, got {value}")


class TrainLoader(Generic[B_co]):
    """Training batches: augmented by `view`, in the order of `sampler`.

    The last incomplete batch of an epoch is dropped; a split with fewer rows than `batch` gives one
    batch of all of them (of as many as the processes can share equally). `TwoViews` gives `view1`
    and `view2` instead of `image`.

    Args:
        split: The rows to train on.
        view: The augmentation.
        batch: Rows per batch, over all processes.
        seed: Seed of the orders and of the view's parameters.
        sampler: Which rows an epoch uses, and their order; all rows, shuffled, by default.
        workers: Loader processes. Images in memory with a `Batched` view use none.
    """

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
            raise LongtailError(
                "two views need images, but this split has feature vectors: use a single view"
            )
        if not len(split):
            raise LongtailError("the training split has no rows: pass a split with at least one")
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
        world_size = processes.world_size()
        if self.batch % world_size:
            near = self.batch // world_size * world_size or world_size
            raise LongtailError(
                f"batch must be a multiple of the number of processes, {world_size}, got"
                f" {self.batch}: try {near}"
            )
        if len(self.split) < world_size:
            raise LongtailError(
                f"expected at least one image for each of {world_size} processes, got"
                f" {len(self.split)}: start fewer processes"
            )
        return min(self.batch, len(self.split) // world_size * world_size)

    def __len__(self) -> int:
        """Number of batches in an epoch."""
        return max(len(self.split) // self.batch, 1)

    def epoch(self, index: int, *, start: int = 0) -> Iterator[B_co]:
        """Iterate over the batches of an epoch, starting at batch `start`."""
        order = self.sampler.order(self.split.target, epoch=index, seed=self.seed)
        if len(order) != len(self.split):
            raise LongtailError(
                f"{self.sampler} must return an order as long as the split"
                f" ({len(self.split)} rows), got {len(order)}"
            )
        rows, world_size = self._rows(), processes.world_size()
        rng = np.random.default_rng((self.seed, index, 1))  # 1: views; samplers use 0
        epoch = _Epoch(
            inputs=self.split.inputs,
            target=self.split.target,
            columns=self.split.columns,
            view=self.view,
            order=order,
            parameters=self.view.parameters(rng, len(order)),
            first=processes.rank() * (rows // world_size),
            rows=rows // world_size,
            stride=rows,
            stop=len(order),
        )
        return self._split_views(epoch.batches(range(start, len(self)), self.workers))

    def _split_views(self, batches: Iterator[dict[str, Tensor]]) -> Iterator[B_co]:
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
    """Evaluation batches: every row once, in order, through `CenterCrop(size, split.crop)`.

    Processes take contiguous shares without padding, so predictions gathered in the order of the
    processes are in the split's order. `batch` is the batch size of one process.
    """

    def __init__(self, split: Split, *, size: int, batch: int, workers: int = 0) -> None:
        _positive(batch=batch)
        self.split, self.view, self.batch, self.workers = (
            split,
            CenterCrop(size, split.crop),
            batch,
            workers,
        )

    def _share(self) -> range:
        rows, rank, world_size = len(self.split), processes.rank(), processes.world_size()
        return range(rows * rank // world_size, rows * (rank + 1) // world_size)

    def __len__(self) -> int:
        """Number of batches of this process."""
        return -(-len(self._share()) // self.batch)

    def epoch(self, index: int = 0, *, start: int = 0) -> Iterator[Drawn]:
        """Iterate over the batches, starting at batch `start`; every epoch is the same."""
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
