"""Compositional zero-shot: seen against unseen pairs of attribute and object."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from longtail.metrics.bias_sweep import LARGE, BiasSweep, bias_sweep, binned_sweep, predictions_at
from longtail.records.predictions import SplitPredictions
from longtail.records.scores import Label, label
from longtail.scoring.zero_shot import SeenUnseenScorer

Candidates = Literal["closed", "open"]


@dataclass(frozen=True)
class CompositionalScorer(SeenUnseenScorer):
    """The area under the curve of seen over unseen accuracy, its best points, and the accuracy of
    attributes and objects.

    A bias on the unseen pairs moves predictions from seen to unseen ones. The scores follow
    Purushwalkam et al. 2019, over all biases (`auc`) and over those of released code (`auc20`).

    Args:
        seen: (C,), whether a pair has training images.
        attribute: (C,), the attribute of each pair.
        object: (C,), the object of each pair.
        candidates: "closed" if only pairs of training and of the evaluated split can be predicted,
            "open" if all C can.
    """

    seen: NDArray[np.bool_]
    attribute: NDArray[np.int64]
    object: NDArray[np.int64]
    candidates: Candidates = "closed"
    headline: str = "auc"

    @property
    def labels(self) -> Mapping[str, Label]:
        """How each score is shown."""
        return {
            "auc": label("AUC", description="area under the curve of seen over unseen accuracy"),
            "hm": label("HM", description="best harmonic mean of seen and unseen accuracy"),
            "best_seen": label("S", description="best accuracy on seen pairs"),
            "best_unseen": label("U", description="best accuracy on unseen pairs"),
            "attribute": label("attribute", description="accuracy of the attribute"),
            "object": label("object", description="accuracy of the object"),
            "attribute_biased": label(
                "attribute, biased", description="accuracy of the attribute among unseen pairs"
            ),
            "object_biased": label(
                "object, biased", description="accuracy of the object among unseen pairs"
            ),
            "auc20": label("AUC, 20 biases", description="AUC over the biases of released code"),
        }

    def __call__(self, predictions: SplitPredictions, /) -> dict[str, float | None]:
        """Scores by name; those of the sweep are None without seen or without unseen images."""
        logits, target = predictions.logits["logits"], predictions.target
        candidates = self.candidates_of(target)
        exact = self.sweep(predictions)
        binned = binned_sweep(logits, target, self.seen, candidates=candidates)
        scores: dict[str, float | None] = dict.fromkeys(self.labels)
        if exact is not None and binned is not None:
            scores |= {
                "auc": exact.auc,
                "hm": exact.hm,
                "best_seen": float(exact.seen.max()),
                "best_unseen": float(exact.unseen.max()),
                "auc20": binned.auc,
            }
        for suffix, bias in (("", 0.0), ("_biased", LARGE)):
            predicted = predictions_at(logits, self.seen, bias=bias, candidates=candidates)
            if not bias or exact is not None:
                scores |= {
                    f"attribute{suffix}": _accuracy(self.attribute, predicted, target),
                    f"object{suffix}": _accuracy(self.object, predicted, target),
                }
        return scores

    def sweep(self, predictions: SplitPredictions, /) -> BiasSweep | None:
        """Accuracies over images at all biases on unseen pairs."""
        logits, target = predictions.logits["logits"], predictions.target
        return bias_sweep(logits, target, self.seen, candidates=self.candidates_of(target))

    def candidates_of(self, target: NDArray[np.int64]) -> NDArray[np.bool_]:
        """(C,), which pairs can be predicted for a split with these targets."""
        if self.candidates == "open":
            return np.ones_like(self.seen)
        return super().candidates_of(target)


def _accuracy(part: NDArray[Any], predicted: NDArray[Any], target: NDArray[Any]) -> float:
    return float((part[predicted] == part[target]).mean())
