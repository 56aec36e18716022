"""Long-tailed classification: balanced accuracy, accuracy by group, and a split's summary."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from longtail.metrics import priors
from longtail.metrics.accuracy import (
    balanced,
    by_group,
    g_mean,
    group_of,
    h_mean,
    hits,
    macro_f1,
    recall,
    top,
    zero_recall,
)
from longtail.metrics.calibration import CONFIDENCES, classwise_ece, ece, mce, reliability
from longtail.metrics.calibration import confidence as confidence_of
from longtail.metrics.conformal import Thresholds, evaluate_sets
from longtail.metrics.confusion import between_groups, most_confused
from longtail.metrics.intervals import wilson
from longtail.records.groups import Groups
from longtail.records.predictions import SplitPredictions
from longtail.records.row import Calibration, Summary, Worst
from longtail.records.scores import Label, label, long_tail_labels, long_tail_scores

WORST = 10
"""How many of the worst classes a summary lists."""
DIGITS = 4
"""Decimals of the intervals and shares of each class, so that rows of many classes stay small."""


@dataclass(frozen=True)
class LongTailScorer:
    """Accuracy over all images (`top1`), over classes (`balanced`) and over the classes of each
    group.

    >>> from longtail.records.groups import Groups
    >>> scorer = LongTailScorer(Groups("ranks: 1/0/1", {"many": (0,), "medium": (), "few": (1,)}))
    >>> logits = {"logits": np.eye(2)[[0, 0, 0, 1]]}
    >>> scorer(SplitPredictions(logits, np.array([0, 0, 1, 1]), np.arange(4)))
    {'top1': 0.75, 'balanced': 0.75, 'many': 1.0, 'medium': None, 'few': 0.5}
    """

    groups: Groups
    headline: str = "balanced"

    @property
    def labels(self) -> Mapping[str, Label]:
        """How each score is shown."""
        return long_tail_labels(self.groups.members)

    def __call__(self, predictions: SplitPredictions, /) -> dict[str, float | None]:
        """Scores by name; None for a group in which no class has images."""
        logits, target = predictions.logits["logits"], predictions.target
        recalls = recall(logits, target, logits.shape[1])
        return {
            "top1": top(logits, target),
            "balanced": balanced(recalls),
            **by_group(recalls, self.groups),
        }


@dataclass(frozen=True)
class Top5Scorer:
    """The share of images whose class is among the five most probable: `--scoring top5`.

    >>> logits = {"logits": np.array([[9.0, 1, 2, 3, 4, 5], [9.0, 5, 4, 3, 2, 1]])}
    >>> Top5Scorer()(SplitPredictions(logits, np.array([1, 1]), np.arange(2)))
    {'top5': 0.5}
    """

    headline: str = "top5"

    @property
    def labels(self) -> Mapping[str, Label]:
        """How the score is shown."""
        return {"top5": label("top-5", description="top-5 accuracy")}

    def __call__(self, predictions: SplitPredictions, /) -> dict[str, float | None]:
        """The score by name."""
        return {"top5": top(predictions.logits["logits"], predictions.target, 5)}


def summarise(
    logits: NDArray[Any],
    target: NDArray[Any],
    *,
    classes: int,
    groups: Groups,
    confidence: str = "softmax",
    bins: int = 15,
) -> Summary:
    """Summarise predictions: accuracy overall, by class and by group, and calibration.

    Args:
        logits: (N, C).
        target: Class indices (N,).
        classes: C.
        groups: Of the classes.
        confidence: "softmax" or "sigmoid".
        bins: Of the calibration errors.

    >>> from longtail.records.groups import Groups
    >>> groups = Groups("ranks: 1/1/1", {"many": (0,), "medium": (1,), "few": (2,)})
    >>> logits = np.array([[2.0, 1.0, 0.0], [0.0, 1.0, 0.0], [3.0, 0.0, 0.0]])
    >>> numbers = summarise(logits, np.array([0, 1, 1]), classes=3, groups=groups)
    >>> numbers["balanced"], numbers["groups"], numbers["classes_without_images"]
    (0.75, {'many': 1.0, 'medium': 0.5, 'few': None}, {'count': 1, 'indices': [2]})
    """
    recalls = recall(logits, target, classes)
    correct = hits(logits, target)
    confidences = {name: confidence_of(logits, name) for name in CONFIDENCES}
    calibration: dict[str, Calibration] = {
        name: {"ece": ece(values, correct, bins), "mce": mce(values, correct, bins)}
        for name, values in confidences.items()
    }
    by_class = classwise_ece(logits, target, confidence=confidence, bins=bins)
    without = np.flatnonzero(np.isnan(recalls)).tolist()
    summary: Summary = {
        "scores": {},
        "top1": top(logits, target),
        "top5": top(logits, target, 5) if classes > 5 else None,
        "balanced": balanced(recalls),
        "groups": by_group(recalls, groups),
        "group_rule": groups.rule,
        "recall": [None if np.isnan(value) else float(value) for value in recalls],
        "classes_without_images": {"count": len(without), "indices": without},
        "ece": calibration[confidence]["ece"],
        "mce": calibration[confidence]["mce"],
        "bins": bins,
        "confidence": confidence,
        "images": len(target),
        "h_mean": h_mean(recalls),
        "g_mean": g_mean(recalls),
        "zero_recall": zero_recall(recalls),
        "macro_f1": macro_f1(logits, target),
        "calibration": calibration,
        "classwise_ece": {"mean": float(by_class.mean()), "groups": by_group(by_class, groups)},
    }
    summary["scores"] = long_tail_scores(summary)
    return summary


def detailed(
    logits: NDArray[Any],
    target: NDArray[Any],
    *,
    groups: Groups,
    counts: NDArray[Any],
    confidence: str = "softmax",
    bins: int = 15,
    thresholds: Thresholds | None = None,
    once: NDArray[Any] | None = None,
) -> Summary:
    """Like `summarise`, with intervals, worst classes, confusions, reliability, priors and sets.

    `counts` are the training images of each class: they rank the classes of the priors.
    `thresholds` come from other images than these (`metrics.conformal.calibrate`); without them
    there are no prediction sets. `once` are the logits without test-time averaging, where there is
    any: prediction sets are evaluated on those, because a deployed network predicts each image
    once.

    Args:
        logits: (N, C).
        target: Class indices (N,).
        groups: Of the classes.
        counts: (C,).
        confidence: "softmax" or "sigmoid".
        bins: Of the calibration errors.
        thresholds: Of prediction sets.
        once: (N, C).

    >>> from longtail.records.groups import Groups
    >>> groups = Groups("ranks: 1/0/1", {"many": (0,), "medium": (), "few": (1,)})
    >>> logits, target = np.eye(2)[[0, 0, 0, 1]], np.array([0, 0, 1, 1])
    >>> numbers = detailed(logits, target, groups=groups, counts=np.array([90, 9]))
    >>> first = numbers["worst"][0]
    >>> first["index"], first["recall"], first["confused_with_group"], first["confused_share"]
    (1, 0.5, 'many', 0.5)
    """
    classes = logits.shape[1]
    numbers = summarise(
        logits, target, classes=classes, groups=groups, confidence=confidence, bins=bins
    )
    images = np.bincount(target, minlength=classes)
    low, high = wilson(np.bincount(target[hits(logits, target)], minlength=classes), images)
    other, share = most_confused(logits, target)
    confidences = confidence_of(logits, confidence)
    correct, position = hits(logits, target), group_of(groups, classes)
    parts = {"all": np.full(len(target), True)} | {
        name: position[target] == number for number, name in enumerate(groups.members)
    }
    numbers |= {
        "members": {name: list(members) for name, members in groups.members.items()},
        "images_per_class": images.tolist(),
        "recall_low": _rounded(low),
        "recall_high": _rounded(high),
        "confused_with": [None if index < 0 else index for index in other.tolist()],
        "confused_share": [
            None if index < 0 else part
            for index, part in zip(other.tolist(), _rounded(share), strict=True)
        ],
        "reliability": {
            name: reliability(confidences[rows], correct[rows], bins) if rows.any() else None
            for name, rows in parts.items()
        },
        "confusions": between_groups(logits, target, groups=groups),
        "priors": priors.sweep(logits, target, counts=counts),
    }
    numbers["worst"] = _worst(numbers, groups=groups, counts=counts)
    if thresholds is not None:
        numbers["conformal"] = evaluate_sets(
            logits if once is None else once, target, groups=groups, thresholds=thresholds
        )
    return numbers


def _worst(numbers: Summary, *, groups: Groups, counts: NDArray[Any]) -> list[Worst]:
    recalls = [
        (value, int(counts[index]), index)
        for index, value in enumerate(numbers["recall"])
        if value is not None
    ]
    names = [*groups.members, "none"]
    position = group_of(groups, len(counts))
    worst: list[Worst] = []
    for value, train, index in sorted(recalls)[:WORST]:
        low, high, other = (
            numbers["recall_low"][index],
            numbers["recall_high"][index],
            numbers["confused_with"][index],
        )
        assert low is not None
        assert high is not None
        worst.append(
            {
                "index": index,
                "group": names[position[index]],
                "recall": value,
                "low": low,
                "high": high,
                "images": numbers["images_per_class"][index],
                "train_images": train,
                "confused_with": other,
                "confused_with_group": None if other is None else names[position[other]],
                "confused_share": numbers["confused_share"][index],
            }
        )
    return worst


def _rounded(values: NDArray[np.float64]) -> list[float | None]:
    return [None if np.isnan(value) else float(value) for value in values.round(DIGITS)]
