from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from longtail.metrics.accuracy import balanced, hits, recall
from longtail.metrics.priors import IMBALANCES, accuracy_under, known_prior_recall, shifted, sweep


def test_priors_are_those_of_sade() -> None:
    # int(m (1/k) ** (r / (C - 1))) images of each class; CIFAR-100 has 100 test images of each, and
    # these totals.
    counts = np.array([int(500 * 0.01 ** (index / 99)) for index in range(100)])
    for k, total in zip(IMBALANCES, (7166, 4932, 3876, 2956, 2486), strict=True):
        prior = shifted(counts, k)
        assert sum(int(100 * share / prior.max() + 1e-9) for share in prior) == total
        assert prior[0] / prior[99] == pytest.approx(k)
        assert shifted(counts, k, "backward").tolist() == pytest.approx(prior[::-1].tolist())


@given(
    st.lists(st.integers(1, 1000), min_size=1, max_size=20),
    st.floats(1, 100),
    st.sampled_from(["forward", "backward"]),
)
def test_priors_follow_the_training_counts(counts: list[int], k: float, direction: str) -> None:
    prior = shifted(np.array(counts), k, direction)  # type: ignore[arg-type]
    assert prior.sum() == pytest.approx(1)
    order = sorted(range(len(counts)), key=lambda index: (-counts[index], index))
    along = prior[order] if direction == "forward" else prior[order[::-1]]
    assert (np.diff(along) <= 1e-12).all()
    assert along[0] / along[-1] == pytest.approx(k if len(counts) > 1 else 1)


def test_reweighting_is_what_drawing_test_sets_gives() -> None:
    rng = np.random.default_rng(0)
    target = np.repeat(np.arange(4), 50)
    logits = (
        rng.normal(size=(200, 4))
        + 1.5 * np.eye(4)[target] * np.array([2.0, 1, 0.5, 0.2])[target][:, None]
    )
    prior = shifted(np.array([400, 300, 20, 1]), 10)
    right, scores = hits(logits, target), []
    for _ in range(4000):  # 20 images each, the classes by the prior, the images within them evenly
        drawn = rng.choice(4, size=20, p=prior) * 50 + rng.integers(50, size=20)
        scores.append(right[drawn].mean())
    assert accuracy_under(recall(logits, target, 4), prior) == pytest.approx(
        np.mean(scores), abs=4 * np.std(scores) / math.sqrt(4000)
    )


@given(
    st.lists(st.one_of(st.floats(0, 1), st.just(math.nan)), min_size=1, max_size=10).filter(
        lambda recalls: not all(map(math.isnan, recalls))
    )
)
def test_towards_k_of_one_it_is_balanced_accuracy(recalls: list[float]) -> None:
    values, counts = np.array(recalls), np.arange(len(recalls))
    assert accuracy_under(values, shifted(counts, 1)) == pytest.approx(balanced(values))
    assert accuracy_under(values, shifted(counts, 1 + 1e-9)) == pytest.approx(
        balanced(values), abs=1e-6
    )


def test_a_given_prior_by_hand() -> None:
    rng = np.random.default_rng(0)
    target = rng.integers(0, 3, size=90)
    logits, prior = rng.normal(size=(90, 4)), np.array([0.5, 0.3, 0.15, 0.05])
    recalls = known_prior_recall(logits, target, prior)
    for index in range(3):
        rows = [
            [value + math.log(q) for value, q in zip(row, prior, strict=True)]
            for row in logits[target == index].tolist()
        ]
        assert recalls[index] == pytest.approx(
            sum(row.index(max(row)) == index for row in rows) / len(rows)
        )
    assert math.isnan(recalls[3])


def test_a_given_prior_helps_logits_that_stand_for_a_uniform_one() -> None:
    rng = np.random.default_rng(0)
    target = np.repeat(np.arange(5), 2000)
    # Of unit normals around unit vectors, these are the log-likelihoods
    logits = rng.normal(size=(10_000, 5)) + np.eye(5)[target]
    results = sweep(logits, target, counts=np.array([1000, 300, 100, 30, 10]))
    assert [(result["direction"], result["k"]) for result in results] == [
        *(("forward", k) for k in IMBALANCES[::-1]),
        ("uniform", 1),
        *(("backward", k) for k in IMBALANCES),
    ]
    assert all(result["known_prior"] >= result["accuracy"] - 0.005 for result in results)
    assert results[0]["known_prior"] > results[0]["accuracy"] + 0.1
    assert (
        results[5]["known_prior"]
        == results[5]["accuracy"]
        == pytest.approx(balanced(recall(logits, target, 5)))
    )


def test_classes_without_images_are_left_out() -> None:
    assert accuracy_under(
        np.array([1.0, math.nan, 0.0]), np.array([0.3, 0.6, 0.1])
    ) == pytest.approx(0.75)


def test_mistakes_are_refused() -> None:
    with pytest.raises(ValueError, match="k of at least 1"):
        shifted(np.array([2, 1]), 0.5)
    with pytest.raises(ValueError, match="forward or backward"):
        shifted(np.array([2, 1]), 2, "sideways")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="training images of each class"):
        shifted(np.zeros((2, 2)), 2)
    with pytest.raises(ValueError, match="sums to 1, got a sum of 2"):
        accuracy_under(np.array([1.0, 1.0]), np.array([1.0, 1.0]))
    with pytest.raises(ValueError, match="each of 2 classes"):
        accuracy_under(np.array([1.0, 1.0]), np.array([1.0]))
    with pytest.raises(ValueError, match="at least one class"):
        accuracy_under(np.array([1.0, math.nan]), np.array([0.0, 1.0]))
    with pytest.raises(ValueError, match="positive probability for each of 2"):
        known_prior_recall(np.zeros((1, 2)), np.array([0]), np.array([1.0, 0.0]))
    with pytest.raises(ValueError, match="training images of 2 classes"):
        sweep(np.zeros((1, 2)), np.array([0]), counts=np.array([1, 2, 3]))
