"""Asking a trained network about images: decoding goes on while it computes."""

from __future__ import annotations

import math
import os
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from longtail.data.images.decoding import decode
from longtail.engine.machine import Machine
from longtail.errors import LongtailError
from longtail.metrics.conformal import Thresholds
from longtail.records.row import Row
from longtail.runs.answers import Answers, answered
from longtail.runs.images import Fit, ImageLike, ImagesLike, as_list, check_tensor, open_image

BATCH = 64
"""Images asked about at once: small enough to stay in the caches, and no answer depends on it."""

DECODERS = min(4, os.cpu_count() or 1)
"""Threads that decode large files while the network computes; decoding releases Python's lock."""

SMALL = 16_384
"""Bytes: below that a file is decoded sooner than its pixels are handed from thread to thread, which all wait for Python's lock."""

A = TypeVar("A")
R = TypeVar("R")


def ahead(work: Callable[[A], R], asked: Iterable[A], *, threads: int = DECODERS) -> Iterator[R]:
    """The results of `work`, in order, computed by threads that stay one step ahead of whoever takes them; without threads, when taken."""
    if not threads:
        yield from map(work, asked)
        return
    waiting: deque[Future[R]] = deque()
    pool = ThreadPoolExecutor(threads)
    try:
        for own in asked:
            waiting.append(pool.submit(work, own))
            if len(waiting) > threads:
                yield waiting.popleft().result()
        while waiting:
            yield waiting.popleft().result()
    finally:
        pool.shutdown(cancel_futures=True)


def batches(pictures: Sequence[A], *, threads: int = DECODERS) -> Iterator[Sequence[A]]:
    """Slices of at most `BATCH`; of fewer where every thread would not get one."""
    step = max(1, min(BATCH, math.ceil(len(pictures) / max(1, threads))))
    return (pictures[first : first + step] for first in range(0, len(pictures), step))


class Part(NamedTuple):
    """Some of the files that were asked about: the answers for those that can be read, and why the others cannot."""

    paths: tuple[Path, ...]
    answers: Answers | None  # one row for each path; None where there is none
    bad: tuple[tuple[Path, str], ...]


@dataclass(frozen=True)
class Loaded:
    """A trained network that can be asked; `longtail.load` gives it.

    `predict`, `predict_proba` and `score` are as in scikit-learn, with images in the place of a table. Images are paths, PIL images of any
    mode, uint8 arrays (H, W, 3) or (N, H, W, 3) - one, or several in a list - or floats (N, 3, size, size) in [0, 1].
    """

    folder: Path
    network: nn.Module
    classes: tuple[str, ...]
    size: int
    row: Row
    fit: Fit
    thresholds: Thresholds | None  # of prediction sets, where the run was calibrated for them
    machine: Machine

    def predict(self, images: ImagesLike, *, abstain_below: float | None = None) -> Answers:
        """Classify images. Each is asked about once, without test-time averaging."""
        return self._answers(self._logits(images), abstain_below)

    def predict_proba(self, images: ImagesLike) -> NDArray[np.float32]:
        """The probability of each class for each image, (N, C); the columns are `classes`."""
        return np.asarray(self._logits(images).softmax(dim=1).numpy())

    def score(
        self, images: ImagesLike, targets: Sequence[str] | Sequence[int] | NDArray[Any] | Tensor
    ) -> float:
        """Balanced accuracy: the share of images that are recognised, averaged over the classes of `targets` (names or numbers).

        Not the plain accuracy of scikit-learn's classifiers, which forgets the rare classes; it is `balanced_accuracy_score` there.
        """
        wanted = torch.tensor(self._numbers(targets))
        logits = self._logits(images)
        if len(wanted) != len(logits):
            raise LongtailError(
                f"expected a target for each of {len(logits)} images, got {len(wanted)}"
            )
        right = (logits.argmax(dim=1) == wanted).double()
        return float(torch.stack([right[wanted == own].mean() for own in wanted.unique()]).mean())

    def predict_files(
        self, paths: Sequence[Path], *, abstain_below: float | None = None
    ) -> Iterator[Part]:
        """Classify files, some at a time and in their order. Files that cannot be read are named in the part, and the rest goes on."""
        threads = self._threads(paths)
        for several, good, bad in ahead(
            self._read, batches(paths, threads=threads), threads=threads
        ):
            answers = self._answers(self._ask(torch.stack(good)), abstain_below) if good else None
            failed = {path for path, _ in bad}
            yield Part(tuple(path for path in several if path not in failed), answers, tuple(bad))

    def _read(
        self, paths: Sequence[Path]
    ) -> tuple[Sequence[Path], list[Tensor], list[tuple[Path, str]]]:
        good, bad = [], []
        for path in paths:
            try:
                good.append(self.fit(decode(path.read_bytes())))
            except (OSError, ValueError) as error:
                bad.append((path, str(error)))
        return paths, good, bad

    def _logits(self, images: ImagesLike) -> Tensor:
        several = as_list(images)
        if isinstance(several, Tensor):
            return torch.cat(
                [self._ask(part) for part in check_tensor(several, self.size).split(BATCH)]
            )
        threads = self._threads(several)
        return torch.cat(
            [
                self._ask(pixels)
                for pixels in ahead(
                    self._pixels, batches(several, threads=threads), threads=threads
                )
            ]
        )

    def _threads(self, pictures: Sequence[ImageLike]) -> int:
        """Threads that decode. Beside a network that computes on all cores, small files are best decoded in its pauses."""
        first = Path(pictures[0]) if pictures and isinstance(pictures[0], str | Path) else None
        if first is not None and first.exists() and first.stat().st_size >= SMALL:
            return DECODERS
        return 0 if self.machine.device == "cpu" else 1

    def _pixels(self, pictures: Sequence[ImageLike]) -> Tensor:
        return torch.stack([self.fit(open_image(picture)) for picture in pictures])

    @torch.inference_mode()
    def _ask(self, pixels: Tensor) -> Tensor:
        image = pixels if pixels.is_floating_point() else pixels.float().div_(255)
        logits: Tensor = self.network(self.machine.place_batch({"image": image.float()})["image"])
        return logits.float().cpu()

    def _answers(self, logits: Tensor, abstain_below: float | None) -> Answers:
        return answered(
            logits, classes=self.classes, thresholds=self.thresholds, abstain_below=abstain_below
        )

    def _numbers(self, targets: Sequence[str] | Sequence[int] | NDArray[Any] | Tensor) -> list[int]:
        given: list[Any] = (
            targets.tolist() if isinstance(targets, Tensor | np.ndarray) else list(targets)
        )
        numbers = {name: number for number, name in enumerate(self.classes)}
        strange = [
            own
            for own in given
            if own not in (numbers if isinstance(own, str) else range(len(self.classes)))
        ]
        if strange:
            known = f"{', '.join(self.classes[:5])}{', ...' if len(self.classes) > 5 else ''}"
            raise LongtailError(
                f"expected classes of the run ({known}) or their numbers from 0 on, got {strange[0]!r}"
            )
        return [numbers[own] if isinstance(own, str) else int(own) for own in given]
