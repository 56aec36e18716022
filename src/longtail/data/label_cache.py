"""Labels of a teacher that are computed once and then read from a file.

`CachedTeacherLabels` keeps the labels, by epoch and position, in a file named by the hash of
everything that determines them. The files are in `longtail/labels` under `$XDG_CACHE_HOME` (else
`~/.cache`). They only save time and may be deleted: a run with them is bit-identical to one
without, on the device and number of threads that wrote them.
"""

from __future__ import annotations

import errno
import importlib.metadata
import json
import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, fields, is_dataclass
from functools import cache
from hashlib import blake2b
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
from torch import Tensor, nn

from longtail import processes
from longtail.core import BatchTransform, Clock, nothing
from longtail.data.dataset import Dataset
from longtail.data.loader import TrainLoader
from longtail.data.teacher_labels import (
    DEFAULT_LABELS,
    AddTeacherLabels,
    Labels,
    without_teacher_image,
)
from longtail.errors import LongtailError, warn
from longtail.records.cache import FREE_SHARE, free_space, make_room, size_text, total_size
from longtail.records.files import cache_folder

LIMIT = 20_000_000_000  # bytes that the labels of all runs may take


class LabelFile:
    """A memory-mapped file of labels (epochs, draws), which several processes may use at once.

    `labels` says how they are stored; unknown ones are zeros. The file grows with the epochs, each
    time by at most a tenth of the free disk space; if it cannot grow, this warns, and later labels
    are not stored.

    Args:
        path: The file.
        epochs: Most epochs that it stores.
        draws: Positions in an epoch.
        classes: Number of classes.
        labels: What is stored of a prediction.
    """

    def __init__(
        self,
        path: Path,
        *,
        epochs: int,
        draws: int,
        classes: int,
        labels: Labels = DEFAULT_LABELS,
    ) -> None:
        if epochs < 1 or draws < 1 or not 1 <= classes < 65535:
            raise LongtailError(
                "expected at least one epoch, one draw and 1 to 65,534 classes, got"
                f" {epochs}, {draws} and {classes}"
            )
        self.path, self.epochs, self.draws, self.classes = path, epochs, draws, classes
        self.labels, self._dtype = labels, labels.dtype(classes)
        path.parent.mkdir(parents=True, exist_ok=True)
        self.is_growing = True
        self._grow(1)

    def read(self, epoch: int, position: Tensor) -> Tensor | None:
        """Return the labels of these positions (N,), or None unless all are known."""
        if epoch >= len(self.known):
            with suppress(OSError):  # the file was deleted
                self._map()  # another process may have written this epoch
        if epoch >= len(self.known):
            return None
        return self.labels.decode(self.known[epoch, position.cpu().numpy()], self.classes)

    def write(self, epoch: int, position: Tensor, target: Tensor) -> None:
        """Store the labels of these positions (N,), if there is disk space for them."""
        if len(self.known) <= epoch < self.epochs and self.is_growing:
            try:
                self._grow(epoch + 1)
            except OSError as error:
                self.is_growing = False
                _warn(f"no more labels of the teacher are cached ({error})")
        if epoch < len(self.known):
            self.known[epoch, position.cpu().numpy()] = self.labels.encode(target)

    def _grow(self, epochs: int) -> None:
        size = epochs * self.draws * self._dtype.itemsize
        # Nobody else changes the size meanwhile
        with self.path.open("ab") as file, _exclusive(file):
            before = os.fstat(file.fileno()).st_size
            try:
                if size > before:
                    self._check_space(size - before)
                    _extend(file, size)
            except BaseException:
                file.truncate(before)
                if not before:
                    self.path.unlink(missing_ok=True)
                raise
        self._map()

    def _check_space(self, size: int) -> None:
        free = free_space(self.path.parent)
        if size > free / FREE_SHARE:
            raise OSError(
                f"{self.path} would take {size_text(size)} more, which is over a tenth of the"
                f" {size_text(free)} that are free"
            )

    def _map(self) -> None:
        """Map all complete epochs of the file."""
        rows = self.path.stat().st_size // (self.draws * self._dtype.itemsize)
        shape = (min(rows, self.epochs), self.draws)
        self.known: Any = np.memmap(self.path, dtype=self._dtype, mode="r+", shape=shape)


@contextmanager
def _exclusive(file: BinaryIO) -> Iterator[None]:
    """Keep other processes from changing the size of a file. Windows has no such lock."""
    try:
        import fcntl
    except ImportError:
        yield
        return
    with suppress(OSError):  # a file system without locks
        fcntl.flock(file, fcntl.LOCK_EX)
    try:
        yield
    finally:
        with suppress(OSError):
            fcntl.flock(file, fcntl.LOCK_UN)


def _extend(file: BinaryIO, size: int) -> None:
    """Extend a file with zeros and reserve the disk space.

    Writing to a memory map without disk space would kill the process.
    """
    try:
        os.posix_fallocate(file.fileno(), 0, size)
        return
    # Not available on this platform or file system, such as an old NFS
    except (AttributeError, OSError) as error:
        if isinstance(error, OSError) and error.errno not in (
            errno.EBADF,
            errno.EINVAL,
            errno.EOPNOTSUPP,
            errno.ENOSYS,
        ):
            raise
    zeros = bytes(1 << 20)
    while (missing := size - os.fstat(file.fileno()).st_size) > 0:
        file.write(zeros[:missing])
        file.flush()


def _warn(message: str) -> None:
    warn(f"{message}: the teacher runs in every epoch")


@dataclass(frozen=True)
class CachedTeacherLabels:
    """Like `labelled`, but labels in the store are not computed again."""

    labelled: AddTeacherLabels
    store: LabelFile

    def __call__(self, batch: Any, clock: Clock) -> Any:
        """Return the batch with `teacher_target`."""
        known = self.store.read(clock.epoch, batch["position"])
        if known is not None:
            return {
                **without_teacher_image(batch),
                "teacher_target": known.to(batch["image"].device),
            }
        result = self.labelled(batch, clock)
        self.store.write(clock.epoch, batch["position"], result["teacher_target"])
        return result


def cached_labels(
    labelled: AddTeacherLabels,
    cache_key: Mapping[str, Any],
    *,
    epochs: int,
    draws: int,
    classes: int,
) -> BatchTransform:
    """Cache a teacher's labels in the file of a key; a JSON file beside it contains the key.

    At most a tenth of the free disk space and `LIMIT` bytes are used; labels that were used least
    recently are deleted. If the file cannot be written, this warns, and the teacher runs in every
    epoch.

    Args:
        labelled: The transform that runs the teacher.
        cache_key: Everything that determines the labels; see `cache_key`.
        epochs: Number of epochs of the stage.
        draws: Number of positions in an epoch.
        classes: Number of classes.
    """
    text = json.dumps(cache_key, sort_keys=True, indent=1)
    name = blake2b(text.encode(), digest_size=16).hexdigest()
    try:
        folder = cache_folder() / "labels"
        folder.mkdir(parents=True, exist_ok=True)
        path, free = folder / f"{name}.bin", free_space(folder)
        epoch_size = draws * labelled.labels.dtype(classes).itemsize
        room = min(free // FREE_SHARE, LIMIT) + total_size([path])
        fitting = min(epochs, room // epoch_size)
        if not fitting:
            raise OSError(
                f"one epoch takes {size_text(epoch_size)}, and only {size_text(free)} are free"
            )
        if processes.rank() == 0:
            make_room(fitting * epoch_size, LIMIT, keep=path)
            shown = f"{epochs:,} epochs" if fitting == epochs else f"the first {fitting:,} epochs"
            print(
                f"the labels of the teacher are cached in {folder}: up to"
                f" {size_text(fitting * epoch_size)} for {shown}, {size_text(free)} are free",
                file=sys.stderr,
            )
        store = LabelFile(
            path, epochs=fitting, draws=draws, classes=classes, labels=labelled.labels
        )
        part = folder / f"{name}.{os.getpid()}.part"
        try:
            part.write_text(text + "\n", encoding="utf-8")
            part.replace(folder / f"{name}.json")
        finally:
            part.unlink(missing_ok=True)
    except OSError as error:  # no disk space, no permission, no home folder
        _warn(f"the teacher's labels cannot be cached ({error})")
        return labelled
    return CachedTeacherLabels(labelled, store)


def cache_key(
    teacher: nn.Module,
    loader: TrainLoader[Any],
    data: Dataset,
    *,
    mix: BatchTransform,
    seed: int,
    stage: str,
    epochs: int,
    accumulate: int = 1,
    labels: Labels = DEFAULT_LABELS,
) -> dict[str, Any]:
    """Everything that determines a teacher's labels: network, device, images, order, view, mixing.

    Mixing depends on the run's seed, the stage's name, the step and the number of epochs. Without
    mixing these are left out, so that runs with other seeds share one file.

    Args:
        teacher: The network.
        loader: The student's loader.
        data: The dataset.
        mix: The transforms before the teacher's.
        seed: The run's seed.
        stage: The stage's name.
        epochs: Number of epochs of the stage.
        accumulate: Batches per optimizer step.
        labels: What of its predictions is stored.
    """
    mixing = None
    if mix is not nothing:
        mixing = {
            "transform": to_config(mix),
            "seed": seed,
            "stage": stage,
            "epochs": epochs,
            "accumulate": accumulate,
        }
    return {
        "teacher": digest(teacher),
        "labels": to_config(labels),
        "device": next((tensor.device.type for tensor in teacher.parameters()), "cpu"),
        "data": data.hash,
        "images": _hash(
            json.dumps([*loader.split.ids]).encode(), loader.split.target.numpy().tobytes()
        ),
        "size": data.size,
        "view": to_config(loader.view),
        "sampler": to_config(loader.sampler),
        "view_seed": loader.seed,
        "batch": loader.batch,
        "processes": processes.world_size(),
        "mixing": mixing,
        "epochs": epochs,
        "code": code(),
        "versions": {
            name: importlib.metadata.version(name)
            for name in ("torch", "torchvision", "timm", "numpy", "pillow")
        },
    }


@cache
def code(folder: Path = Path(__file__).parents[1]) -> str:
    """The hash of this package's source, which determines views, mixing and order."""
    return _hash(
        *(
            part
            for path in sorted(folder.rglob("*.py"))
            for part in (str(path.relative_to(folder)).encode(), path.read_bytes())
        )
    )


def digest(teacher: nn.Module) -> str:
    """The hash of a module: its printed structure, all parameters and all buffers."""
    numbers = [*teacher.named_parameters(), *teacher.named_buffers()]
    parts = [f"{teacher}{getattr(teacher, 'size', '')}".encode()]
    for name, tensor in sorted(numbers, key=lambda item: item[0]):
        parts += [
            f"{name}{tensor.dtype}{tuple(tensor.shape)}".encode(),
            tensor.detach().cpu().contiguous().numpy().tobytes(),
        ]
    return _hash(*parts)


def _hash(*parts: bytes) -> str:
    result = blake2b(digest_size=16)
    for part in parts:
        result.update(len(part).to_bytes(8))
        result.update(part)
    return result.hexdigest()


def to_config(part: Any) -> Any:
    """Describe a view, a sampler or a mix as JSON: dataclasses by fields, functions by name.

    >>> from longtail.data.samplers import RepeatedAugmentation
    >>> to_config(RepeatedAugmentation(3))
    {'is': 'longtail.data.samplers.RepeatedAugmentation', 'repeats': 3}
    """
    if part is None or isinstance(part, bool | int | float | str):
        return part
    if isinstance(part, Sequence):
        return [to_config(item) for item in part]
    if is_dataclass(part) and not isinstance(part, type):
        name = f"{type(part).__module__}.{type(part).__qualname__}"
        return {
            "is": name,
            **{field.name: to_config(getattr(part, field.name)) for field in fields(part)},
        }
    if callable(part) and "<" not in getattr(part, "__qualname__", "<"):
        return f"{part.__module__}.{part.__qualname__}"
    raise LongtailError(
        f"cannot describe {type(part).__name__} {part!r} in a cache key: make it a dataclass, or"
        " use AddTeacherLabels without a cache"
    )
