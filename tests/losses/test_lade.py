import math

import pytest
import torch

from longtail.losses import LADE, LogitAdjusted

COUNTS = [50, 20, 5, 2]


def slow_regulariser(
    logits: list[list[float]], target: list[list[float]], *, lam: float = 0.1
) -> float:
    """Equation 16, class by class and row by row."""
    prior, rows, classes = [n / sum(COUNTS) for n in COUNTS], len(logits), len(COUNTS)
    total = 0.0
    for c in range(classes):
        z = 0.0
        for f, t in zip(logits, target, strict=True):
            z += (
                sum(share / (classes * p) for share, p in zip(t, prior, strict=True))
                * math.exp(f[c])
                / rows
            )
        count = sum(t[c] for t in target)
        mean = (
            sum(t[c] * f[c] for f, t in zip(logits, target, strict=True)) / count if count else 0.0
        )
        total += prior[c] * (math.log(z) + lam * math.log(z) ** 2 - mean)
    return total


@pytest.mark.parametrize("hard", [[0, 0, 0, 1, 2, 3], [0, 0, 0, 0, 1, 1]])
def test_the_regulariser_against_a_slow_reference(hard: list[int]) -> None:
    torch.manual_seed(0)
    logits, loss = (
        torch.randn(6, 4, dtype=torch.float64),
        LADE(torch.tensor(COUNTS), lam=0.3).double(),
    )
    target = torch.nn.functional.one_hot(torch.tensor(hard), 4).double()
    slow = slow_regulariser(logits.tolist(), target.tolist(), lam=0.3)
    assert loss.regulariser(logits, torch.tensor(hard)).item() == pytest.approx(
        slow, rel=1e-6, abs=1e-6
    )
    soft = 0.7 * target + 0.3 * target.roll(1, 0)
    assert loss.regulariser(logits, soft).item() == pytest.approx(
        slow_regulariser(logits.tolist(), soft.tolist(), lam=0.3), rel=1e-6, abs=1e-6
    )


def test_without_the_regulariser_it_is_balanced_softmax() -> None:
    logits, target = torch.randn(6, 4), torch.tensor([0, 0, 1, 1, 2, 3])
    assert torch.equal(
        LADE(torch.tensor(COUNTS), alpha=0.0)(logits, target),
        LogitAdjusted(torch.tensor(COUNTS))(logits, target),
    )


def test_weights_leave_the_regulariser_alone() -> None:
    logits, target, counts = (
        torch.randn(6, 4),
        torch.tensor([0, 0, 1, 1, 2, 3]),
        torch.tensor(COUNTS),
    )
    weight, rows = torch.tensor([1.0, 2.0, 3.0, 4.0]), torch.rand(6)
    complete = LADE(counts, alpha=0.5)(logits, target, weight=weight, rows=rows)
    plain = LogitAdjusted(counts)(logits, target, weight=weight, rows=rows)
    assert torch.allclose(
        complete - plain, 0.5 * LADE(counts).regulariser(logits, target), atol=1e-6
    )


def test_log_densities_of_balanced_data_are_its_minimum() -> None:
    """For points that each class visits with known chances, no logits do better than log p(x | c) /
    p(x).
    """
    # p(x | c) of two classes and three points
    chance = torch.tensor([[0.7, 0.2, 0.1], [0.1, 0.3, 0.6]])
    counts = torch.tensor([9, 1])
    target = torch.tensor(
        [
            c
            for c in range(2)
            for x in range(3)
            for _ in range(round(100 * int(counts[c]) * float(chance[c, x])))
        ]
    )
    point = torch.tensor(
        [
            x
            for c in range(2)
            for x in range(3)
            for _ in range(round(100 * int(counts[c]) * float(chance[c, x])))
        ]
    )
    density = (chance / chance.mean(0)).log().T
    loss = LADE(counts)
    least = loss.regulariser(density[point], target)
    torch.manual_seed(0)
    for _ in range(20):
        assert loss.regulariser((density + 0.2 * torch.randn(3, 2))[point], target) > least


def test_logits_far_apart_are_as_exact_as_others() -> None:
    """Where the share of a class underflows in every row, its sum over rows does not."""
    logits = torch.tensor([[0.0, 5.0, -200.0, 1.0], [300.0, 0.0, -150.0, 2.0]])
    target, loss = torch.tensor([0, 1]), LADE(torch.tensor(COUNTS))
    wide = LADE(torch.tensor(COUNTS)).double()
    expected = wide(logits.double(), torch.nn.functional.one_hot(target, 4).double())
    assert loss(logits, target).item() == pytest.approx(expected.item(), rel=1e-5)
