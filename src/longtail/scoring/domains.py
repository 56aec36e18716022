"""Domain generalisation and adaptation: accuracy in each domain, and its mean over domains."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from longtail.metrics.accuracy import balanced, hits, recall
from longtail.records.predictions import SplitPredictions
from longtail.records.scores import Label, label


@dataclass(frozen=True)
class DomainScorer:
    """Accuracy of each domain (`domains/NAME`), and its mean over domains (`domains`).

    The validation images are of all training domains, so that `domains` selects an epoch without
    the test domain. The test images are of one domain, where `domains` is the overall accuracy and
    `balanced` the mean over classes. `loss` is the cross entropy, also a mean over domains.

    >>> scorer = DomainScorer(("art", "photo"))
    >>> logits, domain = {"logits": np.eye(2)[[0, 0, 0, 1]]}, np.array([0, 0, 0, 1])
    >>> scores = scorer(
    ...     SplitPredictions(logits, np.array([0, 0, 1, 1]), np.arange(4), {"domain": domain})
    ... )
    >>> {name: round(value, 3) for name, value in scores.items()}
    {'domains': 0.833, 'balanced': 0.75, 'loss': 0.48, 'domains/art': 0.667, 'domains/photo': 1.0}
    """

    names: Sequence[str]  # of the domains, in the order of the column "domain"
    headline: str = "domains"

    @property
    def labels(self) -> Mapping[str, Label]:
        """How each score is shown."""
        return {
            "domains": label("overall", description="accuracy, mean over domains"),
            "balanced": label("balanced", description="balanced accuracy"),
            "loss": label(
                "loss",
                description="cross entropy, mean over domains",
                format="plain",
                higher_is_better=False,
            ),
        }

    def __call__(self, predictions: SplitPredictions, /) -> dict[str, float | None]:
        """Scores by name; a domain without images in this split has none."""
        logits, target = predictions.logits["logits"], predictions.target
        domain = predictions.columns["domain"]
        present = np.unique(domain).tolist()
        correct = hits(logits, target)

        def loss(rows: NDArray[np.bool_]) -> float:
            normaliser = np.logaddexp.reduce(logits[rows].astype(np.float64), axis=1)
            return float((normaliser - logits[rows, target[rows]]).mean())

        def over_domains(value: Callable[[NDArray[np.bool_]], float]) -> dict[int, float]:
            return {number: value(domain == number) for number in present}

        accuracies = over_domains(lambda rows: float(correct[rows].mean()))
        return {
            "domains": float(np.mean([*accuracies.values()])),
            "balanced": balanced(recall(logits, target, logits.shape[1])),
            "loss": float(np.mean([*over_domains(loss).values()])),
            **{f"domains/{self.names[number]}": value for number, value in accuracies.items()},
        }
