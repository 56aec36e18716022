"""Logit adjustment and calibration, both chosen on validation images."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from longtail.errors import LongtailError

TAUS = tuple(quarter / 4 for quarter in range(-4, 9))
"""The values of tau that are tried, -1 to 2. Negative values favour frequent classes, for networks
that were trained to favour rare ones.
"""

MAX_TEMPERATURE = 100.0
"""The largest temperature, and one over the smallest."""

CELLS = 1 << 22
"""Logits that are processed at once, to limit memory with many images and classes."""


@dataclass(frozen=True)
class Adjustment:
    """Adjusts logits (N, C): (logits - bias) / temperature."""

    tau: float  # the strength of `bias`, in units of calibrated logits; 0 changes no class
    bias: NDArray[np.float32]  # (C,), of mean 0
    temperature: float

    def __call__(self, logits: NDArray[Any]) -> NDArray[np.float32]:
        """The adjusted logits."""
        return (logits.astype(np.float32) - self.bias) / np.float32(self.temperature)


def adjustment(logits: NDArray[Any], target: NDArray[Any], counts: NDArray[Any]) -> Adjustment:
    """Choose tau by balanced accuracy and the temperature by likelihood on validation images.

    Logit adjustment (Menon et al. 2021, equation 9) subtracts tau * log prior from the logits. Its
    tau assumes that logits are log-probabilities, so they are calibrated before, and once more
    after, because moving the boundary changes confidence too.

    Args:
        logits: of validation images, (N, C).
        target: class indices (N,).
        counts: training images of each class, (C,).

    >>> rng = np.random.default_rng(0)
    >>> target = np.repeat([0, 1], 100)
    >>> logits = np.stack([1.5 + rng.normal(0.0, 1.0, 200), 2.0 * target], 1)  # 0 too often
    >>> adjust = adjustment(logits, target, np.array([900, 100]))
    >>> def recall(logits):
    ...     correct = logits.argmax(1) == target
    ...     return [round(float(correct[target == c].mean()), 2) for c in (0, 1)]
    >>> recall(logits), recall(adjust(logits)), adjust.tau > 0
    ([0.98, 0.69], [0.84, 0.89], True)
    """
    if logits.ndim != 2 or logits.shape != (len(target), len(counts)) or not len(target):
        raise LongtailError(
            "expected logits (images, classes), a target for each image and a count for each"
            f" class, got {logits.shape}, {target.shape} and {counts.shape}"
        )
    if not np.isfinite(logits).all():
        raise LongtailError(
            f"{int((~np.isfinite(logits)).sum())} logits are not finite: the network diverged,"
            " train"
            " it with a lower learning rate"
        )
    if target.min() < 0 or target.max() >= len(counts):
        raise LongtailError(
            f"expected targets 0 to {len(counts) - 1} for {len(counts)} counts, got"
            f" {target.min()} to {target.max()}"
        )
    if not (counts > 0).all():
        raise LongtailError(
            f"every class needs training images, got none in {int((counts <= 0).sum())} classes:"
            " remove such classes"
        )
    before = temperature(logits, target)
    log_prior = np.log(counts / counts.sum())
    log_prior -= log_prior.mean()
    tau = strength(logits / before, target, log_prior)
    bias = (before * tau * log_prior).astype(np.float32)
    return Adjustment(tau, bias, temperature(logits - bias, target))


def strength(
    logits: NDArray[Any],
    target: NDArray[Any],
    log_prior: NDArray[Any],
    *,
    taus: Sequence[float] = TAUS,
) -> float:
    """The tau nearest to 0 whose balanced accuracy is within one standard error of the best one's.

    The one-standard-error rule (Breiman et al. 1984): a few validation images cannot move the
    boundary by chance. The error is that of the difference on the same images: sqrt(sum of w_i^2
    d_i^2), where image i has weight w_i = 1 / (classes * images of its class) and d_i is 1, 0 or
    -1. A class with one image is thus uncertain.

    >>> logits, target = np.array([[1.0, 0.0], [1.0, 0.9], [1.0, 0.9]]), np.array([0, 1, 1])
    >>> strength(logits, target, np.log([0.9, 0.1]))  # a shift corrects two images
    0.25
    >>> strength(logits[:2], target[:2], np.log([0.9, 0.1]))  # one image is not enough
    0.0
    """
    weight = _balancing(target)
    nearest = sorted(taus, key=abs)
    shift = log_prior.astype(np.float32)
    predictions = {
        tau: np.concatenate(
            [(logits[part] - np.float32(tau) * shift).argmax(1) for part in _parts(logits)]
        )
        for tau in nearest
    }
    correct = {tau: (classes == target).astype(np.float64) for tau, classes in predictions.items()}
    best = max(nearest, key=lambda tau: weight @ correct[tau])  # the nearest to 0 among equals

    def as_good(tau: float) -> bool:
        difference = weight * (correct[best] - correct[tau])
        return bool(difference.sum() <= np.sqrt((difference**2).sum()))

    return next(tau for tau in nearest if as_good(tau))


def temperature(logits: NDArray[Any], target: NDArray[Any]) -> float:
    """The temperature that maximises the likelihood of the targets (Guo et al. 2017).

    Every class has the same weight, as in balanced accuracy: the validation images of long-tailed
    data are mostly of frequent classes, on which a network is more often right, and would make it
    overconfident on all others. The loss is convex in 1 / temperature, so bisection finds its
    minimum. Targets are softened by 1 / (images + 2), as Platt (1999) does: without a single
    mistake among few images, the most likely temperature would be 0.

    >>> rng = np.random.default_rng(0)
    >>> logits = rng.normal(0.0, 2.0, (5000, 10))
    >>> target = (logits + rng.gumbel(size=logits.shape)).argmax(1)  # drawn from softmax(logits)
    >>> round(temperature(3 * logits, target), 1)
    3.0
    """
    soft, weight = 1 / (len(target) + 2), _balancing(target)

    def slope(sharpness: float) -> float:
        total = 0.0
        for part in _parts(logits):
            values = logits[part].astype(np.float32)
            values -= values.max(1, keepdims=True)
            expected = (1 - soft) * values[
                np.arange(len(values)), target[part]
            ] + soft * values.mean(1)
            scores = np.exp(np.float32(sharpness) * values)
            total += float(weight[part] @ ((scores * values).sum(1) / scores.sum(1) - expected))
        return total

    low, high = -np.log(MAX_TEMPERATURE), np.log(MAX_TEMPERATURE)
    for _ in range(25):  # to a relative precision of 1e-6
        middle = (low + high) / 2
        low, high = (middle, high) if slope(float(np.exp(middle))) < 0 else (low, middle)
    return float(np.exp(-(low + high) / 2))


def _parts(logits: NDArray[Any]) -> list[slice]:
    rows = max(1, CELLS // logits.shape[1])
    return [slice(first, first + rows) for first in range(0, len(logits), rows)]


def _balancing(target: NDArray[Any]) -> NDArray[np.float64]:
    """Weights of images that sum to 1, with the same sum for each class that occurs."""
    _, row, images = np.unique(target, return_inverse=True, return_counts=True)
    return np.asarray(1 / (len(images) * images[row]))
