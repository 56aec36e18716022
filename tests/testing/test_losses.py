"""Our losses keep the contract; a new one joins by one entry in CASES. Each check catches its
fault.
"""

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
    ReleasedLADE,
)
from longtail.testing import check_loss

Rows = list[list[float]]
COUNTS = [50, 20, 5, 2]


@dataclass(frozen=True)
class Case:
    name: str
    loss: Callable[[Tensor], nn.Module]  # of counts
    # (logits, target distributions) -> what it is for uniform counts
    plain: Callable[[Tensor, Tensor], Tensor]
    # (logits of a row, target of a row, class) -> its loss if it were that class
    reference: Callable[[list[float], list[float], int], float]
    by_hand: float  # for counts [3, 1], logits [0, log 2], target 1
    batch_term: Callable[[Rows, Rows], float] | None = None  # outside the weighted mean
    features: int | None = None  # the width of those that it needs
    uses_counts: bool = True


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
    weights = [4 / n / sum(1 / count for count in COUNTS) for n in COUNTS]
    return (
        weights[at]
        * softmax_loss(logits, at)
        / (sum(abs(probability - (c == at)) for c, probability in enumerate(p)) + 1e-3)
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


def slow_released_lade(logits: Rows, target: Rows) -> float:
    total = 0.0
    for c, prior in enumerate(shares()):
        adjusted = [math.exp(z[c] - math.log(prior) + math.log(1 / 4)) for z in logits]
        log_z = math.log(sum(adjusted) / len(logits))
        of_class = sum(t[c] * z[c] for t, z in zip(target, logits, strict=True))
        mean = of_class / sum(t[c] for t in target)
        total += prior * (log_z + 0.1 * log_z**2 - mean)
    return total


def plain_ldam(logits: Tensor, target: Tensor) -> Tensor:
    return torch.stack(
        [
            target[:, c]
            @ F.cross_entropy(
                30 * (logits - 0.5 * one_hot), one_hot.expand(len(logits), -1), reduction="none"
            )
            / len(logits)
            for c, one_hot in enumerate(torch.eye(4, dtype=logits.dtype))
        ]
    ).sum()


def plain_binary(logits: Tensor, target: Tensor) -> Tensor:
    return 4 * F.binary_cross_entropy_with_logits(logits, target)


def plain_lade(logits: Tensor, target: Tensor) -> Tensor:
    log_z = logits.exp().mean(0).log()
    of_class = (target * logits).sum(0) / target.sum(0)
    return F.cross_entropy(logits, target) + 0.1 * (log_z + 0.1 * log_z**2 - of_class).mean()


def plain_released_lade(logits: Tensor, target: Tensor) -> Tensor:
    return 10 * (plain_lade(logits, target) - F.cross_entropy(logits, target))


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
        uses_counts=False,
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
        uses_counts=False,
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
        batch_term=slow_lade,
    ),
    # Z = [2 / 3, 4], with the priors of the logits' classes
    Case(
        "released LADE",
        ReleasedLADE,
        plain_released_lade,
        lambda z, t, c: 0.0,
        0.75 * (math.log(2 / 3) + 0.1 * math.log(2 / 3) ** 2)
        + 0.25 * (math.log(4) + 0.1 * math.log(4) ** 2 - math.log(2)),
        batch_term=slow_released_lade,
    ),
    # class weights 0.5 and 1.5, |softmax - target| = 2/3
    Case(
        "influence balanced",
        lambda n: InfluenceBalanced(n, alpha=1.0),
        plain_influence,
        slow_influence,
        1.5 * math.log(3 / 2) / (2 / 3 + 1e-3),
        features=1,
    ),
]
every = pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
counted = pytest.mark.parametrize(
    "case",
    [case for case in CASES if case.uses_counts],
    ids=lambda case: case.name,
)


@every
def test_a_loss_keeps_the_contract(case: Case) -> None:
    check_loss(
        case.loss,
        reference=case.reference,
        batch_term=case.batch_term,
        uniform=case.plain,
        features=case.features,
        uses_counts=case.uses_counts,
    )


@every
def test_a_value_by_hand(case: Case) -> None:
    logits, features = torch.tensor([[0.0, math.log(2)]]), torch.ones(1, 1)
    loss = case.loss(torch.tensor([3, 1]))(logits, torch.tensor([1]), features=features)
    assert loss.item() == pytest.approx(case.by_hand, rel=1e-5)


@every
def test_what_is_refused_is_reported_with_both_numbers(case: Case) -> None:
    loss, features = case.loss(torch.tensor(COUNTS)), torch.ones(2, 1)
    message = "expected targets 0 to 3 as int64 for logits of 4 classes, got 1 to 4"
    with pytest.raises(ValueError, match=message):
        loss(torch.zeros(2, 4), torch.tensor([1, 4]), features=features)


@counted
def test_other_classes_and_counts_are_refused_in_words(case: Case) -> None:
    message = r"expected logits \(N, 4\), as the loss was given counts of 4 classes, got \(2, 3\)"
    with pytest.raises(ValueError, match=message):
        case.loss(torch.tensor(COUNTS))(
            torch.zeros(2, 3), torch.tensor([0, 0]), features=torch.ones(2, 1)
        )
    with pytest.raises(ValueError, match="expected counts as a tensor, got a list"):
        case.loss(COUNTS)  # type: ignore[arg-type]


# The contract itself: each check fails for a loss that breaks it.


class Faulty(CrossEntropy):
    """A cross entropy with one fault."""

    def __init__(self, fault: str) -> None:
        super().__init__()
        self.fault = fault

    def forward(
        self,
        logits: Tensor,
        target: Tensor,
        *,
        weight: Tensor | None = None,
        rows: Tensor | None = None,
        features: Tensor | None = None,
    ) -> Tensor:
        if self.fault == "hard":
            logits = logits * (2 if target.ndim == 1 else 1)
        if self.fault == "overflow":
            logits = logits + 0 * logits.float().exp()
        if self.fault == "masked":
            logits = logits + 0 * logits
        if self.fault == "unchecked":
            target = target.clamp(max=3) if target.ndim == 1 else target
        if self.fault == "rows" and rows is not None:
            rows = 2 * rows
        if self.fault == "features" and features is not None:
            logits = logits * features.mean()
        loss: Tensor = super().forward(logits, target, weight=weight, rows=rows)
        if self.fault == "absolute" and weight is not None:
            loss = loss * weight.mean()
        if self.fault == "vector":
            loss = loss[None]
        if self.fault == "gradient":
            loss = loss + (logits.detach().square() - logits.square()).sum() * 0.1
        if self.fault == "half":
            loss = loss.to(logits.dtype)
        return loss + 1 if self.fault == "value" else loss


@pytest.mark.parametrize(
    ("fault", "message"),
    [
        ("hard", "a hard target is not the same as its one-hot row"),
        ("rows", "row weights of 1 change the loss"),
        ("absolute", "class weights are not relative"),
        ("features", "features change the loss"),
        ("half", "instead of float32"),
        ("overflow", "the loss is nan for logits"),
        ("masked", "the loss is nan where a class that no target has is masked with -inf"),
        ("unchecked", "targets that are no class are not refused"),
        ("vector", "expected a loss of one number"),
        ("gradient", "the slope by the gradient"),
        ("value", "the reference gives"),
    ],
)
def test_the_contract_notices(fault: str, message: str) -> None:
    with pytest.raises(AssertionError, match=message):
        check_loss(
            lambda counts: Faulty(fault),
            reference=lambda z, t, c: softmax_loss(z, c),
            uses_counts=False,
        )


def test_the_contract_notices_a_uniform_loss_that_is_another() -> None:
    with pytest.raises(AssertionError, match="with equal counts it is"):
        check_loss(LogitAdjusted, uniform=lambda logits, target: logits.sum())


def test_the_contract_notices_classes_that_are_not_counted() -> None:
    with pytest.raises(AssertionError, match="logits of 1 classes are not refused"):
        check_loss(lambda counts: CrossEntropy())


class Narrow(nn.Module):
    def forward(self, logits: Tensor, target: Tensor) -> Tensor:
        return F.cross_entropy(logits, target)


def test_the_contract_notices_a_signature_without_weights() -> None:
    with pytest.raises(AssertionError, match=r"does not take \(logits, target, weight\)"):
        check_loss(lambda counts: Narrow())
