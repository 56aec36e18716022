"""Confidence intervals: how much a score would vary over other test images."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from longtail.errors import LongtailError

Z = 1.959963984540054  # standard deviations of a normal distribution that cover 95%


@dataclass(frozen=True, slots=True)
class Interval:
    """An estimate with the bounds of its 95% interval."""

    value: float
    low: float
    high: float


def paired(
    first: NDArray[Any], second: NDArray[Any], target: NDArray[Any], *, resamples: int = 1000
) -> Interval:
    """How much the second classifier's balanced accuracy exceeds the first's, on the same images.

    `first` and `second` (N,) are 1 where an image is recognised and 0 where not, or the share of
    the seeds that recognise it. Images are resampled within each class (class-stratified percentile
    bootstrap), the same for both classifiers, from a fixed seed. Of n images n - 1 are drawn (Rao
    and Wu 1988), because n of n would vary too little where n is small; classes with a single image
    are resampled together. The interval is about other test images, not about other trainings.

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
    value = float(np.mean([gains.mean() for gains in by_class]))
    # The gain is always resampled from the better over the worse, so that swapping the two
    # mirrors the interval exactly.
    sign = -1.0 if value < 0 else 1.0
    by_class, value = [sign * gains for gains in by_class], abs(value)
    single = np.array([gains[0] for gains in by_class if len(gains) == 1])
    sums = np.zeros(resamples)
    for gains, classes in [
        *((gains, 1) for gains in by_class if len(gains) > 1),
        *([(single, len(single))] if len(single) else []),
    ]:
        # Few gains are distinct (-1, 0, 1 for one seed), so drawing how often each occurs is
        # drawing the images, only faster.
        values, times = np.unique(gains, return_counts=True)
        images_drawn = max(1, len(gains) - 1)
        sums += (
            classes
            * (rng.multinomial(images_drawn, times / len(gains), size=resamples) @ values)
            / images_drawn
        )
    low, high = sorted(sign * np.quantile(sums / len(by_class), (0.025, 0.975)))
    return Interval(sign * value, float(low), float(high))


def balanced(right: NDArray[Any], target: NDArray[Any]) -> Interval:
    """Balanced accuracy, the mean over classes of the share of images that are `right`, with its
    95% interval.

    Each class adds r (1 - r) / n, its variance over other test images; r is its recall with one hit
    and one miss added (Laplace), because the variance of one image would otherwise be zero.

    >>> result = balanced(np.array([1, 1, 0]), np.array([0, 1, 2]))  # one image of each class
    >>> round(result.value, 2), round(result.low, 2), round(result.high, 2)
    (0.67, 0.13, 1.0)
    """
    if right.shape != target.shape or target.ndim != 1 or not len(target):
        raise LongtailError(
            f"expected one value of `right` for each image, got shapes {right.shape}"
            f" and {target.shape}"
        )
    _, place, images = np.unique(target, return_inverse=True, return_counts=True)
    hits = np.bincount(place, weights=right.astype(np.float64))
    value, smoothed = float((hits / images).mean()), (hits + 1) / (images + 2)
    spread = Z * float(np.sqrt((smoothed * (1 - smoothed) / images).sum())) / len(images)
    return Interval(value, max(0.0, value - spread), min(1.0, value + spread))


def wilson(
    right: NDArray[Any], images: NDArray[Any]
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """The bounds of Wilson's 95% interval for shares such as recalls: `right` of `images` images.

    Wilson 1927. It stays in [0, 1] and is accurate for a handful of images, where the mean +- 2
    standard deviations is not. Without images: nan.

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
    # Where all or none are right the bound is exactly 1 or 0, up to a rounding error here.
    return np.where(right == 0, np.where(images > 0, 0.0, np.nan), low), np.where(
        (right == images) & (images > 0), 1.0, high
    )
