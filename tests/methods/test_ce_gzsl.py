"""CE-GZSL's terms equal slow readings of the paper, and each side trains alone."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from longtail.core import Clock, Labelled
from longtail.losses.contrastive import supervised_contrastive
from longtail.methods.ce_gzsl import CeGzsl
from longtail.nn import BatchFormer, Neck, Streams, build
from longtail.testing import check_method

SEEN = torch.tensor([True, False, True, True, False])


def method(neck: Neck | None = None, **keywords: Any) -> CeGzsl:
    torch.manual_seed(0)
    sizes = {"hidden": 8, "embedding": 4, "generator": 8, "critic": 8, "comparator": 8}
    network = build({"name": "vectors", "size": 6})
    vectors = torch.rand(5, 3)
    return CeGzsl(network, vectors, SEEN, **{**sizes, **keywords}, neck=neck).double().train()


def batch() -> Labelled:
    generator = torch.Generator().manual_seed(1)
    target = torch.tensor([0, 0, 2, 2, 3, 3, 3])
    image = torch.rand(7, 6, generator=generator, dtype=torch.float64)
    return {"image": image, "target": target, "position": torch.arange(7)}


def slow_entropy(model: CeGzsl, h: Tensor, target: Tensor) -> Tensor:
    """Cross entropy over seen classes, one class and one row at a time."""
    losses = []
    for row, label in zip(h, target, strict=True):
        scores = {
            c: model.head.output(
                F.leaky_relu(
                    model.head.features(row) + model.head.project(model.head.vectors[c]), 0.2
                )
            )
            / 0.1
            for c in (0, 2, 3)
        }
        losses.append(torch.logsumexp(torch.cat([*scores.values()]), 0) - scores[int(label)][0])
    return torch.stack(losses).mean()


def test_the_terms_of_the_critics_side_equal_the_slow_reference() -> None:
    model, rows = method(), batch()
    torch.manual_seed(3)
    terms = model(rows, Clock(0, 12, 0, 1)).terms
    torch.manual_seed(3)
    real, target = rows["image"], rows["target"]
    vectors = model.head.vectors[target]
    noise = torch.randn(7, 3).double()
    fake = model.generator(torch.cat([noise, vectors], 1)).detach()
    mix = torch.rand_like(real[:, :1])
    penalties = []
    for i in range(7):
        point = (mix[i] * real[i] + (1 - mix[i]) * fake[i]).requires_grad_()
        score = model.critic(torch.cat([point, vectors[i]]))
        (slope,) = torch.autograd.grad(score, point)
        penalties.append((slope.norm() - 1) ** 2)
    critic = [model.critic(torch.cat([part, vectors], 1)).mean() for part in (fake, real)]
    h = torch.relu(model.embed.layers[0](real))
    z = F.normalize(model.project(h), dim=1)
    assert torch.allclose(terms["critic"], critic[0] - critic[1])
    assert torch.allclose(terms["penalty"], 10 * torch.stack(penalties).mean())
    assert torch.allclose(terms["contrast"], supervised_contrastive(z, target, temperature=0.1))
    assert torch.allclose(terms["class"], slow_entropy(model, h, target))


def test_the_terms_of_the_generator_equal_the_slow_reference() -> None:
    model, rows = method(noise=2), batch()
    torch.manual_seed(3)
    terms = model(rows, Clock(5, 12, 0, 1)).terms
    torch.manual_seed(3)
    target = rows["target"]
    vectors = model.head.vectors[target]
    fake = model.generator(torch.cat([torch.randn(7, 2).double(), vectors], 1))
    h, other = (torch.relu(model.embed.layers[0](part)) for part in (fake, rows["image"]))
    z = F.normalize(model.project(torch.cat([h, other])), dim=1)
    contrast = supervised_contrastive(z, torch.cat([target, target]), temperature=0.1)
    scores = model.critic(torch.cat([fake, vectors], 1))
    assert torch.allclose(terms["generator"], -scores.mean())
    assert torch.allclose(terms["contrast"], 0.001 * contrast)
    assert torch.allclose(terms["class"], 0.001 * slow_entropy(model, h, target))


@pytest.mark.parametrize("neck", [None, "streams"])
def test_each_step_trains_one_side(neck: str | None) -> None:
    model = method(None if neck is None else Streams(BatchFormer(8)))
    assert model.steps_per_round == 6
    for step in range(12):
        model.zero_grad()
        model(batch(), Clock(step, 12, 0, 1)).loss.backward()
        trained = {
            name.partition(".")[0] for name, p in model.named_parameters() if p.grad is not None
        }
        sides = {"critic", "embed", "project", "head", *(["neck"] if neck else [])}
        assert trained == (sides if step % 6 < 5 else {"generator"})


def test_both_streams_enter_contrast_and_comparison() -> None:
    model, rows = method(Streams(BatchFormer(8), plain_weight=0.3, batchformer_weight=0.7)), batch()
    streams: Any = model.neck
    torch.manual_seed(3)
    terms = model(rows, Clock(0, 12, 0, 1)).terms
    h = torch.relu(model.embed.layers[0](rows["image"]))
    torch.manual_seed(3)
    torch.randn(7, 3), torch.rand_like(h[:, :1])  # what was sampled before
    both = streams.batchformer(h)[0]
    target = rows["target"]
    expected = 0.3 * slow_entropy(model, h, target) + 0.7 * slow_entropy(model, both[7:], target)
    assert torch.allclose(terms["class"], expected)
    z = F.normalize(model.project(both), dim=1)
    weight = torch.tensor([0.6] * 7 + [1.4] * 7, dtype=torch.float64)
    contrast = supervised_contrastive(z, torch.cat([target, target]), temperature=0.1, rows=weight)
    assert torch.allclose(terms["contrast"], contrast)


def test_it_is_refused_without_critic_steps() -> None:
    with pytest.raises(ValueError, match="at least one critic step"):
        method(critic_steps=0)


@pytest.mark.parametrize("neck", [None, "streams"])
def test_it_keeps_the_contract_of_methods(neck: str | None) -> None:
    def build_method() -> CeGzsl:
        return method(None if neck is None else Streams(BatchFormer(8)), critic_steps=2)

    check_method(build_method, {**batch()})  # type: ignore[dict-item]
