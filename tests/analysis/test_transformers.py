"""Attention, rollout, distance, rank and entropy, against slow references."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from longtail.analysis.transformers import (
    attention_distance,
    attention_maps,
    entropy,
    feature_rank,
    rollout,
    transformer_of,
)
from longtail.nn import Classifier, TokenHeads, build


def network(**more: Any) -> Any:
    torch.manual_seed(0)
    model = build(
        {
            "name": "vit_mini",
            "size": 12,
            "patch": 4,
            "width": 16,
            "depth": 3,
            "pool": "tokens",
            **more,
        }
    )
    with torch.no_grad():  # away from the nearly uniform attention of first weights
        for block in transformer_of(model).blocks:
            block.attn.qkv.weight.mul_(20)
    return model


def attention(count: int = 11, *, images: int = 2) -> Tensor:
    torch.manual_seed(1)
    return (3 * torch.randn(images, 3, 2, count, count, dtype=torch.float64)).softmax(-1)


def test_attention_is_what_timm_computes_when_it_is_not_fused() -> None:
    model, image = network().eval(), torch.rand(2, 3, 12, 12)
    maps = attention_maps(model, image)
    weights: list[Tensor] = []
    for block in transformer_of(model).blocks:
        block.attn.fused_attn = False
        block.attn.attn_drop.register_forward_hook(
            lambda module, inputs, output: weights.append(output)
        )
    with torch.no_grad():
        model(image)
    assert torch.allclose(maps.attention, torch.stack(weights, 1), atol=1e-6)
    assert maps.attention.std() > 0.05
    assert (maps.prefix, maps.patch) == (2, 4)


def test_the_last_tokens_are_the_features_before_the_norm() -> None:
    model, image = network().eval(), torch.rand(2, 3, 12, 12)
    maps = attention_maps(Classifier(model, TokenHeads(model.dim, 5)).train(), image)
    with torch.no_grad():
        assert torch.allclose(
            transformer_of(model).norm(maps.tokens[:, -1])[:, :2].flatten(1),
            model(image),
            atol=1e-6,
        )


def test_looking_leaves_no_trace() -> None:
    model = network().train()
    attention_maps(model, torch.rand(2, 3, 12, 12))
    assert model.training
    assert not any(module._forward_hooks or module._forward_pre_hooks for module in model.modules())
    with pytest.raises(ValueError, match="one vision transformer inside, got 0"):
        attention_maps(build({"name": "fast_cnn", "size": 8, "width": 8}), torch.rand(1, 3, 8, 8))


def test_rollout_follows_every_path_of_attention() -> None:
    weights = attention()
    maps = rollout(weights, prefix=2)
    assert maps.shape == (2, 2, 3, 3)
    # Slowly: the sum over all paths from a token in front, back through three blocks, to a patch.
    blocks = weights[1].mean(1)
    half = [
        [[(float(b[i, j]) + (i == j)) / 2 for j in range(11)] for i in range(11)] for b in blocks
    ]
    for token, patch in ((0, 0), (1, 7)):
        paths = sum(
            half[2][token][a] * half[1][a][b] * half[0][b][2 + patch]
            for a in range(11)
            for b in range(11)
        )
        assert maps[1, token].flatten()[patch].item() == pytest.approx(paths)


def test_distance_is_in_pixels_between_patches() -> None:
    weights = attention()
    distance = attention_distance(weights, prefix=2, patch=4)
    for block, head in ((0, 0), (2, 1)):
        total = 0.0
        for image in range(2):
            for i in range(9):
                for j in range(9):
                    far = math.hypot(4 * (i // 3 - j // 3), 4 * (i % 3 - j % 3))
                    total += float(weights[image, block, head, 2 + i, 2 + j]) * far
        assert distance[block, head].item() == pytest.approx(total / (2 * 9))
    with pytest.raises(ValueError, match="square of patches, got 10"):
        attention_distance(weights, prefix=1, patch=4)


def slow_rank(features: Any, tail: Any, tolerance: float) -> int:
    mean = features.mean(0)
    _, _, rows = np.linalg.svd(features - mean)
    for k in range(1, len(rows) + 1):
        basis = rows[:k].T
        rebuilt = (tail - mean) @ basis @ basis.T
        if (
            np.linalg.norm(tail - mean - rebuilt) ** 2 / np.linalg.norm(tail - mean) ** 2
            <= tolerance
        ):
            return k
    return int(features.shape[1])


@pytest.mark.parametrize("tolerance", [0.3, 0.1, 0.01, 0.001])
def test_rank_is_the_least_number_of_directions(tolerance: float) -> None:
    rng = np.random.default_rng(0)
    features = rng.normal(size=(60, 12)) * 2.0 ** -np.arange(12) + 5
    tail = features[:9] + 0.01 * rng.normal(size=(9, 12))
    assert feature_rank(features, tail, tolerance=tolerance) == slow_rank(features, tail, tolerance)


def test_rank_at_its_edges() -> None:
    flat = np.ones((4, 3))
    assert feature_rank(flat, flat) == 0
    outside = np.array([[0.0, 0.0, 1.0]])
    assert feature_rank(np.array([[1.0, 0.0, 0.0], [-1.0, 0.0, 0.0]]), outside) == 3
    with pytest.raises(ValueError, match=r"got \(4, 3\) and \(4, 2\)"):
        feature_rank(flat, flat[:, :2])
    with pytest.raises(ValueError, match="tolerance between 0 and 1"):
        feature_rank(flat, flat, tolerance=1.0)


def test_entropy_is_that_of_the_softmax() -> None:
    logits = np.random.default_rng(0).normal(size=(5, 4)) * 10
    for row, value in zip(logits, entropy(logits), strict=True):
        odds = [math.exp(x) for x in row]
        assert value == pytest.approx(-sum(o / sum(odds) * math.log(o / sum(odds)) for o in odds))
