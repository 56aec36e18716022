"""How far a number could be off because the test set is what it is."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from longtail.errors import LongtailError

Z = 1.959963984540054  # deviations of a normal distribution that hold 95%


@dataclass(frozen=True, slots=True)
class Interval:
    """An estimate with the bounds of its 95% interval."""

    value: float
    low: float
    high: float


def paired(
    first: NDArray[Any], second: NDArray[Any], target: NDArray[Any], *, resamples: int = 1000
) -> Interval:
    """Say by how much the second classifier's balanced accuracy exceeds the first's, on the same
    test
    images.

    `first` and `second` tell for each image whether it is recognised (or in which share of the
    seeds). Images are drawn again within each class (class-stratified percentile bootstrap), the
    two classifiers always on the same draws, from a fixed seed. Of n images n - 1 are drawn (Rao
    and Wu 1988), for n of n would vary too little where n is small; classes with a single image are
    drawn from each other. It speaks of other test images, not of other trainings.

    >>> paired(np.array([0, 0, 1, 1]), np.array([1, 1, 1, 1]), np.array([0, 0, 1, 1]))
    Interval(value=0.5, low=0.5, high=0.5)
    """
    if not first.shape == second.shape == target.shape or target.ndim != 1 or not len(target):
        raise LongtailError(
            f"expected the same images for both, got shapes {first.shape}, {second.shape} and"
            f" {target.shape}"
        )
    if resamples < 1:
        raise LongtailError(f"expected at least 1 resample, got {resamples}")
    rng = np.random.default_rng(0)
    gain = second.astype(np.float64) - first.astype(np.float64)
    images = np.unique(target, return_counts=True)[1]
    by_class = np.split(gain[np.argsort(target, kind="stable")], np.cumsum(images)[:-1])
    value = float(np.mean([own.mean() for own in by_class]))
    # Draws are those of the better over the worse, so that the other way round is the same,
    # mirrored
    sign = -1.0 if value < 0 else 1.0
    by_class, value = [sign * own for own in by_class], abs(value)
    alone = np.array([own[0] for own in by_class if len(own) == 1])
    drawn = np.zeros(resamples)
    for own, classes in [
        *((own, 1) for own in by_class if len(own) > 1),
        *([(alone, len(alone))] if len(alone) else []),
    ]:
        # Few gains are distinct (-1, 0, 1 for one seed), so drawing how often each occurs is
        # drawing the images, only faster.
        gains, times = np.unique(own, return_counts=True)
        images_drawn = max(1, len(own) - 1)
        drawn += (
            classes
            * (rng.multinomial(images_drawn, times / len(own), size=resamples) @ gains)
            / images_drawn
        )
    low, high = sorted(sign * np.quantile(drawn / len(by_class), (0.025, 0.975)))
    return Interval(sign * value, float(low), float(high))


def balanced(right: NDArray[Any], target: NDArray[Any]) -> Interval:
    """Say how far a balanced accuracy is known: the mean over classes of the share of images that
    are
    `right`, with its 95% interval.

    Each class adds r (1 - r) / n, its variance over other test images; r is its recall with a hit
    and a miss added (Laplace), for one image would otherwise leave no doubt.

    >>> found = balanced(np.array([1, 1, 0]), np.array([0, 1, 2]))  # three classes, one image each
    >>> round(found.value, 2), round(found.low, 2), round(found.high, 2)
    (0.67, 0.13, 1.0)
    """
    if right.shape != target.shape or target.ndim != 1 or not len(target):
        raise LongtailError(
            f"expected an answer for each image, got shapes {right.shape} and {target.shape}"
        )
    _, place, images = np.unique(target, return_inverse=True, return_counts=True)
    hits = np.bincount(place, weights=right.astype(np.float64))
    value, doubtful = float((hits / images).mean()), (hits + 1) / (images + 2)
    spread = Z * float(np.sqrt((doubtful * (1 - doubtful) / images).sum())) / len(images)
    return Interval(value, max(0.0, value - spread), min(1.0, value + spread))


def wilson(
    right: NDArray[Any], images: NDArray[Any]
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Give the bounds of Wilson's 95% interval for shares such as recalls: what `right` of `images`
    images leave possible.

    Wilson 1927; it stays in [0, 1] and is honest for a handful of images, where mean +- 2
    deviations is not. Without images: nan.

    >>> low, high = wilson(np.array([3, 0]), np.array([3, 10]))
    >>> low.round(2).tolist(), high.round(2).tolist()
    ([0.44, 0.0], [1.0, 0.28])
    """
    if right.shape != images.shape or bool((right < 0).any()) or bool((right > images).any()):
        raise LongtailError(
            f"expected 0 <= right <= images, in equal shapes, got shapes {right.shape} and"
            f" {images.shape}, or more right"
        )
    number = np.where(images > 0, images, np.nan).astype(np.float64)
    share = right / number
    middle = share + Z**2 / (2 * number)
    spread = Z * np.sqrt(share * (1 - share) / number + Z**2 / (4 * number**2))
    low, high = (middle - spread) / (1 + Z**2 / number), (middle + spread) / (1 + Z**2 / number)
    # Where all or none are right the bound is exact in theory, and off by a rounding here.
    return np.where(right == 0, np.where(images > 0, 0.0, np.nan), low), np.where(
        (right == images) & (images > 0), 1.0, high
    )
