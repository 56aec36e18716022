"""MDD against a slow reference, and what batch norm and the reversed gradient reach."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from longtail.core import Clock
from longtail.errors import LongtailError
from longtail.methods import MDD
from longtail.methods.mdd import Adapted, reverse_gradient, source_disparity, target_disparity
from longtail.nn import BatchFormer, Embedded, Linear, Neck, PassThrough, Streams, build
from longtail.schedules import Sigmoid

CLOCK = Clock(50, 100, 5, 10)


def method(neck: Neck | None = None, *, on: str = "bottleneck", **keywords: Any) -> MDD:
    torch.manual_seed(0)
    bottleneck = Embedded(build({"name": "vectors", "size": 8}), [6], norm="batch")
    hidden = Embedded(bottleneck, [5])
    adversary = nn.Sequential(nn.Linear(6, 7), nn.ReLU(), nn.Linear(7, 3))
    keywords = {"reversal": Sigmoid(0.1, speed=20.0), **keywords}
    built = MDD(hidden, Linear(5, 3), adversary, neck=neck, neck_on=on, **keywords)
    return built.double().train()


def batch() -> Adapted:
    torch.manual_seed(1)
    return {
        "image": torch.randn(6, 8, dtype=torch.float64),
        "target": torch.tensor([0, 0, 1, 1, 2, 2]),
        "position": torch.arange(6),
        "unlabelled_image": torch.randn(4, 8, dtype=torch.float64) + 1,
    }


def slow(source: Tensor, target: Tensor, on_source: Tensor, on_target: Tensor) -> list[float]:
    """The three losses of one stream, row by row in plain Python."""
    labels = batch()["target"].tolist()

    def probability(row: Tensor, label: int) -> float:
        exponents = [math.exp(value) for value in row.tolist()]
        return exponents[label] / sum(exponents)

    def best(row: Tensor) -> int:
        return max(range(3), key=row.tolist().__getitem__)

    classes = [-math.log(probability(row, y)) for row, y in zip(source, labels, strict=True)]
    agree = [
        -math.log(probability(other, best(row)))
        for row, other in zip(source, on_source, strict=True)
    ]
    disagree = [
        -math.log(min(1.0, 1 - probability(other, best(row)) + 1e-6))
        for row, other in zip(target, on_target, strict=True)
    ]
    return [sum(losses) / len(losses) for losses in (classes, agree, disagree)]


@pytest.mark.parametrize("neck", [None, Streams(BatchFormer(6, heads=2))])
def test_the_terms_are_those_of_a_slow_reference(neck: Neck | None) -> None:
    built = method(neck, gamma=3.0, trade_off=0.5)
    given = batch()
    torch.manual_seed(2)
    outcome = built(given, CLOCK)
    torch.manual_seed(2)
    both = torch.cat([given["image"], given["unlabelled_image"]])
    bottleneck: Any = built.network.network
    streamed = built.neck(bottleneck(both))
    for name, (rows, weight) in streamed.streams.items():
        features = streamed.features[rows]
        logits, other = built.head(built.network.layers(features)), built.adversary(features)
        expected = slow(logits[:6], logits[6:], other[:6], other[6:])
        terms = [outcome.terms[f"{name}{part}"].item() for part in ("", "_source", "_target")]
        scaled = [expected[0], 0.5 * 3.0 * expected[1], 0.5 * expected[2]]
        assert terms == pytest.approx([weight * value for value in scaled], abs=1e-12)
    assert len(outcome.terms) == 3 * len(streamed.streams)


def test_disparities_of_extreme_logits_are_finite() -> None:
    sure = torch.tensor([[1e4, 0.0, 0.0]])
    assert target_disparity(sure, sure).item() == pytest.approx(-math.log(1e-6), rel=0.1)
    assert target_disparity(sure.flip(1), sure).item() == 0.0
    assert source_disparity(sure, sure).item() == 0.0


def test_only_the_features_get_the_reversed_gradient() -> None:
    """The adversary minimises its losses, the bottleneck maximises them by the factor."""
    forward, back = method(reversal=lambda clock: -1.0), method(reversal=lambda clock: 0.25)
    gradients = []
    for built in (forward, back):
        outcome = built(batch(), CLOCK)
        (outcome.terms["class_source"] + outcome.terms["class_target"]).backward()
        gradients.append({name: p.grad for name, p in built.named_parameters()})
    for name, expected in gradients[0].items():
        gradient = gradients[1][name]
        if name.startswith(("head", "network.layers")):
            assert expected is None
            assert gradient is None  # the classes that the head predicts have no gradient
        else:
            assert expected is not None
            factor = 1.0 if name.startswith("adversary") else -0.25
            torch.testing.assert_close(gradient, factor * expected)
    x = torch.ones(2, requires_grad=True)
    reverse_gradient(x, 0.5).sum().backward()
    assert x.grad is not None
    assert x.grad.tolist() == [-0.5, -0.5]


def test_before_the_bottleneck_each_stream_has_its_batch_norm() -> None:
    with_streams = method(Streams(BatchFormer(8, heads=2)), on="backbone")
    without = method(None)
    with_streams.network.load_state_dict(without.network.state_dict())
    with_streams(batch(), CLOCK)
    without(batch(), CLOCK)
    first: Any = with_streams.network.network
    second: Any = without.network.network
    moved = first.layers[1]
    assert torch.equal(moved.running_mean, second.layers[1].running_mean)
    assert torch.equal(moved.running_var, second.layers[1].running_var)
    assert moved.momentum == 0.1
    both = torch.cat([batch()["image"], batch()["unlabelled_image"]])
    torch.manual_seed(3)
    streamed = with_streams._features(both)
    torch.manual_seed(3)
    inputs = with_streams.neck(both).features
    for rows, _ in streamed.streams.values():
        linear = first.layers[0](inputs[rows])
        normed = (linear - linear.mean(0)) / (linear.var(0, correction=0) + 1e-5).sqrt()
        torch.testing.assert_close(streamed.features[rows], normed.clamp_min(0))


def test_what_cannot_be_built_is_refused() -> None:
    network = Embedded(build({"name": "vectors", "size": 8}), [6])
    keywords: dict[str, Any] = {"reversal": lambda clock: 0.1}
    with pytest.raises(LongtailError, match="MDD needs a bottleneck"):
        MDD(network, Linear(6, 3), nn.Linear(6, 3), **keywords)
    for wrong, message in (
        ({"on": "head"}, "neck_on must be"),
        ({"gamma": 0.0}, "gamma must be positive"),
        ({"trade_off": -1.0}, "trade_off at least 0"),
    ):
        with pytest.raises(LongtailError, match=message):
            method(**wrong)
    assert isinstance(method().neck, PassThrough)
