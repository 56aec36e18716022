"""The nouns: a loss is the sum of its terms, and keeping says what it keeps."""

import dataclasses
from typing import Any

import pytest
import torch

from longtail.core import Clock, Method, Outcome, average, best, constant, each_epoch, last, nothing


def test_the_loss_is_the_sum_of_the_terms_and_carries_their_gradient() -> None:
    weight = torch.tensor(3.0, requires_grad=True)
    outcome = Outcome({"a": 2 * weight, "b": weight**2, "c": torch.tensor(1.0)})
    assert outcome.loss.item() == 16.0
    outcome.loss.backward()
    assert weight.grad is not None
    assert weight.grad.item() == 2 + 2 * 3
    assert Outcome({"only": weight}).loss is weight


@pytest.mark.parametrize(
    ("terms", "got"),
    [
        ({}, "got none"),
        (
            {"class": torch.zeros(())} | {"rows": torch.zeros(4)},
            r"got 'rows', which is a tensor \(4,\): return at least",
        ),
        ({"class": 0.5}, "got 'class', which is a float"),
    ],
)
def test_terms_that_are_no_numbers_are_refused(terms: Any, got: str) -> None:
    with pytest.raises(ValueError, match=f"every loss term must be a scalar tensor, {got}"):
        Outcome(terms)


def test_progress_is_in_steps_and_never_reaches_one() -> None:
    clocks = [Clock(step, 4, 0, 1) for step in range(4)]
    assert [clock.progress for clock in clocks] == [0, 0.25, 0.5, 0.75]
    with pytest.raises(dataclasses.FrozenInstanceError):
        clocks[0].step = 2  # type: ignore[misc]


def test_keeping_is_named_on_the_row() -> None:
    assert [keep.name for keep in (last, best("val/balanced"), average("ema"))] == [
        "last epoch",
        "best val/balanced",
        "last epoch, ema",
    ]


def test_defaults_change_nothing() -> None:
    clock, batch = Clock(3, 4, 0, 1), {"image": torch.zeros(1)}
    assert constant(clock) == 1.0
    assert nothing(batch, clock) is batch
    assert each_epoch(clock)


def test_a_method_must_define_forward_and_predict() -> None:
    with pytest.raises(TypeError, match="abstract"):
        Method()  # type: ignore[abstract]
