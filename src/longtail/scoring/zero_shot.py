"""Generalised zero-shot: accuracy on seen and on unseen classes, with both as candidates."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from longtail.metrics.bias_sweep import BiasSweep, bias_sweep, class_weights, predictions_at
from longtail.records.predictions import SplitPredictions
from longtail.records.scores import Label, label


class SeenUnseenScorer(ABC):
    """A scorer of data with unseen classes, for which a bias on their logits can be chosen."""

    seen: NDArray[np.bool_]
    """(C,), whether a class has training images."""

    @abstractmethod
    def sweep(self, predictions: SplitPredictions, /) -> BiasSweep | None:
        """Accuracies at all biases on unseen classes; None without seen or unseen images."""

    def candidates_of(self, target: NDArray[np.int64]) -> NDArray[np.bool_]:
        """(C,), which classes can be predicted for a split with these targets."""
        candidates = self.seen.copy()
        candidates[target] = True
        return candidates


@dataclass(frozen=True)
class ZeroShotScorer(SeenUnseenScorer):
    """U, S and their harmonic mean H: means of the accuracies of unseen and of seen classes.

    Xian et al., "Zero-Shot Learning - A Comprehensive Evaluation", TPAMI 2019. Candidates are the
    seen classes and the unseen classes of the split: classes that are unseen in validation only are
    not predicted in test, nor the other way round. Over all biases on the unseen classes, there
    are the best H (which no other split chose: an upper bound) and the area under the curve of S
    over U (AUSUC, Chao et al. 2016).

    >>> scorer = ZeroShotScorer(np.array([True, True, False]))
    >>> logits = {"logits": np.eye(3)[[0, 0, 0, 2]]}
    >>> scores = scorer(SplitPredictions(logits, np.array([0, 1, 2, 2]), np.arange(4)))
    >>> scores["seen"], scores["unseen"], scores["h"]
    (0.5, 0.5, 0.5)
    """

    seen: NDArray[np.bool_]
    headline: str = "h"

    @property
    def labels(self) -> Mapping[str, Label]:
        """How each score is shown."""
        return {
            "h": label("H", description="harmonic mean of U and S"),
            "unseen": label("U", description="mean accuracy of unseen classes"),
            "seen": label("S", description="mean accuracy of seen classes"),
            "ausuc": label("AUSUC", description="area under the curve of S over U"),
            "best_h": label("best H", description="H at the best bias on this split"),
        }

    def __call__(self, predictions: SplitPredictions, /) -> dict[str, float | None]:
        """Scores by name; None where there are no images of seen or of unseen classes."""
        logits, target = predictions.logits["logits"], predictions.target
        candidates = self.candidates_of(target)
        predicted = predictions_at(logits, self.seen, bias=0.0, candidates=candidates)
        right, weight, known = predicted == target, class_weights(target), self.seen[target]
        seen, unseen = (
            float(weight[kind & right].sum() / weight[kind].sum()) if kind.any() else None
            for kind in (known, ~known)
        )
        sweep = self.sweep(predictions)
        return {
            "h": harmonic_mean(seen, unseen),
            "unseen": unseen,
            "seen": seen,
            "ausuc": None if sweep is None else sweep.auc,
            "best_h": None if sweep is None else sweep.hm,
        }

    def sweep(self, predictions: SplitPredictions, /) -> BiasSweep | None:
        """Mean accuracies of classes at all biases on unseen classes."""
        logits, target = predictions.logits["logits"], predictions.target
        return bias_sweep(
            logits,
            target,
            self.seen,
            candidates=self.candidates_of(target),
            weight=class_weights(target),
        )


def harmonic_mean(first: float | None, second: float | None) -> float | None:
    """2 ab / (a + b), 0 where both are 0, None where one is.

    >>> harmonic_mean(0.6, 0.3), harmonic_mean(0.0, 0.0), harmonic_mean(0.5, None)
    (0.4, 0.0, None)
    """
    if first is None or second is None:
        return None
    return 2 * first * second / (first + second) if first + second else 0.0
