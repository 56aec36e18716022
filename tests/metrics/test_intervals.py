from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from longtail.metrics.intervals import balanced, paired, wilson


def sampled_by_hand(
    first: NDArray[np.float64],
    second: NDArray[np.float64],
    target: NDArray[np.int64],
    resamples: int,
) -> tuple[float, float]:
    """The slow reference: draw image numbers within each class, one less than it has, score both
    classifiers on them, subtract.
    """
    rng = np.random.default_rng(1)
    differences = []
    for _ in range(resamples):
        scores = []
        for index in np.unique(target):
            images = np.flatnonzero(target == index)
            repeated = rng.choice(images, size=len(images) - 1)
            scores.append(second[repeated].mean() - first[repeated].mean())
        differences.append(np.mean(scores))
    low, high = np.quantile(differences, (0.025, 0.975))
    return float(low), float(high)


@pytest.mark.parametrize("seeds", [1, 3])
def test_equals_drawing_images(seeds: int) -> None:
    rng = np.random.default_rng(0)
    target = rng.permutation(np.repeat(np.arange(4), [40, 20, 10, 5]))
    first = (rng.uniform(size=(seeds, 75)) < 0.5).mean(axis=0)
    second = (rng.uniform(size=(seeds, 75)) < 0.7).mean(axis=0)
    interval = paired(first, second, target, resamples=4000)
    classes = [target == index for index in range(4)]
    assert interval.value == pytest.approx(
        np.mean([second[rows].mean() - first[rows].mean() for rows in classes])
    )
    low, high = sampled_by_hand(first, second, target, 4000)
    assert (interval.low, interval.high) == pytest.approx((low, high), abs=0.02)
    assert interval.low < interval.value < interval.high


def test_pairing_makes_the_interval_narrow() -> None:
    rng = np.random.default_rng(0)
    target = np.repeat(np.arange(5), 40)
    first = rng.uniform(size=200) < 0.5
    nearly = first.copy()
    nearly[np.flatnonzero(~first)[:4]] = True
    unrelated = rng.permutation(nearly)
    close, far = paired(first, nearly, target), paired(first, unrelated, target)
    assert close.high - close.low < 0.5 * (far.high - far.low)


def test_a_balanced_accuracy_is_known_as_well_as_its_classes() -> None:
    right, target = np.array([1, 1, 0, 1, 0]), np.array([7, 7, 7, 2, 2])
    interval = balanced(right, target)
    assert interval.value == pytest.approx((2 / 3 + 1 / 2) / 2)
    spread = 1.959964 * math.sqrt(0.6 * 0.4 / 3 + 0.5 * 0.5 / 2) / 2
    assert (interval.low, interval.high) == pytest.approx(
        (interval.value - spread, min(1.0, interval.value + spread)), abs=1e-5
    )
    assert balanced(np.zeros(4), np.arange(4)).low == 0
    with pytest.raises(ValueError, match="expected one value of `right` for each image"):
        balanced(np.zeros(3), np.zeros(2))


@pytest.mark.parametrize("group", ["all", "rarest"])
def test_it_covers_the_truth_also_where_classes_have_one_image(group: str) -> None:
    rng = np.random.default_rng(0)
    recall = np.repeat([0.8, 0.5, 0.3], 10) if group == "all" else np.full(10, 0.3)
    target = np.repeat(np.arange(len(recall)), np.repeat([20, 3, 1], 10) if group == "all" else 1)
    intervals = [
        balanced(rng.uniform(size=len(target)) < recall[target], target) for _ in range(400)
    ]
    covered = np.mean([interval.low <= recall.mean() <= interval.high for interval in intervals])
    assert 0.9 <= covered <= 0.98  # drawing n of n images has no doubt about a class with one


@pytest.mark.parametrize("images", [1, 2, 3, 60])
def test_the_interval_covers_about_95_of_100(images: int) -> None:
    rng = np.random.default_rng(0)
    target = np.repeat(np.arange(max(3, 60 // images)), images)
    covered = 0
    for _ in range(200):
        interval = paired(
            rng.uniform(size=len(target)) < 0.5,
            rng.uniform(size=len(target)) < 0.6,
            target,
            resamples=400,
        )
        covered += interval.low <= 0.1 <= interval.high
    assert 180 <= covered <= 198  # 95 of 100, give or take three binomial deviations


def test_the_same_twice_and_mirrored_in_value() -> None:
    rng = np.random.default_rng(0)
    target = np.repeat(np.arange(3), 20)
    first, second = rng.uniform(size=60) < 0.5, rng.uniform(size=60) < 0.6
    assert paired(first, second, target) == paired(first, second, target)
    interval, turned = paired(first, second, target), paired(second, first, target)
    assert (turned.value, turned.low, turned.high) == (
        -interval.value,
        -interval.high,
        -interval.low,
    )
    order = rng.permutation(60)
    assert paired(first[order], second[order], target[order]) == paired(first, second, target)


def test_equal_classifiers_do_not_differ() -> None:
    same = np.array([True, False, True])
    interval = paired(same, same, np.array([0, 1, 1]))
    assert (interval.value, interval.low, interval.high) == (0, 0, 0)


def test_mistakes_are_refused() -> None:
    with pytest.raises(ValueError, match="same images for both"):
        paired(np.zeros(3), np.zeros(2), np.zeros(3))
    with pytest.raises(ValueError, match="same images for both"):
        paired(np.zeros(0), np.zeros(0), np.zeros(0))
    with pytest.raises(ValueError, match="at least 1 resample"):
        paired(np.zeros(1), np.zeros(1), np.zeros(1), resamples=0)


@given(st.integers(1, 5000), st.floats(0, 1))
def test_wilson_solves_its_equation_and_holds_the_share(images: int, part: float) -> None:
    right = round(part * images)
    (low,), (high,) = wilson(np.array([right]), np.array([images]))
    share = right / images
    assert 0 <= low <= share <= high <= 1
    # The shares whose distance to the measured one is 1.96 of their standard deviations
    for bound in (low, high):
        assert abs(share - bound) == pytest.approx(
            1.959964 * math.sqrt(bound * (1 - bound) / images), abs=1e-6
        )


def test_wilson_covers_about_95_of_100_where_the_usual_interval_does_not() -> None:
    rng = np.random.default_rng(0)
    images = np.full(20_000, 20)
    right = rng.binomial(images, 0.9)
    low, high = wilson(right, images)
    assert ((low <= 0.9) & (high >= 0.9)).mean() == pytest.approx(0.95, abs=0.02)
    share = right / images
    spread = 1.96 * np.sqrt(share * (1 - share) / images)
    assert (np.abs(share - 0.9) <= spread).mean() < 0.9


def test_wilson_of_few_none_and_nonsense() -> None:
    low, high = wilson(np.array([3, 0, 0]), np.array([3, 3, 0]))
    np.testing.assert_allclose(low, [0.4385, 0, math.nan], atol=1e-4)
    np.testing.assert_allclose(high, [1, 0.5615, math.nan], atol=1e-4)
    with pytest.raises(ValueError, match="0 <= right <= images"):
        wilson(np.array([2]), np.array([1]))
    with pytest.raises(ValueError, match="0 <= right <= images"):
        wilson(np.array([2, 1]), np.array([2]))
