"""Logits become answers: a class, a set of classes, or nothing, where a person should look."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from longtail.errors import LongtailError
from longtail.metrics import conformal
from longtail.metrics.conformal import Thresholds
from longtail.records.files import read_json


def read_thresholds(path: Path, *, classes: int) -> Thresholds | None:
    """Read `model/conformal.json`; a run that was not calibrated has none."""
    if not path.exists():
        return None
    content = read_json(path)
    try:
        found = conformal.from_json(content)
    except (ValueError, KeyError, TypeError) as error:
        raise LongtailError(
            f"expected level, score and thresholds, got something else or a part of it in {path} ({error})"
        ) from error
    if found.values.shape != (classes,):
        raise LongtailError(
            f"expected {classes} thresholds, one for each class, got {found.values.shape} in {path}: delete it or calibrate again"
        )
    return found


@dataclass(frozen=True)
class Answers:
    """What a network says about images, row by row."""

    probabilities: Tensor  # (N, C)
    labels: tuple[str, ...]  # the most probable class of each
    classes: tuple[str, ...]  # the names of the columns
    sets: (
        tuple[tuple[str, ...], ...] | None
    )  # the prediction set of each; None where the run was not calibrated for them
    level: float | None  # how probably a set holds the true class
    abstain: tuple[
        bool, ...
    ]  # where a person should look: the set has not exactly one class, or the probability is too low

    def __len__(self) -> int:
        return len(self.labels)

    def records(self, top: int = 5) -> list[dict[str, Any]]:
        """Each answer as JSON: class, probability, abstain, set and level (where there are sets), top."""
        found: list[dict[str, Any]] = []
        for number, best in enumerate(self.top(top)):
            named = [{"class": name, "probability": round(value, 6)} for name, value in best]
            sets = (
                {} if self.sets is None else {"set": list(self.sets[number]), "level": self.level}
            )
            found.append({**named[0], "abstain": self.abstain[number], **sets, "top": named})
        return found

    def top(self, count: int = 5) -> list[list[tuple[str, float]]]:
        """The most probable classes of each image with their probabilities, the first first."""
        if count < 1:
            raise LongtailError(f"expected at least one class to show, got {count}")
        values, order = self.probabilities.sort(dim=1, descending=True, stable=True)
        rows = zip(order[:, :count].tolist(), values[:, :count].tolist(), strict=True)
        return [
            [(self.classes[index], value) for index, value in zip(*row, strict=True)]
            for row in rows
        ]


def answered(
    logits: Tensor,
    *,
    classes: tuple[str, ...],
    thresholds: Thresholds | None,
    abstain_below: float | None,
) -> Answers:
    """Turn logits (N, C) into answers. It abstains where the prediction set has not one class, or the probability is below the bound.

    >>> found = answered(torch.tensor([[2.0, 0.0], [0.1, 0.0]]), classes=("cat", "dog"), thresholds=None, abstain_below=0.6)
    >>> found.labels, found.abstain
    (('cat', 'cat'), (False, True))
    """
    if abstain_below is not None and not 0 <= abstain_below <= 1:
        raise LongtailError(
            f"expected a probability in [0, 1] to abstain below, got {abstain_below}"
        )
    if logits.shape[1] != len(classes):
        raise LongtailError(
            f"expected a classifier of {len(classes)} classes, got a network that gives {logits.shape[1]} numbers"
        )
    if not torch.isfinite(logits).all():
        raise LongtailError(
            "expected finite logits, got others: the weights of this run are broken, or its training diverged"
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
            tuple(name for name, own in zip(classes, row, strict=True) if own)
            for row in inside.tolist()
        )
    return Answers(
        probabilities,
        tuple(classes[own] for own in index.tolist()),
        classes,
        sets,
        level,
        tuple(unsure.tolist()),
    )
