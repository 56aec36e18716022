"""Penalties between domains equal slow references that share no code with them."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor

from longtail.errors import LongtailError
from longtail.losses.domains import DomainPenalty, coral, irm, vrex

Rows = tuple[Tensor, Tensor, Tensor, Tensor]


def rows(seed: int, counts: tuple[int, ...] = (7, 4, 5)) -> Rows:
    """Features, logits, target and domain of a batch with unequal domains in random order."""
    torch.manual_seed(seed)
    domain = torch.repeat_interleave(torch.tensor([3, 0, 8])[: len(counts)], torch.tensor(counts))
    domain = domain[torch.randperm(len(domain))]
    features = torch.randn(len(domain), 6, dtype=torch.float64) + domain[:, None]
    logits = torch.randn(len(domain), 4, dtype=torch.float64) * (1 + domain[:, None])
    return features, logits, torch.randint(4, (len(domain),)), domain


def slow_coral(features: Tensor, logits: Tensor, target: Tensor, domain: Tensor) -> float:
    numbers = sorted({*domain.tolist()})
    means, covariances = {}, {}
    dim = features.shape[1]
    for number in numbers:
        members = [
            row for row, of in zip(features.tolist(), domain.tolist(), strict=True) if of == number
        ]
        means[number] = [sum(row[i] for row in members) / len(members) for i in range(dim)]
        covariances[number] = [
            [
                sum((row[i] - means[number][i]) * (row[j] - means[number][j]) for row in members)
                / (len(members) - 1)
                for j in range(dim)
            ]
            for i in range(dim)
        ]
    pairs = [(a, b) for a in numbers for b in numbers if a < b]
    total = 0.0
    for a, b in pairs:
        total += sum((means[a][i] - means[b][i]) ** 2 for i in range(dim)) / dim
        total += (
            sum(
                (covariances[a][i][j] - covariances[b][i][j]) ** 2
                for i in range(dim)
                for j in range(dim)
            )
            / dim**2
        )
    return total / len(pairs)


def slow_irm(features: Tensor, logits: Tensor, target: Tensor, domain: Tensor) -> float:
    """By automatic differentiation of the dummy scale, as the paper defines it."""
    products = []
    for number in sorted({*domain.tolist()}):
        members = [row for row in range(len(domain)) if domain[row] == number]
        gradients = []
        for half in (members[::2], members[1::2]):
            scale = torch.ones((), dtype=torch.float64, requires_grad=True)
            loss = torch.nn.functional.cross_entropy(scale * logits[half], target[half])
            gradients.append(torch.autograd.grad(loss, scale)[0].item())
        products.append(gradients[0] * gradients[1])
    return sum(products) / len(products)


def slow_vrex(features: Tensor, logits: Tensor, target: Tensor, domain: Tensor) -> float:
    risks: dict[int, list[float]] = {}
    for row, label, number in zip(logits.tolist(), target.tolist(), domain.tolist(), strict=True):
        surprise = math.log(sum(map(math.exp, row))) - row[label]
        risks.setdefault(number, []).append(surprise)
    means = [sum(values) / len(values) for values in risks.values()]
    centre = sum(means) / len(means)
    return sum((mean - centre) ** 2 for mean in means) / len(means)


@pytest.mark.parametrize(
    ("penalty", "slow"), [(coral, slow_coral), (irm, slow_irm), (vrex, slow_vrex)]
)
@pytest.mark.parametrize("counts", [(7, 4, 5), (2, 3)])
def test_a_penalty_equals_a_slow_one(
    penalty: DomainPenalty, slow: DomainPenalty, counts: tuple[int, ...]
) -> None:
    for seed in range(3):
        given = rows(seed, counts)
        assert penalty(*given).item() == pytest.approx(slow(*given), rel=1e-9, abs=1e-9)


@pytest.mark.parametrize("penalty", [coral, irm, vrex])
def test_the_gradient_is_that_of_the_penalty(penalty: DomainPenalty) -> None:
    features, logits, target, domain = rows(0)
    inputs = (features.requires_grad_(), logits.requires_grad_())
    assert torch.autograd.gradcheck(lambda x, z: penalty(x, z, target, domain), inputs)


@pytest.mark.parametrize("penalty", [coral, vrex])
def test_equal_domains_have_no_penalty(penalty: DomainPenalty) -> None:
    features, logits, target, _ = rows(0)
    domain = torch.tensor([0, 1]).repeat_interleave(len(target))
    twice = torch.cat([features] * 2), torch.cat([logits] * 2), torch.cat([target] * 2)
    assert penalty(*twice, domain).item() == pytest.approx(0)


@pytest.mark.parametrize("penalty", [coral, irm, vrex])
def test_one_domain_cannot_be_compared(penalty: DomainPenalty) -> None:
    with pytest.raises(LongtailError, match="needs at least two domains"):
        penalty(*rows(0, (5,)))
    if penalty is not vrex:
        with pytest.raises(LongtailError, match=r"got \[1, 5\] images"):
            penalty(*rows(0, (5, 1)))
