"""The losses of LiVT's table 7 by name, each with its head."""

from __future__ import annotations

from typing import Any, get_args

import pytest
import torch

from longtail.core import Clock
from longtail.losses import BalancedBCE
from longtail.nn import Cosine, Linear
from longtail.recipes.finetuning import Loss, loss_and_head

COUNTS = torch.tensor([40, 9, 2])


@pytest.mark.parametrize("loss", get_args(Loss))
def test_every_loss_of_table_7_learns_from_hard_and_mixed_targets(loss: Any) -> None:
    torch.manual_seed(0)
    function, head, weights = loss_and_head(loss, COUNTS, 6, tau=1.0, test_prior=None)
    features = torch.randn(5, 6)
    weight = None if weights is None else weights(Clock(0, 1, 0, 1))
    for target in (torch.tensor([0, 0, 0, 1, 2]), torch.rand(5, 3).softmax(1)):
        head.zero_grad()
        value = function(head(features), target, weight=weight, features=features)
        value.backward()
        assert value.isfinite()
        gradient = next(head.parameters()).grad
        assert gradient is not None
        assert gradient.any()
    assert isinstance(head, Cosine if loss == "ldam" else Linear)


def test_ldam_deploys_logits_that_can_be_sure() -> None:
    _, head, _ = loss_and_head("ldam", COUNTS, 6, tau=1.0, test_prior=None)
    weight: Any = head.weight
    assert head(weight[1:2]).softmax(1)[0, 1] > 0.99


def test_balanced_bce_starts_at_the_entropies_of_the_prior() -> None:
    function, head, _ = loss_and_head("bal_bce", COUNTS, 6, tau=1.0, test_prior=None)
    prior = COUNTS / COUNTS.sum()
    entropies = -(prior * prior.log() + (1 - prior) * (1 - prior).log()).sum()
    target = torch.arange(3).repeat_interleave(COUNTS)
    assert function(head(torch.randn(len(target), 6)), target).item() == pytest.approx(
        entropies.item(), rel=1e-3
    )


@pytest.mark.parametrize("tau", [0.5, 1.0])
@pytest.mark.parametrize("test_prior", [None, "uniform"])
def test_the_variants_of_balanced_bce_can_be_set(test_prior: Any, tau: float) -> None:
    function, head, _ = loss_and_head("bal_bce", COUNTS, 6, tau=tau, test_prior=test_prior)
    zero, target = torch.zeros(3, 6), torch.arange(3)
    # As if the head's bias began at 0
    expected = BalancedBCE(COUNTS, tau=tau, test_prior=test_prior)(torch.zeros(3, 3), target)
    assert function(head(zero), target).item() == pytest.approx(expected.item(), rel=1e-5)


@pytest.mark.parametrize("test_prior", [None, "uniform"])
def test_a_head_that_sees_nothing_ends_at_one_in_c(test_prior: Any) -> None:
    torch.manual_seed(0)
    function, head, _ = loss_and_head("bal_bce", COUNTS, 6, tau=1.0, test_prior=test_prior)
    target = torch.arange(3).repeat_interleave(COUNTS)
    optimizer = torch.optim.LBFGS(head.parameters(), max_iter=200, line_search_fn="strong_wolfe")

    def closure() -> Any:
        optimizer.zero_grad()
        value = function(head(torch.zeros(len(target), 6)), target)
        value.backward()
        return value

    optimizer.step(closure)
    assert head(torch.zeros(1, 6)).sigmoid().tolist()[0] == pytest.approx([1 / 3] * 3, abs=1e-3)


def test_keywords_that_a_loss_cannot_use_are_refused() -> None:
    with pytest.raises(ValueError, match="--tau has no effect with --loss ce: remove it"):
        loss_and_head("ce", COUNTS, 6, tau=0.5, test_prior=None)
    with pytest.raises(
        ValueError, match="--test-prior has no effect with --loss bal_ce: remove it"
    ):
        loss_and_head("bal_ce", COUNTS, 6, tau=1.0, test_prior="uniform")
    with pytest.raises(ValueError, match="--smoothing has no effect with --loss bce"):
        loss_and_head("bce", COUNTS, 6, tau=1.0, test_prior=None, smoothing=0.1)


def test_a_class_without_images_is_named() -> None:
    with pytest.raises(ValueError, match="got none in class 1"):
        loss_and_head("bal_bce", torch.tensor([4, 0, 2]), 6, tau=1.0, test_prior=None)
