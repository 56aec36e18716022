from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray

from longtail.metrics.intervals import paired


def drawn_by_hand(
    first: NDArray[np.float64], second: NDArray[np.float64], target: NDArray[np.int64], resamples: int
) -> tuple[float, float]:
    """The slow reference: draw image numbers within each class, score both classifiers on them, subtract."""
    rng = np.random.default_rng(1)
    differences = []
    for _ in range(resamples):
        scores = []
        for index in np.unique(target):
            images = np.flatnonzero(target == index)
            again = rng.choice(images, size=len(images))
            scores.append(second[again].mean() - first[again].mean())
        differences.append(np.mean(scores))
    low, high = np.quantile(differences, (0.025, 0.975))
    return float(low), float(high)


@pytest.mark.parametrize("seeds", [1, 3])
def test_equals_drawing_images(seeds: int) -> None:
    rng = np.random.default_rng(0)
    target = rng.permutation(np.repeat(np.arange(4), [40, 20, 10, 5]))
    first = (rng.uniform(size=(seeds, 75)) < 0.5).mean(axis=0)
    second = (rng.uniform(size=(seeds, 75)) < 0.7).mean(axis=0)
    found = paired(first, second, target, resamples=4000)
    classes = [target == index for index in range(4)]
    assert found.value == pytest.approx(np.mean([second[own].mean() - first[own].mean() for own in classes]))
    low, high = drawn_by_hand(first, second, target, 4000)
    assert (found.low, found.high) == pytest.approx((low, high), abs=0.02)
    assert found.low < found.value < found.high


def test_pairing_makes_the_interval_narrow() -> None:
    rng = np.random.default_rng(0)
    target = np.repeat(np.arange(5), 40)
    first = rng.uniform(size=200) < 0.5
    nearly = first.copy()
    nearly[np.flatnonzero(~first)[:4]] = True
    unrelated = rng.permutation(nearly)
    close, far = paired(first, nearly, target), paired(first, unrelated, target)
    assert close.high - close.low < 0.5 * (far.high - far.low)


def test_the_interval_covers_about_95_of_100() -> None:
    rng = np.random.default_rng(0)
    target = np.repeat(np.arange(3), 60)
    covered = 0
    for _ in range(200):
        found = paired(rng.uniform(size=180) < 0.5, rng.uniform(size=180) < 0.6, target, resamples=400)
        covered += found.low <= 0.1 <= found.high
    assert 180 <= covered <= 198  # 95 of 100, give or take three binomial deviations


def test_the_same_twice_and_mirrored_in_value() -> None:
    rng = np.random.default_rng(0)
    target = np.repeat(np.arange(3), 20)
    first, second = rng.uniform(size=60) < 0.5, rng.uniform(size=60) < 0.6
    assert paired(first, second, target) == paired(first, second, target)
    assert paired(second, first, target).value == pytest.approx(-paired(first, second, target).value)
    order = rng.permutation(60)
    assert paired(first[order], second[order], target[order]) == paired(first, second, target)


def test_equal_classifiers_do_not_differ() -> None:
    same = np.array([True, False, True])
    found = paired(same, same, np.array([0, 1, 1]))
    assert (found.value, found.low, found.high) == (0, 0, 0)


def test_mistakes_are_refused() -> None:
    with pytest.raises(ValueError, match="same images for both"):
        paired(np.zeros(3), np.zeros(2), np.zeros(3))
    with pytest.raises(ValueError, match="same images for both"):
        paired(np.zeros(0), np.zeros(0), np.zeros(0))
    with pytest.raises(ValueError, match="at least 1 resample"):
        paired(np.zeros(1), np.zeros(1), np.zeros(1), resamples=0)
