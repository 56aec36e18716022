"""Inference with a trained network: images or rows of a split in, outputs by name out.

Evaluation, prediction, feature extraction, the check of an export and the server run networks
through this module alone.
"""

from __future__ import annotations

import math
import os
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any, Generic, NamedTuple, TypeVar

import torch
from torch import Tensor, nn

from longtail.core import Method, Predict
from longtail.data.dataset import Split
from longtail.data.loader import EvalLoader
from longtail.engine.machine import Machine
from longtail.engine.predicting import predictor
from longtail.errors import LongtailError
from longtail.nn import Classifier
from longtail.records.predictions import SplitPredictions
from longtail.runs.identity import Tta
from longtail.runs.images import ImageLike, ImagesLike, Preprocessing, as_list, check_tensor
from longtail.scoring.evaluators import collect, flipped

BATCH = 64
"""Images predicted at once: few enough to stay in the caches."""

EVAL_BATCH = 256
"""Rows of a split evaluated at once."""

DECODERS = min(4, os.cpu_count() or 1)
"""Threads that decode large files while the network computes; decoding releases Python's lock."""

SMALL = 16_384
"""Bytes: a smaller file is decoded sooner than its pixels are passed between threads."""

Img = TypeVar("Img", bound=ImageLike)
T = TypeVar("T")
R = TypeVar("R")


def network_outputs(network: nn.Module) -> Callable[[Tensor], Mapping[str, Tensor]]:
    """The function from images to logits by head of a deployed network."""
    if isinstance(network, Classifier):
        return network.heads
    return lambda image: {"logits": network(image)}


def feature_outputs(network: nn.Module) -> Callable[[Tensor], Mapping[str, Tensor]]:
    """The function from images to the features (N, dim) that a classifier's head takes."""
    if not isinstance(network, Classifier):
        raise LongtailError(
            f"expected a classifier to extract features with, got a {type(network).__name__}"
        )
    return lambda image: {"features": network.network(image)}


def predict_split(
    model: Method[Any] | nn.Module, split: Split, *, size: int, tta: Tta, machine: Machine
) -> SplitPredictions:
    """Predict all rows of a split; several processes share them, and each gets all predictions.

    Args:
        model: A method in eval mode, or a deployed network.
        split: Images with their targets, as the dataset preprocessed them.
        size: The side of the network's images.
        tta: Test-time averaging.
        machine: Where the model is; its workers decode ahead.
    """
    if tta not in ("none", "flip"):
        raise LongtailError(f"expected test-time averaging none or flip, got {tta!r}")
    if tta == "flip" and split.inputs.vectors() is not None:
        raise LongtailError(
            "--tta flip mirrors images, and this data has feature vectors: remove it"
        )
    predict = predictor(model if isinstance(model, Method) else network_outputs(model), machine)
    return collect(
        EvalLoader(split, size=size, batch=EVAL_BATCH, workers=machine.workers),
        flipped(predict) if tta == "flip" else predict,
    )


def predict_splits(
    model: Method[Any] | nn.Module,
    splits: Mapping[str, Split],
    *,
    size: int,
    tta: Tta,
    machine: Machine,
) -> dict[Tta, dict[str, SplitPredictions]]:
    """Predict splits with this test-time averaging and with "none", which may be the same.

    Args:
        model: A method in eval mode, or a deployed network.
        splits: By name.
        size: The side of the network's images.
        tta: Test-time averaging.
        machine: Where the model is.
    """
    return {
        averaging: {
            name: predict_split(model, split, size=size, tta=averaging, machine=machine)
            for name, split in splits.items()
        }
        for averaging in dict.fromkeys((tta, "none"))
    }


def predict_images(
    predict: Predict, images: ImagesLike, preprocessing: Preprocessing, *, machine: Machine
) -> dict[str, Tensor]:
    """Outputs by name, with one row for each image; an image that cannot be read is an error.

    Args:
        predict: What `predictor` gives for the network.
        images: One image or several, as `Loaded.predict` takes them.
        preprocessing: How they become the network's squares.
        machine: Where the network is.
    """
    inputs = as_list(images)
    outputs: list[Mapping[str, Tensor]] = []
    if isinstance(inputs, Tensor):
        batches = check_tensor(inputs, preprocessing.size).split(BATCH)
        outputs = [predict(batch.float()) for batch in batches]
    else:
        for batch in read_ahead(inputs, preprocessing, machine=machine):
            for _, error in batch.bad:
                raise error
            outputs.append(predict(batch.pixels()))
    return {name: torch.cat([part[name] for part in outputs]) for name in outputs[0]}


class ReadImages(NamedTuple, Generic[Img]):
    """A batch of images after preprocessing, and why others cannot be read."""

    images: tuple[Img, ...]  # those that can be read
    squares: tuple[Tensor, ...]  # uint8 (3, size, size), one for each of them
    bad: tuple[tuple[Img, Exception], ...]

    def pixels(self) -> Tensor:
        """The images that can be read, as float32 (N, 3, size, size) in [0, 1]."""
        return torch.stack(self.squares).float().div_(255)


def read_ahead(
    images: Sequence[Img], preprocessing: Preprocessing, *, machine: Machine
) -> Iterator[ReadImages[Img]]:
    """Read and preprocess images in batches, in their order, while the network computes."""

    def read(batch: Sequence[Img]) -> ReadImages[Img]:
        good, squares, bad = [], [], []
        for image in batch:
            try:
                squares.append(preprocessing(image))
                good.append(image)
            except (OSError, ValueError) as error:
                bad.append((image, error))
        return ReadImages(tuple(good), tuple(squares), tuple(bad))

    threads = decoding_threads(images, machine)
    return map_ahead(read, split_batches(images, threads=threads), threads=threads)


def decoding_threads(images: Sequence[ImageLike], machine: Machine) -> int:
    """How many threads decode; none for small files while the network computes on all cores."""
    first = Path(images[0]) if images and isinstance(images[0], str | Path) else None
    if first is not None and first.exists() and first.stat().st_size >= SMALL:
        return DECODERS
    return 0 if machine.device == "cpu" else 1


def split_batches(images: Sequence[T], *, threads: int = DECODERS) -> Iterator[Sequence[T]]:
    """Slices of at most `BATCH` images; of fewer where some thread would get none."""
    step = max(1, min(BATCH, math.ceil(len(images) / max(1, threads))))
    return (images[first : first + step] for first in range(0, len(images), step))


def map_ahead(
    function: Callable[[T], R], items: Iterable[T], *, threads: int = DECODERS
) -> Iterator[R]:
    """Map a function in threads that are one step ahead of the consumer; results keep their order.

    Without threads each result is computed when it is taken.
    """
    if not threads:
        yield from map(function, items)
        return
    waiting: deque[Future[R]] = deque()
    pool = ThreadPoolExecutor(threads)
    try:
        for item in items:
            waiting.append(pool.submit(function, item))
            if len(waiting) > threads:
                yield waiting.popleft().result()
        while waiting:
            yield waiting.popleft().result()
    finally:
        pool.shutdown(cancel_futures=True)
