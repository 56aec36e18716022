"""How accurate the same network would be where classes are as frequent as some other prior says: no
new test set is needed.
"""

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
    """Give the prior under which the class with most training images is k times as frequent as the
    one
    with fewest.

    q_c is proportional to (1/k) ** (r_c / (C - 1)), where r_c is the rank of class c by training
    images, largest first, or for "backward" smallest first (SADE, Zhang et al. 2022). Of classes
    with equally many, the lower index ranks first.

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
    """Give the accuracy that is to be expected where classes have this prior: sum(q_c recall_c).

    Exact in expectation over test sets that are drawn with this prior from the same images. Classes
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
    seen = ~np.isnan(recalls)
    if not prior[seen].sum():
        raise LongtailError(
            "expected images in at least one class that this prior allows, got none"
        )
    return float(recalls[seen] @ prior[seen] / prior[seen].sum())


def told(logits: NDArray[Any], target: NDArray[Any], prior: NDArray[Any]) -> NDArray[np.float64]:
    """Give the recall of each class when the network is told the test prior: log q is added to its
    logits.

    As in LADE (Hong et al. 2021) and BalPoE (Aimar et al. 2023). It supposes logits that stand for
    a uniform prior: those of balanced softmax and its kin do, those of plain cross entropy already
    lean to the head.

    >>> told(np.array([[0.0, 0.1], [0.0, 3.0]]), np.array([0, 1]), np.array([0.9, 0.1])).tolist()
    [1.0, 1.0]
    """
    check(logits, target)
    if prior.shape != logits.shape[1:] or not (prior > 0).all():
        raise LongtailError(
            f"expected a positive probability for each of {logits.shape[1]} classes, got shape"
            f" {prior.shape}"
        )
    bias = np.log(prior)
    answer = np.concatenate([(own + bias).argmax(axis=1) for _, own in blocks(logits)])
    return recall_of(answer == target, target, len(prior))


def sweep(logits: NDArray[Any], target: NDArray[Any], *, counts: NDArray[Any]) -> list[Prior]:
    """Sum up accuracy from a long-tailed test prior (forward 50) over uniform, where it is the
    balanced one, to a reversed one.

    >>> found = sweep(np.eye(2)[[0, 0]], np.array([0, 1]), counts=np.array([100, 1]))
    >>> [(own["direction"], own["k"], round(own["accuracy"], 3)) for own in found[::5]]
    [('forward', 50, 0.98), ('uniform', 1, 0.5), ('backward', 50, 0.02)]
    """
    if counts.shape != logits.shape[1:]:
        raise LongtailError(
            f"expected the training images of {logits.shape[1]} classes, got shape {counts.shape}"
        )
    recalls = recall(logits, target, logits.shape[1])
    even = accuracy_under(recalls, shifted(counts, 1))
    found: list[Prior] = [{"direction": "uniform", "k": 1, "accuracy": even, "known_prior": even}]
    for k in IMBALANCES:
        ends: list[Prior] = []
        for direction in ("forward", "backward"):
            prior = shifted(counts, k, direction)
            informed = accuracy_under(told(logits, target, prior), prior)
            ends.append(
                {
                    "direction": direction,
                    "k": k,
                    "accuracy": accuracy_under(recalls, prior),
                    "known_prior": informed,
                }
            )
        found = [ends[0], *found, ends[1]]
    return found
