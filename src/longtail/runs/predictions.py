"""Logits become predictions: a class, a set of classes, or abstention, for a person to decide."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from longtail.errors import LongtailError
from longtail.metrics import conformal
from longtail.metrics.conformal import Thresholds
from longtail.records.documents import read_document
from longtail.records.kinds import THRESHOLDS


def read_thresholds(path: Path, *, classes: int) -> Thresholds | None:
    """Read `model/conformal.json`; None for a run that was not calibrated."""
    if not path.exists():
        return None
    content = read_document(path, THRESHOLDS)
    try:
        thresholds = conformal.from_json(content)
    except (ValueError, KeyError, TypeError) as error:
        raise LongtailError(
            "expected level, score and thresholds, got something else or a part of it "
            f"in {path} ({error})"
        ) from error
    if thresholds.values.shape != (classes,):
        raise LongtailError(
            f"expected {classes} thresholds, one for each class, got {thresholds.values.shape} "
            f"in {path}: delete it or calibrate again"
        )
    return thresholds


@dataclass(frozen=True)
class Predictions:
    """A network's predictions for images, row by row."""

    probabilities: Tensor  # (N, C)
    labels: tuple[str, ...]  # the most probable class of each image
    classes: tuple[str, ...]  # the names of the columns
    # The prediction set of each image; None where the run was not calibrated for sets.
    sets: tuple[tuple[str, ...], ...] | None
    level: float | None  # the probability that a set contains the true class
    # Where a person should decide: the set has not exactly one class, or the probability is low.
    abstain: tuple[bool, ...]

    def __len__(self) -> int:
        return len(self.labels)

    def records(self, top: int = 5) -> list[dict[str, Any]]:
        """Each prediction as JSON: class, probability, abstain, top; set and level where known."""
        records: list[dict[str, Any]] = []
        for number, best in enumerate(self.top(top)):
            named = [{"class": name, "probability": round(value, 6)} for name, value in best]
            sets = (
                {} if self.sets is None else {"set": list(self.sets[number]), "level": self.level}
            )
            records.append({**named[0], "abstain": self.abstain[number], **sets, "top": named})
        return records

    def top(self, count: int = 5) -> list[list[tuple[str, float]]]:
        """The most probable classes of each image with their probabilities, best first."""
        if count < 1:
            raise LongtailError(f"expected at least one class to show, got {count}")
        values, order = self.probabilities.sort(dim=1, descending=True, stable=True)
        rows = zip(order[:, :count].tolist(), values[:, :count].tolist(), strict=True)
        return [
            [(self.classes[index], value) for index, value in zip(*row, strict=True)]
            for row in rows
        ]


def to_predictions(
    logits: Tensor,
    *,
    classes: tuple[str, ...],
    thresholds: Thresholds | None,
    abstain_below: float | None,
) -> Predictions:
    """Turn logits (N, C) into predictions.

    A prediction abstains where its set has not exactly one class, or its probability is below
    `abstain_below`.

    >>> logits = torch.tensor([[2.0, 0.0], [0.1, 0.0]])
    >>> result = to_predictions(
    ...     logits, classes=("cat", "dog"), thresholds=None, abstain_below=0.6
    ... )
    >>> result.labels, result.abstain
    (('cat', 'cat'), (False, True))
    """
    if abstain_below is not None and not 0 <= abstain_below <= 1:
        raise LongtailError(
            f"expected a probability in [0, 1] to abstain below, got {abstain_below}"
        )
    if logits.shape[1] != len(classes):
        raise LongtailError(
            f"expected a classifier of {len(classes)} classes, "
            f"got a network with {logits.shape[1]} outputs"
        )
    if not torch.isfinite(logits).all():
        raise LongtailError(
            "expected finite logits, got others: "
            "the weights of this run are broken, or its training diverged"
        )
    probabilities = logits.softmax(dim=1)
    best, index = probabilities.max(dim=1)
    unsure = best < (0.0 if abstain_below is None else abstain_below)
    sets = level = None
    if thresholds is not None:
        inside = conformal.sets(logits.numpy(), thresholds.values)
        unsure = unsure | torch.from_numpy(inside.sum(axis=1) != 1)
        level = thresholds.level
        sets = tuple(
            tuple(name for name, included in zip(classes, row, strict=True) if included)
            for row in inside.tolist()
        )
    return Predictions(
        probabilities,
        tuple(classes[number] for number in index.tolist()),
        classes,
        sets,
        level,
        tuple(unsure.tolist()),
    )
