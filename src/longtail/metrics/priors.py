"""The accuracy that a network would have under another class prior, without a new test set."""

from __future__ import annotations

from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from longtail.errors import LongtailError
from longtail.metrics.accuracy import blocks, check, recall, recall_of
from longtail.records.row import Prior

IMBALANCES = (2, 5, 10, 25, 50)
"""The k of SADE's forward and backward test sets (Zhang et al. 2022)."""


def shifted(
    counts: NDArray[Any], k: float, direction: Literal["forward", "backward"] = "forward"
) -> NDArray[np.float64]:
    """The prior that makes the class with most training images k times as frequent as the rarest.

    q_c is proportional to (1/k) ** (r_c / (C - 1)), where r_c is the rank of class c by training
    images, largest first, or for "backward" smallest first (SADE, Zhang et al. 2022). Of classes
    with the same number, the lower index ranks first.

    >>> shifted(np.array([10, 1000, 100]), 4.0).round(3).tolist()
    [0.143, 0.571, 0.286]
    >>> shifted(np.array([10, 1000, 100]), 4.0, "backward").round(3).tolist()
    [0.571, 0.143, 0.286]
    """
    if counts.ndim != 1 or not len(counts):
        raise LongtailError(f"expected the training images of each class, got shape {counts.shape}")
    if k < 1:
        raise LongtailError(
            f"expected k of at least 1, got {k}: a prior that favours the other end is the other"
            " direction"
        )
    if direction not in ("forward", "backward"):
        raise LongtailError(f"expected forward or backward, got {direction!r}")
    rank = np.empty(len(counts))
    rank[np.argsort(-counts.astype(np.float64), kind="stable")] = np.arange(len(counts))
    if direction == "backward":
        rank = len(counts) - 1 - rank
    weight = (1 / k) ** (rank / max(len(counts) - 1, 1))
    return np.asarray(weight / weight.sum())


def accuracy_under(recalls: NDArray[Any], prior: NDArray[Any]) -> float:
    """The expected accuracy where classes have this prior: sum(q_c recall_c).

    It is exact in expectation over test sets sampled with this prior from the same images. Classes
    without images have no recall; they are left out, and q is renormalised over the others.

    >>> round(accuracy_under(np.array([1.0, 0.5, np.nan]), np.array([0.6, 0.2, 0.2])), 6)
    0.875
    """
    if recalls.shape != prior.shape:
        raise LongtailError(
            f"expected one probability for each of {len(recalls)} classes, got shape {prior.shape}"
        )
    if not ((prior >= 0).all() and np.isclose(prior.sum(), 1)):
        raise LongtailError(
            f"expected a prior that sums to 1, got a sum of {prior.sum():g}: divide by it"
        )
    present = ~np.isnan(recalls)
    if not prior[present].sum():
        raise LongtailError(
            "expected images in at least one class that this prior allows, got none"
        )
    return float(recalls[present] @ prior[present] / prior[present].sum())


def known_prior_recall(
    logits: NDArray[Any], target: NDArray[Any], prior: NDArray[Any]
) -> NDArray[np.float64]:
    """The recall of each class when the test prior q is known: log q is added to the logits.

    As in LADE (Hong et al. 2021) and BalPoE (Aimar et al. 2023). It assumes logits for a uniform
    prior: balanced softmax and similar losses give such logits, plain cross entropy already favours
    the head.

    >>> logits, target = np.array([[0.0, 0.1], [0.0, 3.0]]), np.array([0, 1])
    >>> known_prior_recall(logits, target, np.array([0.9, 0.1])).tolist()
    [1.0, 1.0]
    """
    check(logits, target)
    if prior.shape != logits.shape[1:] or not (prior > 0).all():
        raise LongtailError(
            f"expected a positive probability for each of {logits.shape[1]} classes, got shape"
            f" {prior.shape}"
        )
    bias = np.log(prior)
    predicted = np.concatenate([(block + bias).argmax(axis=1) for _, block in blocks(logits)])
    return recall_of(predicted == target, target, len(prior))


def sweep(logits: NDArray[Any], target: NDArray[Any], *, counts: NDArray[Any]) -> list[Prior]:
    """Accuracy under test priors from long-tailed (forward 50) to reversed (backward 50).

    Under the uniform prior it is the balanced accuracy.

    >>> results = sweep(np.eye(2)[[0, 0]], np.array([0, 1]), counts=np.array([100, 1]))
    >>> [(prior["direction"], prior["k"], round(prior["accuracy"], 3)) for prior in results[::5]]
    [('forward', 50, 0.98), ('uniform', 1, 0.5), ('backward', 50, 0.02)]
    """
    if counts.shape != logits.shape[1:]:
        raise LongtailError(
            f"expected the training images of {logits.shape[1]} classes, got shape {counts.shape}"
        )
    recalls = recall(logits, target, logits.shape[1])
    uniform = accuracy_under(recalls, shifted(counts, 1))
    results: list[Prior] = [
        {"direction": "uniform", "k": 1, "accuracy": uniform, "known_prior": uniform}
    ]
    for k in IMBALANCES:
        ends: list[Prior] = []
        for direction in ("forward", "backward"):
            prior = shifted(counts, k, direction)
            known_prior = accuracy_under(known_prior_recall(logits, target, prior), prior)
            ends.append(
                {
                    "direction": direction,
                    "k": k,
                    "accuracy": accuracy_under(recalls, prior),
                    "known_prior": known_prior,
                }
            )
        results = [ends[0], *results, ends[1]]
    return results
