"""What every loss must do. A new loss joins by one entry in CASES."""

import math
from collections.abc import Callable
from dataclasses import dataclass

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from longtail.losses import (
    LADE,
    LDAM,
    BalancedBCE,
    BinaryCrossEntropy,
    ClassBalancedBCE,
    CrossEntropy,
    InfluenceBalanced,
    LogitAdjusted,
)

Rows = list[list[float]]
COUNTS = [50, 20, 5, 2]


@dataclass(frozen=True)
class Case:
    name: str
    loss: Callable[[Tensor], nn.Module]  # of counts
    plain: Callable[
        [Tensor, Tensor], Tensor
    ]  # (logits, target distributions) -> what it is for uniform counts
    reference: Callable[
        [list[float], list[float], int], float
    ]  # (logits of a row, target of a row, class) -> its loss if it were that class
    by_hand: float  # for counts [3, 1], logits [0, log 2], target 1
    beside: Callable[[Rows, Rows], float] = lambda logits, target: (
        0.0
    )  # a term of the whole batch, outside of the weighted mean


class GivenFeatures(nn.Module):
    """A loss that needs features, with features of size 1."""

    def __init__(self, loss: nn.Module) -> None:
        super().__init__()
        self.loss = loss

    def forward(
        self,
        logits: Tensor,
        target: Tensor,
        *,
        weight: Tensor | None = None,
        rows: Tensor | None = None,
        features: Tensor | None = None,
    ) -> Tensor:
        value: Tensor = self.loss(
            logits, target, weight=weight, rows=rows, features=torch.ones(len(logits), 1)
        )
        return value


def softmax_loss(logits: list[float], at: int) -> float:
    top = max(logits)
    return math.log(sum(math.exp(z - top) for z in logits)) + top - logits[at]


def shares() -> list[float]:
    return [n / sum(COUNTS) for n in COUNTS]


def slow_adjusted(logits: list[float], target: list[float], at: int) -> float:
    return softmax_loss([z + math.log(n) for z, n in zip(logits, COUNTS, strict=True)], at)


def slow_ldam(logits: list[float], target: list[float], at: int) -> float:
    margins = [0.5 * (n / min(COUNTS)) ** -0.25 for n in COUNTS]
    return softmax_loss(
        [30 * (z - (margins[at] if c == at else 0)) for c, z in enumerate(logits)], at
    )


def binary_loss(logit: float, target: float) -> float:
    return -target * math.log(1 / (1 + math.exp(-logit))) - (1 - target) * math.log(
        1 - 1 / (1 + math.exp(-logit))
    )


def slow_binary(logits: list[float], target: list[float], at: int) -> float:
    return sum(binary_loss(z, t) for z, t in zip(logits, target, strict=True))


def slow_balanced(logits: list[float], target: list[float], at: int) -> float:
    return sum(
        binary_loss(z + math.log(p / (1 - p)), t)
        for z, t, p in zip(logits, target, shares(), strict=True)
    )


def slow_balanced_uniform(logits: list[float], target: list[float], at: int) -> float:
    return sum(
        binary_loss(z + math.log(3 * p / (1 - p)), t)
        for z, t, p in zip(logits, target, shares(), strict=True)
    )


def slow_class_balanced(logits: list[float], target: list[float], at: int) -> float:
    raw = [(1 - 0.9) / (1 - 0.9**n) for n in COUNTS]
    return sum(
        4 * w / sum(raw) * binary_loss(z, t) for z, t, w in zip(logits, target, raw, strict=True)
    )


def slow_influence(logits: list[float], target: list[float], at: int) -> float:
    p = [math.exp(-softmax_loss(logits, c)) for c in range(4)]
    weights = [4 / n / sum(1 / own for own in COUNTS) for n in COUNTS]
    return (
        weights[at]
        * softmax_loss(logits, at)
        / (sum(abs(own - (c == at)) for c, own in enumerate(p)) + 1e-3)
    )


def slow_lade(logits: Rows, target: Rows) -> float:
    total = 0.0
    for c, prior in enumerate(shares()):
        balanced = [sum(t / 4 / p for t, p in zip(row, shares(), strict=True)) for row in target]
        log_z = math.log(
            sum(b * math.exp(z[c]) for b, z in zip(balanced, logits, strict=True)) / len(logits)
        )
        mean = sum(t[c] * z[c] for t, z in zip(target, logits, strict=True)) / sum(
            t[c] for t in target
        )
        total += 0.1 * prior * (log_z + 0.1 * log_z**2 - mean)
    return total


def plain_ldam(logits: Tensor, target: Tensor) -> Tensor:
    return torch.stack(
        [
            target[:, c]
            @ F.cross_entropy(
                30 * (logits - 0.5 * own), own.expand(len(logits), -1), reduction="none"
            )
            / len(logits)
            for c, own in enumerate(torch.eye(4, dtype=logits.dtype))
        ]
    ).sum()


def plain_binary(logits: Tensor, target: Tensor) -> Tensor:
    return 4 * F.binary_cross_entropy_with_logits(logits, target)


def plain_lade(logits: Tensor, target: Tensor) -> Tensor:
    log_z = logits.exp().mean(0).log()
    of_class = (target * logits).sum(0) / target.sum(0)
    return F.cross_entropy(logits, target) + 0.1 * (log_z + 0.1 * log_z**2 - of_class).mean()


def plain_influence(logits: Tensor, target: Tensor) -> Tensor:
    p = logits.softmax(1)
    return (target * -p.log() / (2 - 2 * p + 1e-3)).sum(1).mean()


CASES = [
    # exp(z) is 1 to 2
    Case(
        "cross entropy",
        lambda n: CrossEntropy(),
        F.cross_entropy,
        lambda z, t, c: softmax_loss(z, c),
        math.log(3 / 2),
    ),
    # 3 to 2
    Case("logit adjusted", LogitAdjusted, F.cross_entropy, slow_adjusted, math.log(5 / 2)),
    # margin 0.5, scale 30: log(1 + exp(30 * (0.5 - log 2)))
    Case("LDAM", LDAM, plain_ldam, slow_ldam, math.log1p(math.exp(30 * (0.5 - math.log(2))))),
    # no to odds 1, yes to odds 2
    Case(
        "binary",
        lambda n: BinaryCrossEntropy(),
        plain_binary,
        slow_binary,
        math.log(2) + math.log(3 / 2),
    ),
    # no to odds 3, yes to odds 2/3; of four alike, each has odds of 1/3
    Case(
        "balanced binary",
        BalancedBCE,
        lambda logits, target: plain_binary(logits - math.log(3), target),
        slow_balanced,
        math.log(4) + math.log(5 / 2),
    ),
    # log(C - 1) is 0 for two classes
    Case(
        "balanced binary, uniform test",
        lambda n: BalancedBCE(n, test_prior="uniform"),
        plain_binary,
        slow_balanced_uniform,
        math.log(4) + math.log(5 / 2),
    ),
    # weights are as 1 / (1 - 0.9^3) to 1 / (1 - 0.9): 0.5391 and 1.4609
    Case(
        "class-balanced binary",
        lambda n: ClassBalancedBCE(n, beta=0.9),
        plain_binary,
        slow_class_balanced,
        2 * (math.log(2) * 0.1 + math.log(3 / 2) * 0.271) / 0.371,
    ),
    # balanced softmax, and 0.1 of the regulariser with Z = [2, 4]
    Case(
        "LADE",
        LADE,
        plain_lade,
        slow_adjusted,
        math.log(5 / 2) + 0.1 * (math.log(2) + 0.175 * math.log(2) ** 2),
        beside=slow_lade,
    ),
    # class weights 0.5 and 1.5, |softmax - target| = 2/3
    Case(
        "influence balanced",
        lambda n: GivenFeatures(InfluenceBalanced(n, alpha=1.0)),
        plain_influence,
        slow_influence,
        1.5 * math.log(3 / 2) / (2 / 3 + 1e-3),
    ),
]
every = pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
counted = pytest.mark.parametrize(
    "case",
    [case for case in CASES if case.name not in ("cross entropy", "binary")],
    ids=lambda case: case.name,
)


def given() -> tuple[Tensor, Tensor, Tensor]:
    """Logits, hard targets, soft targets, in 64 bits."""
    torch.manual_seed(0)
    logits = torch.randn(6, 4, dtype=torch.float64)
    return (
        logits,
        torch.tensor([0, 0, 0, 1, 2, 3]),
        torch.randn(6, 4, dtype=torch.float64).mul(3).softmax(1),
    )


def slow_mean(
    case: Case, logits: Tensor, target: Tensor, weight: list[float], rows: list[float]
) -> float:
    above = below = 0.0
    for z, t, factor in zip(logits.tolist(), target.tolist(), rows, strict=True):
        for c, share in enumerate(t):
            above += factor * weight[c] * share * case.reference(z, t, c)
            below += weight[c] * share
    return above / below + case.beside(logits.tolist(), target.tolist())


@every
def test_uniform_counts_give_the_plain_loss(case: Case) -> None:
    logits, hard, soft = given()
    loss = case.loss(torch.full((4,), 7))
    assert torch.allclose(
        loss(logits, hard), case.plain(logits, F.one_hot(hard, 4).double()), atol=1e-6
    )
    assert torch.allclose(loss(logits, soft), case.plain(logits, soft), atol=1e-6)


@every
def test_a_value_by_hand(case: Case) -> None:
    logits = torch.tensor([[0.0, math.log(2)]])
    assert case.loss(torch.tensor([3, 1]))(logits, torch.tensor([1])).item() == pytest.approx(
        case.by_hand, rel=1e-5
    )


@every
def test_a_hard_target_equals_its_one_hot(case: Case) -> None:
    logits, hard, _ = given()
    loss = case.loss(torch.tensor(COUNTS))
    for weight in (None, torch.tensor([0.1, 1.0, 2.0, 5.0], dtype=torch.float64)):
        assert torch.allclose(
            loss(logits, hard, weight=weight),
            loss(logits, F.one_hot(hard, 4).double(), weight=weight),
        )


@every
def test_it_equals_a_slow_reference(case: Case) -> None:
    logits, hard, soft = given()
    loss, weight, rows = (
        case.loss(torch.tensor(COUNTS)),
        [0.1, 1.0, 2.0, 5.0],
        [0.0, 1.0, 2.0, 0.5, 1.0, 3.0],
    )
    ones = [1.0] * 6
    for target in (hard, soft):
        full = F.one_hot(hard, 4).double() if target.ndim == 1 else target
        w, r = torch.tensor(weight, dtype=torch.float64), torch.tensor(rows, dtype=torch.float64)
        assert loss(logits, target).item() == pytest.approx(
            slow_mean(case, logits, full, [1.0] * 4, ones), rel=1e-5
        )
        assert loss(logits, target, weight=w).item() == pytest.approx(
            slow_mean(case, logits, full, weight, ones), rel=1e-5
        )
        assert loss(logits, target, rows=r).item() == pytest.approx(
            slow_mean(case, logits, full, [1.0] * 4, rows), rel=1e-5
        )
        assert loss(logits, target, weight=w, rows=r).item() == pytest.approx(
            slow_mean(case, logits, full, weight, rows), rel=1e-5
        )


@every
@pytest.mark.parametrize("dtype", [torch.float16, torch.float32])
@pytest.mark.parametrize("size", [1e4, 3e4])
def test_extreme_logits_give_finite_losses_and_gradients(
    case: Case, size: float, dtype: torch.dtype
) -> None:
    logits = torch.tensor(
        [[size, -size, 0.0, size], [-size, -size, -size, size]], dtype=dtype, requires_grad=True
    )
    loss = case.loss(torch.tensor(COUNTS))
    for target in (
        torch.tensor([1, 0]),
        torch.tensor([[0.5, 0.5, 0.0, 0.0], [0.0, 0.0, 0.1, 0.9]]),
    ):
        value = loss(logits, target)
        (gradient,) = torch.autograd.grad(value, logits)
        assert value.dtype == torch.float32
        assert value.isfinite()
        assert gradient.isfinite().all()


@every
def test_a_target_that_is_no_class_is_refused_with_both_numbers(case: Case) -> None:
    logits, hard, _ = given()
    with pytest.raises(
        ValueError, match="expected targets 0 to 3 as int64 for logits of 4 classes, got 1 to 4"
    ):
        case.loss(torch.tensor(COUNTS))(logits, hard + 1)


@counted
@pytest.mark.parametrize("classes", [1, 3, 5])
def test_logits_of_another_number_of_classes_are_refused_with_both_numbers(
    case: Case, classes: int
) -> None:
    with pytest.raises(
        ValueError,
        match=rf"expected logits \(N, 4\), as the loss has counts of 4 classes, got \(2, {classes}\)",
    ):
        case.loss(torch.tensor(COUNTS))(torch.zeros(2, classes), torch.tensor([0, 0]))


@counted
def test_a_list_of_counts_is_refused(case: Case) -> None:
    with pytest.raises(ValueError, match="expected counts as a tensor, got a list"):
        case.loss(COUNTS)  # type: ignore[arg-type]


@every
def test_features_are_accepted(case: Case) -> None:
    logits, hard, _ = given()
    loss = case.loss(torch.tensor(COUNTS))
    assert torch.equal(loss(logits, hard, features=torch.randn(6, 3)), loss(logits, hard))
