import math

import pytest
import torch

from longtail.losses import Diversity, expert_temperature
from longtail.losses.experts import sum_of_divergences

COUNTS = [50, 20, 5, 2]


def slow_softmax(row: list[float], temperature: list[float]) -> list[float]:
    parts = [math.exp(z / t) for z, t in zip(row, temperature, strict=True)]
    return [part / sum(parts) for part in parts]


def slow_diversity(logits: list[list[list[float]]], temperature: list[float]) -> float:
    """mean(T)^2 * sum over experts of the mean over rows of KL(mean of experts || expert)."""
    experts, rows, classes = len(logits), len(logits[0]), len(logits[0][0])
    total = 0.0
    for k in range(experts):
        for i in range(rows):
            mean = [sum(logits[e][i][c] for e in range(experts)) / experts for c in range(classes)]
            p, q = slow_softmax(mean, temperature), slow_softmax(logits[k][i], temperature)
            total += sum(a * math.log(a / b) for a, b in zip(p, q, strict=True)) / rows
    return (sum(temperature) / classes) ** 2 * total


@pytest.mark.parametrize("temperature", [None, [1.0, 0.9, 0.6, 0.5]])
def test_diversity_equals_a_slow_reference(temperature: list[float] | None) -> None:
    logits = torch.randn(3, 6, 4, dtype=torch.float64) * 3
    given = None if temperature is None else torch.tensor(temperature, dtype=torch.float64)
    expected = -0.45 * slow_diversity(logits.tolist(), temperature or [1.0] * 4)
    assert Diversity(-0.45)(logits, temperature=given).item() == pytest.approx(expected)
    assert expected < 0


def test_the_gradient_is_as_for_a_fixed_mean_which_is_also_the_complete_one() -> None:
    logits = torch.randn(2, 3, 4, dtype=torch.float64, requires_grad=True)
    (gradient,) = torch.autograd.grad(Diversity(1.0)(logits), logits)
    # For a fixed aim p, the gradient of KL(p || softmax(z)) is softmax(z) - p.
    expected = (logits.softmax(-1) - logits.mean(0).softmax(-1)) / 3
    assert torch.allclose(gradient, expected)
    temperature = torch.tensor([1.0, 0.9, 0.6, 0.5], dtype=torch.float64)
    assert torch.autograd.gradcheck(
        lambda z: Diversity(-0.45)(z, temperature=temperature), (logits,)
    )


def test_a_negative_factor_pushes_experts_apart() -> None:
    logits = torch.tensor([[[1.0, 0.0]], [[0.0, 0.0]]], requires_grad=True)
    (gradient,) = torch.autograd.grad(Diversity(-0.45)(logits), logits)
    gap = (logits - gradient)[:, 0, 0].diff().abs()
    assert gap > 1.0


def test_the_temperature_is_the_published_formula() -> None:
    raw = [4 * n / sum(COUNTS) * 0.05 + 1 - 0.05 for n in COUNTS]
    assert expert_temperature(torch.tensor(COUNTS), 0.05).tolist() == pytest.approx(
        [value / max(raw) for value in raw]
    )
    assert expert_temperature(torch.tensor(COUNTS), 0.0).tolist() == [1.0] * 4


def test_a_hotter_comparison_keeps_the_size_of_gradients() -> None:
    aim, logits = (
        torch.zeros(1, 2, dtype=torch.float64),
        torch.tensor([[[0.1, -0.1]]], dtype=torch.float64, requires_grad=True),
    )
    cold, hot = (
        torch.autograd.grad(sum_of_divergences(aim, logits, temperature=t), logits)[0]
        for t in (1.0, 4.0)
    )
    assert cold.abs().min() > 0.04
    assert torch.allclose(cold, hot, rtol=0.01)


@pytest.mark.parametrize("dtype", [torch.float16, torch.float32])
def test_extreme_logits_give_finite_losses_and_gradients(dtype: torch.dtype) -> None:
    logits = torch.tensor(
        [[[3e4, -3e4]], [[-3e4, 3e4]], [[0.0, 0.0]]], dtype=dtype, requires_grad=True
    )
    value = Diversity(-0.45)(logits, temperature=torch.tensor([1.0, 0.5]))
    (gradient,) = torch.autograd.grad(value, logits)
    assert value.isfinite()
    assert gradient.isfinite().all()


def test_bad_input_is_refused() -> None:
    with pytest.raises(ValueError, match=r"at least two experts, got \(1, 5, 3\)"):
        Diversity()(torch.zeros(1, 5, 3))
    with pytest.raises(ValueError, match=r"\(experts, N, C\)"):
        Diversity()(torch.zeros(5, 3))
    with pytest.raises(ValueError, match=r"factor in \[0, 1\), got 1"):
        expert_temperature(torch.tensor(COUNTS), 1.0)
