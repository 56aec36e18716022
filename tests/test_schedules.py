"""Functions of the clock, against the formulas of the papers, written out."""

import math
from typing import Any

import pytest
import torch

from longtail.core import Clock
from longtail.schedules import Cosine, Deferred, Steps, Until


def at(step: int, steps: int = 100) -> Clock:
    return Clock(step, steps, 0, 1)


def test_cosine_warms_up_and_falls_to_its_floor() -> None:
    rate = Cosine(warmup=0.2, start=0.5, floor=0.1)
    for step in range(100):
        expected = (
            0.5 + 0.5 * step / 20
            if step < 20
            else 0.1 + 0.9 * (1 + math.cos(math.pi * (step - 20) / 80)) / 2
        )
        assert rate(at(step)) == pytest.approx(expected)
    assert Cosine(warmup=1.0)(at(99)) == pytest.approx(0.99)


def test_steps_fall_at_the_milestones() -> None:
    rate = Steps(at=(0.8, 0.9), factors=(0.01, 0.0001), warmup=0.05, start=0.2)
    assert [rate(at(step)) for step in (0, 5, 79, 80, 89, 90, 99)] == pytest.approx(
        [0.2, 1, 1, 0.01, 0.01, 0.0001, 0.0001]
    )
    assert rate(at(1)) == pytest.approx(0.2 + 0.8 * 0.2)


def test_a_transform_ends_in_time() -> None:
    def doubled(batch: Any, clock: Clock) -> Any:
        return 2 * batch

    assert [Until(0.5, doubled)(1, at(step)) for step in (0, 49, 50, 99)] == [2, 2, 1, 1]


def test_weights_are_deferred_and_not_saved() -> None:
    weights = Deferred(torch.tensor([1.0, 2.0]), 0.5)
    assert weights(at(49)) is None
    assert weights(at(50)).tolist() == [1.0, 2.0]
    assert not weights.state_dict()


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (
            lambda: Cosine(warmup=5),
            r"warmup must be a fraction .* got 5: for epoch e of E, pass e / E",
        ),
        (lambda: Steps(at=(0.9, 0.8), factors=(0.1, 0.01)), "must increase"),
        (
            lambda: Steps(at=(0.9,), factors=(0.1, 0.01)),
            "one factor for each point in `at`, got 1 points and 2 factors",
        ),
        (lambda: Steps(at=(160,), factors=(0.1,)), "fraction"),
        (lambda: Deferred(torch.ones(2), 1.5), "start must be a fraction"),
        (lambda: Until(-0.1, lambda batch, clock: batch), "end must be a fraction"),
    ],
)
def test_times_outside_training_are_refused(build: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        build()
