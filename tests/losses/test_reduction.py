import pytest
import torch
from torch import nn
from torch.nn.functional import one_hot

from longtail.losses import (
    LADE,
    LDAM,
    BalancedBCE,
    BinaryCrossEntropy,
    ClassBalancedBCE,
    CrossEntropy,
    LogitAdjusted,
)
from longtail.losses.reduction import at_least_float32, prior, to_soft_targets, weighted_mean

COUNTS = torch.tensor([50, 10, 2])


def test_half_precision_logits_are_widened_and_wider_ones_kept() -> None:
    assert at_least_float32(torch.zeros(1, 2, dtype=torch.float16)).dtype == torch.float32
    assert at_least_float32(torch.zeros(1, 2, dtype=torch.float64)).dtype == torch.float64


def test_smoothing_keeps_distributions() -> None:
    smooth = to_soft_targets(torch.tensor([0, 2]), torch.zeros(2, 4), smoothing=0.2)
    assert torch.allclose(
        smooth, torch.tensor([[0.85, 0.05, 0.05, 0.05], [0.05, 0.05, 0.85, 0.05]])
    )


def test_the_formula_by_loops() -> None:
    torch.manual_seed(0)
    losses, target = torch.rand(5, 3), torch.rand(5, 3).softmax(1)
    weight, rows = torch.rand(3), torch.rand(5)
    above = sum(
        float(rows[i] * weight[c] * target[i, c] * losses[i, c]) for i in range(5) for c in range(3)
    )
    below = sum(float(weight[c] * target[i, c]) for i in range(5) for c in range(3))
    assert weighted_mean(losses, target, weight=weight, rows=rows).item() == pytest.approx(
        above / below
    )


def test_weights_do_not_change_the_scale_and_rows_do() -> None:
    losses, target = torch.rand(5, 3), torch.rand(5, 3).softmax(1)
    plain = weighted_mean(losses, target, weight=None, rows=None)
    assert torch.allclose(
        weighted_mean(losses, target, weight=torch.full((3,), 7.0), rows=None), plain
    )
    assert torch.allclose(
        weighted_mean(losses, target, weight=None, rows=torch.full((5,), 7.0)), 7 * plain
    )


@pytest.mark.parametrize("soft", [False, True])
@pytest.mark.parametrize(
    "loss",
    [CrossEntropy(), LogitAdjusted(COUNTS), LDAM(COUNTS, scale=1.0)],
    ids=lambda loss: type(loss).__name__,
)
def test_a_masked_class_is_as_if_it_were_not_there(loss: nn.Module, soft: bool) -> None:
    logits = torch.randn(4, 3)
    logits[:, 1] = -torch.inf
    logits.requires_grad_()
    target = (
        torch.tensor([[1.0, 0.0, 0.0], [0.3, 0.0, 0.7]] * 2) if soft else torch.tensor([0, 2, 0, 2])
    )
    value = loss(logits, target)
    value.backward()
    far = logits.detach().clamp_min(-1e4)
    assert value.item() == pytest.approx(loss(far, target).item())
    assert logits.grad is not None
    assert logits.grad.isfinite().all()
    assert not logits.grad[:, 1].any()


def test_shapes_that_do_not_fit_are_refused() -> None:
    logits = torch.zeros(4, 3)
    for shape in ((3,), (4, 2), (5, 3)):
        with pytest.raises(ValueError, match=r"expected a target of shape \(4,\) or \(4, 3\)"):
            to_soft_targets(torch.zeros(shape, dtype=torch.long), logits)
    with pytest.raises(ValueError, match="one weight for each of 3 classes"):
        weighted_mean(logits, logits, weight=torch.ones(4), rows=None)
    with pytest.raises(ValueError, match="one factor for each of 4 rows"):
        weighted_mean(logits, logits, weight=None, rows=torch.ones(3))


def test_targets_that_are_no_classes_are_refused_with_both_numbers() -> None:
    for target, got in (
        ([0, 3], "0 to 3"),
        ([-1, 2], "-1 to 2"),
        ([0.0, 1.0], r"0.0 to 1.0 as torch.float32"),
    ):
        with pytest.raises(
            ValueError, match=f"expected targets 0 to 2 as int64 for logits of 3 classes, got {got}"
        ):
            to_soft_targets(torch.tensor(target), torch.zeros(2, 3))


def test_counts_that_are_no_tensor_are_refused() -> None:
    with pytest.raises(
        ValueError, match=r"counts as a tensor, got a list: pass torch.tensor\(counts\)"
    ):
        prior([3, 2, 1])  # type: ignore[arg-type]


def test_a_class_without_images_is_named() -> None:
    with pytest.raises(ValueError, match="got none in class 1, 3: remove"):
        prior(torch.tensor([5, 0, 2, 0]))
    with pytest.raises(ValueError, match="at least two classes"):
        prior(torch.tensor([5]))


@pytest.mark.parametrize(
    "loss",
    [CrossEntropy(), LogitAdjusted(COUNTS), LDAM(COUNTS), BalancedBCE(COUNTS)],
    ids=lambda loss: type(loss).__name__,
)
def test_gradients_of_single_rows_can_be_computed_at_once(loss: nn.Module) -> None:
    logits, target = torch.randn(4, 3), torch.tensor([0, 2, 1, 0])
    gradients = torch.func.vmap(torch.func.grad(lambda row, label: loss(row[None], label[None])))(
        logits, target
    )
    for row, label, gradient in zip(logits, target, gradients, strict=True):
        alone = row.clone().requires_grad_()
        loss(alone[None], label[None]).backward()
        torch.testing.assert_close(gradient, alone.grad)


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("spread", [1.0, 30.0])
@pytest.mark.parametrize(
    "loss",
    [CrossEntropy, LogitAdjusted, LDAM, LADE, BinaryCrossEntropy, BalancedBCE, ClassBalancedBCE],
)
def test_hard_targets_are_their_one_hot_rows_to_the_sixth_digit(
    loss: type[nn.Module], weighted: bool, spread: float
) -> None:
    """Of 301 classes, against the dense formula in double precision: values and gradients."""
    generator = torch.Generator().manual_seed(0)
    counts = torch.randint(2, 1280, (301,), generator=generator)
    module = loss() if loss in (CrossEntropy, BinaryCrossEntropy) else loss(counts)
    logits = spread * torch.randn(16, 301, generator=generator)
    if loss is LDAM:
        logits = logits / spread  # cosines, which it scales
    target = torch.randint(301, (16,), generator=generator)
    factors = {"weight": torch.rand(301), "rows": torch.rand(16)} if weighted else {}
    results = []
    for dtype, chosen in ((torch.float32, target), (torch.float64, one_hot(target, 301).double())):
        leaf = logits.to(dtype).requires_grad_()
        value = module.to(dtype)(
            leaf, chosen, **{name: factor.to(dtype) for name, factor in factors.items()}
        )
        (gradient,) = torch.autograd.grad(value, leaf)
        results.append((value.double(), gradient.double()))
    (fast, fast_gradient), (slow, slow_gradient) = results
    torch.testing.assert_close(fast, slow, rtol=2e-6, atol=1e-6)
    torch.testing.assert_close(fast_gradient, slow_gradient, rtol=1e-4, atol=1e-7)


def test_a_loss_with_a_known_gradient_cannot_be_differentiated_twice() -> None:
    logits = torch.randn(4, 3, requires_grad=True)
    (gradient,) = torch.autograd.grad(
        LDAM(COUNTS)(logits, torch.tensor([0, 1, 2, 0])), logits, create_graph=True
    )
    with pytest.raises(RuntimeError, match="does not require grad"):
        gradient.sum().backward()
