import math
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from longtail.losses import (
    BalancedBCE,
    BinaryCrossEntropy,
    ClassBalancedBCE,
    LogitAdjusted,
    class_balanced_weights,
)

COUNTS = torch.tensor([12, 5, 2, 1])
PRIOR = COUNTS.double() / 20


def test_it_sums_over_classes_and_averages_over_rows() -> None:
    logits, target = torch.randn(6, 4), torch.tensor([0, 1, 2, 3, 0, 0])
    mean = F.binary_cross_entropy_with_logits(logits, F.one_hot(target, 4).float())
    assert torch.allclose(BinaryCrossEntropy()(logits, target), 4 * mean)


def test_a_row_with_several_classes_or_none_counts_as_one() -> None:
    logits, targets = (
        torch.randn(3, 4),
        torch.tensor([[1.0, 1.0, 0.0, 1.0], [0.0, 0.0, 0.0, 0.0], [0.0, 1.0, 0.0, 0.0]]),
    )
    for loss in (BinaryCrossEntropy(), BalancedBCE(COUNTS)):
        shifted = logits + getattr(loss, "bias", 0.0)
        slow = [
            sum(
                -math.log(torch.sigmoid(x if yes else -x).item())
                for x, yes in zip(row, labels, strict=True)
            )
            for row, labels in zip(shifted, targets, strict=True)
        ]
        assert loss(logits, targets).item() == pytest.approx(sum(slow) / 3, rel=1e-5)
        assert loss(logits, targets, rows=torch.tensor([2.0, 0.0, 1.0])).item() == pytest.approx(
            (2 * slow[0] + slow[2]) / 3, rel=1e-5
        )


def test_theorem_2_is_the_logit_of_the_prior() -> None:
    expected = [1.3 * math.log(p / (1 - p)) for p in PRIOR.tolist()]
    assert BalancedBCE(COUNTS, tau=1.3).bias.tolist() == pytest.approx(expected)


def test_equation_10_adds_log_classes_and_tau_scales_it_all() -> None:
    expected = [1.3 * (math.log(p) - math.log(1 - p) + math.log(3)) for p in PRIOR.tolist()]
    assert BalancedBCE(COUNTS, tau=1.3, test_prior="uniform").bias.tolist() == pytest.approx(
        expected
    )


def test_theorem_3_subtracts_the_test_priors_logit() -> None:
    test = [0.1, 0.2, 0.3, 0.4]
    expected = [
        (math.log(s) - math.log(t)) - (math.log(1 - s) - math.log(1 - t))
        for s, t in zip(PRIOR.tolist(), test, strict=True)
    ]
    assert BalancedBCE(COUNTS, test_prior=torch.tensor(test)).bias.tolist() == pytest.approx(
        expected, rel=1e-5
    )


def test_a_uniform_tensor_is_the_uniform_test_prior() -> None:
    named, given = (
        BalancedBCE(COUNTS, test_prior="uniform"),
        BalancedBCE(COUNTS, test_prior=torch.full((4,), 0.25)),
    )
    assert torch.allclose(named.bias, given.bias, atol=1e-6)


def test_the_same_test_prior_as_training_changes_nothing() -> None:
    assert torch.allclose(BalancedBCE(COUNTS, test_prior=PRIOR).bias, torch.zeros(4), atol=1e-6)


def test_a_head_of_zeros_starts_at_the_binary_entropies_of_the_prior() -> None:
    target = torch.repeat_interleave(torch.arange(4), COUNTS)
    entropies = sum(-p * math.log(p) - (1 - p) * math.log(1 - p) for p in PRIOR.tolist())
    assert BalancedBCE(COUNTS)(torch.zeros(20, 4), target).item() == pytest.approx(entropies)


def test_smoothing_is_a_soft_target() -> None:
    logits, target = torch.randn(3, 4), torch.tensor([0, 1, 3])
    soft = 0.9 * F.one_hot(target, 4) + 0.1 / 4
    assert torch.allclose(
        BalancedBCE(COUNTS, smoothing=0.1)(logits, target), BalancedBCE(COUNTS)(logits, soft)
    )


def test_binarized_targets_are_one_for_every_class_of_a_mixture() -> None:
    logits, mixed = (
        torch.randn(4, 3),
        torch.tensor([[0.2, 0.8, 0.0], [1.0, 0.0, 0.0], [0.0, 0.5, 0.5], [0.1, 0.2, 0.7]]),
    )
    slow = [
        sum(
            -math.log(torch.sigmoid(logit if share > 0 else -logit).item())
            for logit, share in zip(row, shares, strict=True)
        )
        for row, shares in zip(logits, mixed, strict=True)
    ]
    assert BinaryCrossEntropy(binarize_targets=True)(logits, mixed).item() == pytest.approx(
        sum(slow) / 4, rel=1e-5
    )
    with pytest.raises(ValueError, match="binarize_targets cannot be combined"):
        BinaryCrossEntropy(binarize_targets=True, smoothing=0.1)
    old: Any = {"whole": True}
    with pytest.warns(DeprecationWarning, match="is now 'binarize_targets'"):
        assert BinaryCrossEntropy(**old).binarize_targets
    with pytest.raises(TypeError, match="pass 'binarize_targets' alone"):
        BinaryCrossEntropy(**old, binarize_targets=True)


@pytest.mark.parametrize("smoothing", [-0.1, 1.0, 3.0, math.nan])
def test_a_smoothing_that_is_none_is_refused(smoothing: float) -> None:
    with pytest.raises(ValueError, match=r"expected a smoothing in \[0, 1\)"):
        BinaryCrossEntropy(smoothing=smoothing)(torch.zeros(2, 3), torch.tensor([0, 1]))


@pytest.mark.parametrize("tau", [math.nan, math.inf])
def test_a_tau_that_is_no_number_is_refused(tau: float) -> None:
    for loss in (BalancedBCE, LogitAdjusted):
        with pytest.raises(ValueError, match="expected a finite tau"):
            loss(torch.tensor([3, 1]), tau=tau)


def test_class_balanced_weighs_the_columns() -> None:
    logits, target = torch.randn(3, 4), torch.tensor([0, 1, 3])
    losses = F.binary_cross_entropy_with_logits(
        logits, F.one_hot(target, 4).float(), reduction="none"
    )
    expected = (losses * class_balanced_weights(COUNTS, 0.9)).sum(1).mean()
    assert torch.allclose(ClassBalancedBCE(COUNTS, beta=0.9)(logits, target), expected)


@pytest.mark.parametrize(
    "prior",
    [
        "balanced",
        torch.ones(4),
        torch.ones(3) / 3,
        torch.tensor([0.5, 0.5, 0.0, 0.0]),
        torch.full((4,), math.nan),
        torch.tensor([1.0, 1e-9, 1e-9, 1e-9]),  # the logit of 1 is infinite
        np.full(4, 0.25),
        [0.25] * 4,
    ],
)
def test_bad_test_priors_are_refused(prior: Any) -> None:
    with pytest.raises(ValueError, match="test prior"):
        BalancedBCE(COUNTS, test_prior=prior)


def test_a_class_without_images_is_named() -> None:
    with pytest.raises(ValueError, match="none in class 2"):
        BalancedBCE(torch.tensor([3, 2, 0]))


@pytest.mark.parametrize("scale", [0.1, 9.0])
@pytest.mark.parametrize("shape", [(3, 4), (200, 100), (2, 2100)])
def test_hard_targets_of_any_shape_are_as_exact_as_dense_ones(
    shape: tuple[int, int], scale: float
) -> None:
    torch.manual_seed(0)
    logits = (scale * torch.randn(shape)).requires_grad_()
    target, counts = torch.randint(shape[1], shape[:1]), torch.arange(1, shape[1] + 1)
    onehot, rows = F.one_hot(target, shape[1]).float(), torch.rand(shape[0])
    for loss in (BinaryCrossEntropy(), BalancedBCE(counts), ClassBalancedBCE(counts)):
        for factors in (None, rows):
            results = [loss(logits, each, rows=factors) for each in (target, onehot)]
            torch.testing.assert_close(*results, rtol=1e-6, atol=1e-6)
            gradients = [torch.autograd.grad(result, logits)[0] for result in results]
            torch.testing.assert_close(*gradients, rtol=1e-5, atol=1e-7)
