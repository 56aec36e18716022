"""Whether a confidence of 0.8 is right in 8 of 10 cases."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from longtail.errors import LongtailError
from longtail.metrics.accuracy import blocks, check
from longtail.naming import unknown
from longtail.records.row import Reliability


def softmax(logits: NDArray[Any]) -> NDArray[np.float64]:
    """Turn logits into probabilities that sum to 1 over the classes.

    >>> softmax(np.array([[0.0, np.log(3.0)]])).round(2).tolist()
    [[0.25, 0.75]]
    """
    shifted = np.exp(logits.astype(np.float64) - logits.max(axis=1, keepdims=True))
    return np.asarray(shifted / shifted.sum(axis=1, keepdims=True))


def sigmoid(logits: NDArray[Any]) -> NDArray[np.float64]:
    """Turn each logit into a separate probability, as binary losses do.

    >>> sigmoid(np.array([[0.0, np.log(3.0)]])).round(2).tolist()
    [[0.5, 0.75]]
    """
    # Tanh does not overflow, exp does
    return np.asarray(0.5 * (1 + np.tanh(0.5 * logits.astype(np.float64))))


CONFIDENCES: dict[str, Callable[[NDArray[Any]], NDArray[np.float64]]] = {
    "softmax": softmax,
    "sigmoid": sigmoid,
}


def confidence(logits: NDArray[Any], name: str) -> NDArray[np.float64]:
    """The probability of the predicted class, by "softmax" or "sigmoid".

    >>> confidence(np.array([[0.0, np.log(3.0)]]), "softmax").round(2).tolist()
    [0.75]
    """
    return np.concatenate([_probabilities(block, name).max(axis=1) for _, block in blocks(logits)])


def _probabilities(logits: NDArray[Any], name: str) -> NDArray[np.float64]:
    if name not in CONFIDENCES:
        raise unknown("confidence", name, CONFIDENCES)
    # Probabilities that sum to 1 exceed it by a rounding at times.
    return np.minimum(CONFIDENCES[name](logits), 1.0)


def reliability(confidence: NDArray[Any], correct: NDArray[Any], bins: int = 15) -> Reliability:
    """A reliability diagram: mean confidence, accuracy and images of each of `bins` equal bins.

    Guo et al. 2017, section 2, with bins (lo, hi]. A bin without images has None.

    >>> diagram = reliability(np.array([0.9, 0.9, 0.3]), np.array([True, False, True]), bins=2)
    >>> diagram["confidence"], diagram["accuracy"], diagram["images"]
    ([0.3, 0.9], [1.0, 0.5], [1, 2])
    """
    images, sure, right = _binned(confidence, correct, bins)
    return {
        "confidence": [
            float(total / n) if n else None for total, n in zip(sure, images, strict=True)
        ],
        "accuracy": [
            float(total / n) if n else None for total, n in zip(right, images, strict=True)
        ],
        "images": images.tolist(),
        "ece": ece(confidence, correct, bins),
        "mce": mce(confidence, correct, bins),
    }


def classwise_ece(
    logits: NDArray[Any], target: NDArray[Any], *, confidence: str = "softmax", bins: int = 15
) -> NDArray[np.float64]:
    """The calibration error of each class: of the images given a probability near p for this class,
    is a share p of this class?

    Class-wise ECE is the mean of these (Kull et al. 2019, section 2; Nixon et al. 2019 call it
    static calibration error). Each class is evaluated over all images. With many classes, most
    images rightly give a class almost no probability and the numbers are small: compare them
    between groups and runs with the same classes, not with ECE. A class without images counts, too:
    it should get no probability.

    >>> classwise_ece(np.log([[0.8, 0.2], [0.8, 0.2]]), np.array([0, 1]), bins=2).round(2).tolist()
    [0.3, 0.3]
    """
    check(logits, target)
    if bins < 1:
        raise LongtailError(f"expected at least 1 bin, got {bins}")
    edges, classes = np.linspace(0, 1, bins + 1), logits.shape[1]
    images, sure, right = (np.zeros(classes * bins) for _ in range(3))
    total = np.zeros(classes)
    for rows, block in blocks(logits):
        probability = _probabilities(block, confidence)
        total += probability.sum(axis=0)
        # Nearly all probabilities are in the first bin: it gets what the others leave, which is
        # many times faster.
        row, column = np.nonzero(probability > edges[1])
        value = probability[row, column]
        place = column * bins + np.searchsorted(edges, value, side="left") - 1
        images += np.bincount(place, minlength=len(images))
        sure += np.bincount(place, weights=value, minlength=len(images))
        right += np.bincount(place[target[rows][row] == column], minlength=len(images))
    images, sure, right = (sums.reshape(classes, bins) for sums in (images, sure, right))
    gaps = np.abs(right - sure)[:, 1:].sum(axis=1)
    first = np.bincount(target, minlength=classes) - right.sum(axis=1) - (total - sure.sum(axis=1))
    return np.asarray((gaps + np.abs(first)) / len(target))


def _binned(
    confidence: NDArray[Any], correct: NDArray[Any], bins: int
) -> tuple[NDArray[np.int64], NDArray[np.float64], NDArray[np.float64]]:
    """For each bin: its images, the sum of their confidences, and how many of them are correct."""
    if bins < 1:
        raise LongtailError(f"expected at least 1 bin, got {bins}")
    if confidence.ndim != 1 or confidence.shape != correct.shape or not len(confidence):
        raise LongtailError(
            f"expected one confidence and one correct for each image, got shapes {confidence.shape}"
            f" and {correct.shape}"
        )
    if not ((confidence >= 0) & (confidence <= 1)).all():
        got = f"{confidence.min()}..{confidence.max()}"
        raise LongtailError(
            f"expected confidences in [0, 1], got {got}: turn logits into probabilities with"
            " softmax or sigmoid"
        )
    edges = np.linspace(0, 1, bins + 1)
    # A confidence of exactly 0 joins the first bin
    bin_index = np.maximum(np.searchsorted(edges, confidence, side="left") - 1, 0)
    sure, right = (
        np.bincount(bin_index, weights=values.astype(np.float64), minlength=bins)
        for values in (confidence, correct)
    )
    return (
        np.bincount(bin_index, minlength=bins),
        np.asarray(sure, dtype=np.float64),
        np.asarray(right, dtype=np.float64),
    )


def _gaps(
    confidence: NDArray[Any], correct: NDArray[Any], bins: int
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """For each bin with images: its share of the images, and |accuracy - mean confidence|."""
    images, sure, right = _binned(confidence, correct, bins)
    filled = images > 0
    return images[filled] / len(confidence), np.abs(right - sure)[filled] / images[filled]


def ece(confidence: NDArray[Any], correct: NDArray[Any], bins: int = 15) -> float:
    """Expected calibration error: by how much confidence misses accuracy, on average over images.

    Guo et al. 2017, equation 3, with their equal bins (lo, hi].

    >>> round(ece(np.array([0.9, 0.9, 0.6, 0.6]), np.array([True, True, True, False])), 3)
    0.1
    """
    share, gap = _gaps(confidence, correct, bins)
    return float((share * gap).sum())


def mce(confidence: NDArray[Any], correct: NDArray[Any], bins: int = 15) -> float:
    """Maximum calibration error: by how much confidence misses accuracy in the worst bin.

    Guo et al. 2017, equation 5; bins without images do not count.

    >>> round(mce(np.array([0.9, 0.9, 0.7, 0.7]), np.array([True, True, True, False])), 3)
    0.2
    """
    return float(_gaps(confidence, correct, bins)[1].max())
