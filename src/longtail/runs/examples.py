"""Images of the tail that a finished run gets wrong, with saliency maps, for the report."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor, nn

from longtail.analysis.saliency import saliency_map
from longtail.data.dataset import Dataset
from longtail.data.loader import load_images
from longtail.metrics.accuracy import recall
from longtail.metrics.calibration import confidence as confidence_of
from longtail.records.files import atomic_write
from longtail.records.layout import RunFolder
from longtail.records.predictions import read_predictions

CLASSES, EACH, SIDE = 5, 4, 64
"""Classes, images of each, and pixels of a side at most: 20 images of 12 kB."""


def write_examples(
    folder: Path, network: nn.Module, dataset: Dataset, *, size: int, confidence: str = "softmax"
) -> Path | None:
    """Write misclassified images of the worst classes of the tail, from the run's predictions.

    The tail is the group of the rarest classes that has images. Of each class, the most confident
    mistakes come first. Returns the path of the file; None where there is no mistake.

    Args:
        folder: The run folder.
        network: The trained network.
        dataset: The data of the run.
        size: Side of the network's images in pixels.
        confidence: How logits become confidence.
    """
    name, split = ("test", dataset.test) if len(dataset.test) else ("val", dataset.val)
    if not len(split) or dataset.has_vectors:
        return None
    predictions, ids = read_predictions(RunFolder(folder).predictions(name))
    logits, target = predictions.logits["logits"], predictions.target
    members = next(
        group
        for group in reversed([*dataset.groups.members.values()])
        if np.isin(group, target).any()
    )
    sure = confidence_of(logits, confidence)
    rows = chosen(logits, target, members=members, sure=sure)
    if not len(rows):
        return None
    image = load_images(split, predictions.index[rows].tolist(), size)
    predicted = logits[rows].argmax(1)
    maps, kind = saliency_map(network, image, target=torch.from_numpy(predicted))
    arrays: dict[str, Any] = {
        "image": (
            _bytes(F.interpolate(image, SIDE, mode="area") if size > SIDE else image)
            .permute(0, 2, 3, 1)
            .numpy()
        ),
        "target": target[rows],
        "answer": predicted,
        "confidence": sure[rows].astype(np.float32),
        "id": ids[rows],
        "split": np.array(name),
        "kind": np.array(kind),
    }
    if maps is not None:
        arrays["map"] = _bytes(
            maps / maps.amax((1, 2), keepdim=True).clamp_min(torch.finfo(maps.dtype).tiny)
        ).numpy()
    path = RunFolder(folder).analysis.arrays("examples")
    with atomic_write(path) as part, part.open("wb") as file:
        np.savez_compressed(file, **arrays)
    return path


def chosen(
    logits: NDArray[Any], target: NDArray[Any], *, members: tuple[int, ...], sure: NDArray[Any]
) -> NDArray[np.int64]:
    """The rows to show: mistakes in the worst classes among `members`, most confident first.

    >>> logits = np.array([[2.0, 1.0], [4.0, 1.0], [0.0, 1.0], [1.0, 0.0]])
    >>> chosen(logits, np.array([1, 1, 1, 0]), members=(1,), sure=logits.max(1)).tolist()
    [1, 0]
    """
    recalls, predicted = recall(logits, target, logits.shape[1]), logits.argmax(1)
    # The recall of a class without images is nan: it is left out, too.
    missed = [label for label in members if recalls[label] < 1]
    worst = sorted(missed, key=lambda label: (recalls[label], label))[:CLASSES]
    rows = []
    for label in worst:
        wrong = np.flatnonzero((target == label) & (predicted != label))
        rows.append(wrong[np.argsort(-sure[wrong], kind="stable")][:EACH])
    return np.concatenate(rows) if rows else np.empty(0, dtype=np.int64)


def _bytes(values: Tensor) -> Tensor:
    return values.mul(255).round().clamp(0, 255).byte()
