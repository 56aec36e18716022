"""A teacher's classes for the very images that a student sees: batch transforms, the last one of a
stage's mix.

`AddTeacherLabels` runs the teacher; `CachedTeacherLabels` runs it once and keeps its labels, by
epoch and position, in a file named by the hash of everything that determines them. Such files lie
in `longtail/labels` under `$XDG_CACHE_HOME` (else `~/.cache`). They save time and nothing else:
they may be deleted, and a run with them is equal to the bit to one without, on the device and with
the threads that filled them."""

from __future__ import annotations

import errno
import importlib.metadata
import json
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields, is_dataclass
from functools import cache
from hashlib import blake2b
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import torch
from torch import Tensor, nn

from longtail import processes
from longtail.core import BatchTransform, Clock, nothing
from longtail.data.dataset import Dataset
from longtail.data.loader import TrainLoader
from longtail.errors import LongtailError
from longtail.records.files import cache_folder


@dataclass(frozen=True)
class Compose:
    """Two batch transforms, one after the other."""

    first: BatchTransform
    then: BatchTransform

    def __call__(self, batch: Any, clock: Clock) -> Any:
        """The batch after all of them."""
        return self.then(self.first(batch, clock), clock)


@dataclass(frozen=True)
class SplitViews:
    """Of two views (`TwoViews`) the first becomes the student's image, the second the teacher's:
    distillation in distribution.
    """

    def __call__(self, batch: Any, clock: Clock) -> Any:
        """The batch with `image` and `teacher_image`."""
        rest = {name: value for name, value in batch.items() if name not in ("view1", "view2")}
        return {"image": batch["view1"], "teacher_image": batch["view2"], **rest}


@dataclass(frozen=True)
class AddTeacherLabels:
    """Adds `teacher_target`, the class that the teacher finds most probable in each image as it is
    now: augmented and mixed.

    The teacher is any function from images in [0, 1] to logits that never trains, such as
    `longtail.nn.Teacher`, which also brings images to its own size. Where the batch has a
    `teacher_image` (see `SplitViews`), it looks at that one.

    >>> batch = {"image": torch.tensor([[[[0.0, 1.0]]], [[[0.5, 0.0]]]]), "target": torch.tensor([0, 0])}
    >>> AddTeacherLabels(lambda image: image[:, 0, 0])(batch, Clock(0, 1, 0, 1))["teacher_target"].tolist()
    [1, 0]
    """

    teacher: Callable[[Tensor], Tensor]

    def __call__(self, batch: Any, clock: Clock) -> Any:
        """The batch with the teacher's classes."""
        if isinstance(self.teacher, nn.Module) and any(
            module.training for module in self.teacher.modules()
        ):
            raise LongtailError(
                "expected a teacher that is never in train mode, got one that is: wrap it in"
                " longtail.nn.Teacher"
            )
        with torch.no_grad():
            answer = self.teacher(batch.get("teacher_image", batch["image"])).argmax(1)
        return {**_without(batch), "teacher_target": answer}


def _without(batch: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in batch.items() if name != "teacher_image"}


class LabelFile:
    """A file of classes, one for each draw of each epoch, most of them unknown at first; several
    processes may use it at once.

    A byte or two for each: zero for unknown, else the class + 1.
    """

    def __init__(self, path: Path, *, epochs: int, draws: int, classes: int) -> None:
        if epochs < 1 or draws < 1 or not 1 <= classes < 65535:
            raise LongtailError(
                f"expected epochs, draws and up to 65,534 classes, got {epochs}, {draws} and"
                f" {classes}"
            )
        kind = np.uint8 if classes < 255 else np.uint16
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("ab") as file:
            # Makes it, or makes it whole again, and changes nothing for others who have it open.
            _extend(file, epochs * draws * np.dtype(kind).itemsize)
        self.path, self.classes = path, classes
        self.known: Any = np.memmap(path, dtype=kind, mode="r+", shape=(epochs, draws))

    def read(self, epoch: int, draw: Tensor) -> Tensor | None:
        """The classes of these draws, if all of them are known."""
        found = self.known[epoch, draw.cpu().numpy()].astype(np.int64)
        if not found.all() or found.max(initial=0) > self.classes:
            return None
        return torch.from_numpy(found - 1)

    def write(self, epoch: int, draw: Tensor, target: Tensor) -> None:
        """Keep the classes of these draws."""
        self.known[epoch, draw.cpu().numpy()] = target.cpu().numpy() + 1


def _extend(file: BinaryIO, size: int) -> None:
    """Make a file as long as this with zeros that have room on the disk: without it, a write
    through memory kills the process.
    """
    missing = size - os.fstat(file.fileno()).st_size
    if missing > 0:
        try:
            os.posix_fallocate(file.fileno(), 0, size)
        # No such call here, or none for this file system, such as an old NFS
        except (AttributeError, OSError) as error:
            if isinstance(error, OSError) and error.errno not in (
                errno.EBADF,
                errno.EINVAL,
                errno.EOPNOTSUPP,
                errno.ENOSYS,
            ):
                raise
            file.write(bytes(missing))
            file.flush()
    file.truncate(size)


@dataclass(frozen=True)
class CachedTeacherLabels:
    """The same as `labelled`, but what the store knows is not asked again."""

    labelled: AddTeacherLabels
    store: LabelFile

    def __call__(self, batch: Any, clock: Clock) -> Any:
        """The batch with the teacher's classes."""
        known = self.store.read(clock.epoch, batch["position"])
        if known is not None:
            return {**_without(batch), "teacher_target": known.to(batch["image"].device)}
        answered = self.labelled(batch, clock)
        self.store.write(clock.epoch, batch["position"], answered["teacher_target"])
        return answered


def cached_labels(
    labelled: AddTeacherLabels,
    cache_key: Mapping[str, Any],
    *,
    epochs: int,
    draws: int,
    classes: int,
) -> BatchTransform:
    """Keep a teacher's classes in the file that belongs to these circumstances; beside it, a JSON
    file
    says what they are.

    Where no file can be kept, a warning says so and the teacher is asked every time.
    """
    text = json.dumps(cache_key, sort_keys=True, indent=1)
    name = blake2b(text.encode(), digest_size=16).hexdigest()
    try:
        folder = cache_folder() / "labels"
        store = LabelFile(folder / f"{name}.bin", epochs=epochs, draws=draws, classes=classes)
        part = folder / f"{name}.{os.getpid()}.part"
        part.write_text(text + "\n", encoding="utf-8")
        part.replace(folder / f"{name}.json")
    except OSError as error:  # no room, no right, no home
        print(
            f"warning: the teacher's labels cannot be kept ({error}): the teacher is asked in every"
            " epoch",
            file=sys.stderr,
        )
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
) -> dict[str, Any]:
    """Everything that determines a teacher's classes: itself and where it is, the images in their
    order, how they are seen and mixed.

    Mixing is drawn from the run's seed, the stage's name and the step, and may end at some share of
    the epochs; without it these do not matter, and runs of other seeds share one file."""
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
        "device": next((own.device.type for own in teacher.parameters()), "cpu"),
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
    """The hash of this package's source: views, mixing and order are what it says today, whatever
    version it has.
    """
    return _hash(
        *(
            part
            for path in sorted(folder.rglob("*.py"))
            for part in (str(path.relative_to(folder)).encode(), path.read_bytes())
        )
    )


def digest(teacher: nn.Module) -> str:
    """The hash of a module: its text, which names every layer, and all its numbers, saved ones or
    not.
    """
    numbers = [*teacher.named_parameters(), *teacher.named_buffers()]
    parts = [f"{teacher}{getattr(teacher, 'size', '')}".encode()]
    for name, tensor in sorted(numbers, key=lambda own: own[0]):
        parts += [
            f"{name}{tensor.dtype}{tuple(tensor.shape)}".encode(),
            tensor.detach().cpu().contiguous().numpy().tobytes(),
        ]
    return _hash(*parts)


def _hash(*parts: bytes) -> str:
    whole = blake2b(digest_size=16)
    for part in parts:
        whole.update(len(part).to_bytes(8))
        whole.update(part)
    return whole.hexdigest()


def to_config(part: Any) -> Any:
    """What a view, a sampler or a mix is, as JSON: dataclasses by their fields, functions by their
    names.

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
            **{own.name: to_config(getattr(part, own.name)) for own in fields(part)},
        }
    if callable(part) and "<" not in getattr(part, "__qualname__", "<"):
        return f"{part.__module__}.{part.__qualname__}"
    raise LongtailError(
        f"expected parts that say what they are, got {type(part).__name__} {part!r}: make it a"
        " dataclass, or use AskTeacher without memory"
    )
