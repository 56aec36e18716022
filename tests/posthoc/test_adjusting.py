"""Choosing a shift and a temperature on validation images, against slow references."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from longtail.posthoc.adjusting import MAX_TEMPERATURE, TAUS, adjustment, strength, temperature

COUNTS = np.array([1000, 300, 100, 30, 10])


def sampled(
    seed: int, images: int, *, tau: float, noise: float = 1.0
) -> tuple[NDArray[Any], NDArray[Any]]:
    """Logits of a network that favours frequent classes by `tau` times the log prior, for equally
    many images of each class.
    """
    rng = np.random.default_rng(seed)
    target = np.arange(images) % len(COUNTS)
    log_prior = np.log(COUNTS / COUNTS.sum())
    return (
        2.0 * np.eye(len(COUNTS))[target]
        + rng.normal(0, noise, (images, len(COUNTS)))
        + tau * log_prior,
        target,
    )


def balanced(logits: NDArray[Any], target: NDArray[Any]) -> float:
    return float(np.mean([(logits[target == c].argmax(1) == c).mean() for c in np.unique(target)]))


@pytest.mark.parametrize("tau", [-0.5, 0.0, 1.0])
def test_a_prior_in_the_logits_is_estimated_and_removed(tau: float) -> None:
    logits, target = sampled(0, 4000, tau=tau)
    other, unseen = sampled(1, 4000, tau=tau)
    fitted = adjustment(logits, target, COUNTS)
    assert balanced(fitted(other), unseen) == pytest.approx(
        balanced(sampled(1, 4000, tau=0.0)[0], unseen), abs=0.015
    )
    assert np.sign(fitted.tau) == np.sign(tau)


def test_the_scale_of_the_logits_does_not_matter() -> None:
    logits, target = sampled(0, 1000, tau=1.0)
    once, scaled = adjustment(logits, target, COUNTS), adjustment(logits / 30, target, COUNTS)
    assert once.tau == scaled.tau
    assert np.allclose(once(logits), scaled(logits / 30), atol=1e-4)


def test_the_temperature_is_that_of_the_shifted_logits() -> None:
    logits, target = sampled(0, 1000, tau=1.0)
    fitted = adjustment(logits, target, COUNTS)
    assert fitted.temperature == temperature(logits - fitted.bias, target)
    assert fitted.temperature != pytest.approx(temperature(logits, target), rel=0.02)


def test_tiny_validation_sets_move_nothing_by_chance() -> None:
    """With pure noise on few images, 0 is mostly kept, while the greedy choice seldom is 0."""
    greedy, kept = 0, 0
    log_prior = np.log(COUNTS / COUNTS.sum())
    for seed in range(100):
        rng = np.random.default_rng(seed)
        logits, target = rng.normal(0, 2, (15, 5)), np.arange(15) % 5
        kept += strength(logits, target, log_prior) == 0
        greedy += max(TAUS, key=lambda tau: balanced(logits - tau * log_prior, target)) == 0
    assert kept >= 60
    assert greedy <= 30


def test_the_error_is_that_of_redrawn_images() -> None:
    """A shift is accepted where its gain is more than the deviation of a bootstrap: the closed form
    and the slow one decide alike.
    """
    target, decided = np.repeat([0, 1, 2], [40, 20, 10]), []
    log_prior = np.log(np.array([40, 20, 10]) / 70)
    weight = 1 / (3 * np.array([40, 20, 10])[target])
    for seed in range(40):
        rng = np.random.default_rng(seed)
        logits = rng.normal(0, 1, (70, 3)) + 0.6 * log_prior + np.eye(3)[target]
        plain, shifted = ((logits - tau * log_prior).argmax(1) == target for tau in (0.0, 1.0))
        gain = weight * (shifted.astype(float) - plain)
        redrawn = np.std([gain[rng.integers(70, size=70)].sum() for _ in range(2000)])
        if abs(gain.sum() - redrawn) > 0.1 * redrawn:  # else too near to tell
            decided.append(strength(logits, target, log_prior, taus=(0.0, 1.0)))
            assert decided[-1] == float(gain.sum() > redrawn), seed
    assert set(decided) == {0.0, 1.0}


def test_the_temperature_is_that_of_a_search_over_all() -> None:
    logits, target = sampled(3, 300, tau=0.3, noise=2.0)
    grid = np.exp(np.linspace(-2, 2, 4001))
    soft = 1 / (len(target) + 2)
    smooth = (1 - soft) * np.eye(5)[target] + soft / 5
    losses = [
        float(
            torch.nn.functional.cross_entropy(
                torch.tensor(logits) / float(value), torch.tensor(smooth)
            )
        )
        for value in grid
    ]
    assert temperature(logits, target) == pytest.approx(grid[int(np.argmin(losses))], rel=2e-3)


def test_the_temperature_counts_classes_alike() -> None:
    logits, target = sampled(3, 300, tau=0.3, noise=2.0)
    # The same images of class 0 again and again
    many = np.repeat(np.arange(300), np.where(target == 0, 9, 1))
    assert temperature(logits[many], target[many]) == pytest.approx(
        temperature(logits, target), rel=0.01
    )


def test_without_a_mistake_confidence_stays_below_one() -> None:
    target = np.arange(10) % 5
    logits = np.eye(5)[target]
    odds = np.exp(logits / temperature(logits, target))
    assert 0.85 < (odds / odds.sum(1, keepdims=True)).max() < 0.99


def test_logits_that_know_nothing_are_flattened() -> None:
    logits, target = np.eye(5)[[0] * 50], np.arange(50) % 5
    assert temperature(logits, target) > 10
    assert temperature(-np.eye(5)[np.arange(5)], np.arange(5)) == pytest.approx(
        MAX_TEMPERATURE, rel=1e-6
    )


def test_a_class_without_validation_images_is_shifted_like_others() -> None:
    logits, target = sampled(0, 4000, tau=1.0)
    seen = target != 4
    fitted = adjustment(logits[seen], target[seen], COUNTS)
    assert fitted.tau > 0
    assert np.diff(fitted.bias).max() < 0  # the rarer, the more it gains


def test_the_arithmetic_is_the_network_s() -> None:
    logits, target = sampled(0, 200, tau=1.0)
    fitted = adjustment(logits, target, COUNTS)
    single = logits.astype(np.float32)
    tensor = (torch.from_numpy(single) - torch.from_numpy(fitted.bias)) / torch.tensor(
        fitted.temperature
    )
    assert fitted(single).dtype == np.float32
    assert np.array_equal(fitted(single), tensor.numpy())


@pytest.mark.parametrize(
    ("logits", "target", "counts", "message"),
    [
        (np.zeros((2, 3)), np.zeros(3, int), np.ones(3), "got .2, 3., .3,. and .3,."),
        (np.zeros((2, 3)), np.zeros(2, int), np.ones(2), "a count for each class"),
        (np.zeros((0, 3)), np.zeros(0, int), np.ones(3), "expected logits"),
        (
            np.zeros((2, 3)),
            np.zeros(2, int),
            np.array([1, 0, 2]),
            "needs training images, got none in 1 classes",
        ),
        (
            np.array([[0.0, np.nan], [np.inf, 0.0]]),
            np.zeros(2, int),
            np.ones(2),
            "2 logits are not finite",
        ),
        (
            np.zeros((2, 3)),
            np.array([0, 3]),
            np.ones(3),
            "expected targets 0 to 2 for 3 counts, got 0 to 3",
        ),
        (np.zeros((2, 3)), np.array([-1, 0]), np.ones(3), "got -1 to 0"),
    ],
)
def test_what_does_not_fit_is_refused(
    logits: NDArray[Any], target: NDArray[Any], counts: NDArray[Any], message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        adjustment(logits, target, counts)


def test_looking_at_the_images_part_by_part_changes_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    logits, target = sampled(5, 1000, tau=1.0)
    complete = adjustment(logits, target, COUNTS)
    # Seven images at a time, and six at the end
    monkeypatch.setattr("longtail.posthoc.adjusting.CELLS", 35)
    parts = adjustment(logits, target, COUNTS)
    assert parts.tau == complete.tau != 0
    assert parts.temperature == pytest.approx(complete.temperature, rel=1e-5)
