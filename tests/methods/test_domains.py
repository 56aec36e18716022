"""Penalties of each domain and stream, frozen batch norm, and styles."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn

from longtail.core import Clock
from longtail.errors import LongtailError
from longtail.losses import domains as penalties
from longtail.losses.domains import DomainPenalty
from longtail.methods.domains import AcrossDomains
from longtail.nn import BatchFormer, Linear, Streams, build
from longtail.nn.mixstyle import MixStyle

START, END = Clock(0, 10, 0, 1), Clock(9, 10, 0, 1)


def batch() -> dict[str, Any]:
    torch.manual_seed(5)
    return {
        "image": torch.rand(12, 3, 8, 8),
        "target": torch.arange(12) % 5,
        "domain": torch.arange(12) % 3,
        "position": torch.arange(12),
    }


def method(**keywords: Any) -> AcrossDomains:
    torch.manual_seed(0)
    network = build({"name": "fast_cnn", "size": 8, "width": 8})
    return AcrossDomains(network, Linear(network.dim, 5), **keywords)


def double() -> Streams:
    return Streams(BatchFormer(32, dropout=0.0), plain_weight=0.3, batchformer_weight=0.7)


@pytest.mark.parametrize("name", ["coral", "irm", "vrex"])
def test_a_penalty_is_of_the_domains_of_one_stream(name: str) -> None:
    penalty: DomainPenalty = getattr(penalties, name)
    trained = method(penalty=penalty, penalty_weight=7.0, neck=double()).train()
    given = batch()
    terms = trained(given, END).terms
    assert [*terms] == ["plain", "attended", "plain_penalty", "attended_penalty"]
    with torch.no_grad():
        plain = trained.network(given["image"])
        assert isinstance(trained.neck, Streams)
        both = trained.neck(plain, given["target"], given["domain"]).features
        for stream, features, weight in (
            ("plain_penalty", plain, 0.3),
            ("attended_penalty", both[12:], 0.7),
        ):
            alone = penalty(features, trained.head(features), given["target"], given["domain"])
            assert terms[stream].item() == pytest.approx(7 * weight * alone.item(), rel=1e-4)
        # As in the released code for IRM: three consecutive parts of both streams
        parts = torch.arange(3).repeat_interleave(8)
        twice = torch.cat([given["target"]] * 2)
        released = penalty(both, trained.head(both), twice, parts).item()
    ours = (terms["plain_penalty"] + terms["attended_penalty"]).item() / 7
    assert ours != pytest.approx(released, rel=1e-2)


def test_the_weight_is_1_until_the_anneal_point() -> None:
    trained = method(penalty=penalties.vrex, penalty_weight=7.0, anneal=0.5).eval()
    before, after = (trained(batch(), clock).terms["class_penalty"] for clock in (START, END))
    assert after.item() == pytest.approx(7 * before.item())


def test_a_stream_without_weight_has_no_penalty() -> None:
    neck = Streams(BatchFormer(32), plain_weight=0.0, batchformer_weight=1.0)
    terms = method(penalty=penalties.coral, neck=neck).train()(batch(), END).terms
    assert [*terms] == ["attended", "attended_penalty"]


def test_erm_is_classification() -> None:
    assert [*method()(batch(), END).terms] == ["class"]


def test_frozen_batch_norms_keep_their_statistics_and_train_their_weights() -> None:
    trained = method(freeze_batchnorm=True).train()
    norms = [m for m in trained.modules() if isinstance(m, nn.BatchNorm2d)]
    before = [norm.running_mean.clone() for norm in norms if norm.running_mean is not None]
    outcome = trained(batch(), END)
    outcome.loss.backward()
    after = [norm.running_mean for norm in norms if norm.running_mean is not None]
    assert norms
    assert all(torch.equal(a, b) for a, b in zip(before, after, strict=True))
    assert any(norm.weight.grad is not None or norm.bias.grad is not None for norm in norms)
    assert trained.head.training
    assert trained.dropout.training
    assert not any(norm.training for norm in norms)
    assert all(norm.training for norm in method().train().network.modules())


def test_dropout_is_between_neck_and_head() -> None:
    trained = method(dropout=0.9)
    image = batch()["image"]
    assert torch.equal(trained.eval().predict(image), method().eval().predict(image))
    given = batch()
    losses = {trained.train()(given, END).loss.item() for _ in range(3)}
    assert len(losses) == 3


def test_styles_are_mixed_after_stages_in_training_only() -> None:
    class Seen(MixStyle):
        shapes: list[torch.Size]

        def forward(self, maps: torch.Tensor, domain: torch.Tensor) -> torch.Tensor:
            self.shapes.append(maps.shape)
            return super().forward(maps, domain)

    style = Seen(probability=1.0)
    style.shapes = []
    trained = method(style=style, style_stages=(0, 1)).train()
    trained(batch(), END)
    assert len(style.shapes) == 2
    trained.eval().predict(batch()["image"])
    assert len(style.shapes) == 2


@pytest.mark.parametrize("chosen", [(3,), (-1,), ()])
def test_stages_that_do_not_exist(chosen: tuple[int, ...]) -> None:
    with pytest.raises(LongtailError, match="fast_cnn has the stages 1 to 3"):
        method(style=MixStyle(), style_stages=chosen)


def test_feature_vectors_have_no_style() -> None:
    network = build({"name": "vectors", "size": 6})
    with pytest.raises(LongtailError, match="MixStyle needs feature maps, and this data has"):
        AcrossDomains(network, Linear(6, 5), style=MixStyle())
