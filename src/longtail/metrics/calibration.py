"""Whether a confidence of 0.8 is right in 8 of 10 cases."""

from __future__ import annotations

import difflib
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray


def softmax(logits: NDArray[Any]) -> NDArray[np.float64]:
    """Turn logits into probabilities that sum to 1 over the classes.

    >>> softmax(np.array([[0.0, np.log(3.0)]])).round(2).tolist()
    [[0.25, 0.75]]
    """
    shifted = np.exp(logits.astype(np.float64) - logits.max(axis=1, keepdims=True))
    return np.asarray(shifted / shifted.sum(axis=1, keepdims=True))


def sigmoid(logits: NDArray[Any]) -> NDArray[np.float64]:
    """Turn each logit into a probability of its own, as networks trained with binary losses mean them.

    >>> sigmoid(np.array([[0.0, np.log(3.0)]])).round(2).tolist()
    [[0.5, 0.75]]
    """
    return np.asarray(0.5 * (1 + np.tanh(0.5 * logits.astype(np.float64))))  # tanh does not overflow, exp does


CONFIDENCES: dict[str, Callable[[NDArray[Any]], NDArray[np.float64]]] = {"softmax": softmax, "sigmoid": sigmoid}


def confidence(logits: NDArray[Any], name: str) -> NDArray[np.float64]:
    """Give the probability of the predicted class, by "softmax" or "sigmoid".

    >>> confidence(np.array([[0.0, np.log(3.0)]]), "softmax").round(2).tolist()
    [0.75]
    """
    if name not in CONFIDENCES:
        close = difflib.get_close_matches(name, CONFIDENCES, n=1)
        hint = f" (did you mean {close[0]}?)" if close else ""
        raise ValueError(f"unknown confidence {name!r}: use one of {', '.join(CONFIDENCES)}{hint}")
    return np.asarray(CONFIDENCES[name](logits).max(axis=1))


def _gaps(confidence: NDArray[Any], correct: NDArray[Any], bins: int) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """For each bin that is not empty: its share of the images, and |accuracy - mean confidence| in it."""
    if bins < 1:
        raise ValueError(f"expected at least 1 bin, got {bins}")
    if confidence.ndim != 1 or confidence.shape != correct.shape or not len(confidence):
        raise ValueError(f"expected one confidence and one correct for each image, got shapes {confidence.shape} and {correct.shape}")
    if not ((confidence >= 0) & (confidence <= 1)).all():
        got = f"{confidence.min()}..{confidence.max()}"
        raise ValueError(f"expected confidences in [0, 1], got {got}: turn logits into probabilities with softmax or sigmoid")
    edges = np.linspace(0, 1, bins + 1)
    own = np.maximum(np.searchsorted(edges, confidence, side="left") - 1, 0)  # a confidence of exactly 0 joins the first bin
    images = np.bincount(own, minlength=bins)
    filled = images > 0
    gap = np.bincount(own, weights=correct.astype(np.float64) - confidence, minlength=bins)
    return images[filled] / len(confidence), np.abs(gap[filled]) / images[filled]


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
