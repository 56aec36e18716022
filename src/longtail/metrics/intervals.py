"""How far a number could be off because the test set is what it is."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True, slots=True)
class Interval:
    """An estimate with the bounds of its 95% interval."""

    value: float
    low: float
    high: float


def paired(first: NDArray[Any], second: NDArray[Any], target: NDArray[Any], *, resamples: int = 1000) -> Interval:
    """Say by how much the second classifier's balanced accuracy exceeds the first's, on the same test images.

    `first` and `second` tell for each image whether it is recognised (or in which share of the seeds). Images are drawn again
    within each class (class-stratified percentile bootstrap), the two classifiers always on the same draws, from a fixed seed. It
    speaks of other test images, not of other trainings. A class with a single test image cannot vary here.

    >>> paired(np.array([0, 0, 1, 1]), np.array([1, 1, 1, 1]), np.array([0, 0, 1, 1]))
    Interval(value=0.5, low=0.5, high=0.5)
    """
    if not first.shape == second.shape == target.shape or target.ndim != 1 or not len(target):
        raise ValueError(f"expected the same images for both, got shapes {first.shape}, {second.shape} and {target.shape}")
    if resamples < 1:
        raise ValueError(f"expected at least 1 resample, got {resamples}")
    rng = np.random.default_rng(0)
    gain = second.astype(np.float64) - first.astype(np.float64)
    images = np.unique(target, return_counts=True)[1]
    by_class = np.split(gain[np.argsort(target, kind="stable")], np.cumsum(images)[:-1])
    drawn = np.zeros(resamples)
    for own in by_class:
        # Few gains are distinct (-1, 0, 1 for one seed), so drawing how often each occurs is drawing the images, only faster.
        gains, times = np.unique(own, return_counts=True)
        drawn += rng.multinomial(len(own), times / len(own), size=resamples) @ gains / len(own)
    low, high = np.quantile(drawn / len(by_class), (0.025, 0.975))
    return Interval(float(np.mean([own.mean() for own in by_class])), float(low), float(high))


def wilson(right: NDArray[Any], images: NDArray[Any]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Give the bounds of Wilson's 95% interval for shares such as recalls: what `right` of `images` images leave possible.

    Wilson 1927; it stays in [0, 1] and is honest for a handful of images, where mean +- 2 deviations is not. Without images: nan.

    >>> low, high = wilson(np.array([3, 0]), np.array([3, 10]))
    >>> low.round(2).tolist(), high.round(2).tolist()
    ([0.44, 0.0], [1.0, 0.28])
    """
    if right.shape != images.shape or bool((right < 0).any()) or bool((right > images).any()):
        raise ValueError(f"expected 0 <= right <= images, in equal shapes, got shapes {right.shape} and {images.shape}, or more right")
    number = np.where(images > 0, images, np.nan).astype(np.float64)
    share, z = right / number, 1.959963984540054
    middle = share + z**2 / (2 * number)
    spread = z * np.sqrt(share * (1 - share) / number + z**2 / (4 * number**2))
    low, high = (middle - spread) / (1 + z**2 / number), (middle + spread) / (1 + z**2 / number)
    # Where all or none are right the bound is exact in theory, and off by a rounding here.
    return np.where(right == 0, np.where(images > 0, 0.0, np.nan), low), np.where((right == images) & (images > 0), 1.0, high)
