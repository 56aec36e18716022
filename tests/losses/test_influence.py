import math

import pytest
import torch

from longtail.losses import InfluenceBalanced

COUNTS = [50, 20, 5, 2]


def test_features_are_needed() -> None:
    loss = InfluenceBalanced(torch.tensor(COUNTS))
    with pytest.raises(
        ValueError, match=r"needs the features of the 2 rows.*got none: pass features="
    ):
        loss(torch.zeros(2, 4), torch.tensor([0, 1]))
    with pytest.raises(ValueError, match="got 3 rows"):
        loss(torch.zeros(2, 4), torch.tensor([0, 1]), features=torch.zeros(3, 8))


def test_against_a_slow_reference() -> None:
    torch.manual_seed(0)
    logits, features = (
        torch.randn(5, 4, dtype=torch.float64),
        torch.randn(5, 3, dtype=torch.float64),
    )
    hard = [0, 1, 1, 2, 3]
    inverse = [1 / n for n in COUNTS]
    weights = [4 * w / sum(inverse) for w in inverse]
    total = 0.0
    for z, h, c in zip(logits.tolist(), features.tolist(), hard, strict=True):
        complete = sum(math.exp(logit) for logit in z)
        p = [math.exp(logit) / complete for logit in z]
        influence = sum(abs(probability - (k == c)) for k, probability in enumerate(p)) * sum(
            abs(feature) for feature in h
        )
        total += weights[c] * -math.log(p[c]) * 1000 / (influence + 1e-3) / 5
    assert InfluenceBalanced(torch.tensor(COUNTS)).double()(
        logits, torch.tensor(hard), features=features
    ).item() == pytest.approx(total, rel=1e-6)


def test_a_row_that_is_learnt_stops_pulling() -> None:
    loss, features = InfluenceBalanced(torch.ones(2), alpha=1.0), torch.ones(1, 4)
    pulls = []
    for size in (0.0, 3.0, 6.0):
        logits = torch.tensor([[size, 0.0]], requires_grad=True)
        loss(logits, torch.tensor([0]), features=features).backward()
        assert logits.grad is not None
        pulls.append(logits.grad.abs().max().item())
    assert max(pulls[1:]) < 0.2 * pulls[0]


def test_a_mixed_row_is_no_worse_at_its_mixture() -> None:
    loss, features = InfluenceBalanced(torch.tensor([1, 1])), torch.ones(1, 3)
    target = torch.tensor([[0.6, 0.4]])
    at = [
        float(loss(torch.tensor([[p, 1 - p]]).log(), target, features=features))
        for p in (0.99, 0.6, 0.1)
    ]
    assert at[1] == min(at)
