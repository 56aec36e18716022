from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from longtail.analysis import ByClass, attention, cross_gradients, relations
from longtail.losses import LogitAdjusted
from longtail.methods import Classify
from longtail.nn import BatchFormer, Linear, Streams, build

COUNTS = torch.tensor([40, 8, 2])


def method(**keywords: Any) -> Classify:
    torch.manual_seed(0)
    network = build({"name": "fast_cnn", "size": 8, "width": 4})
    return Classify(
        network, Linear(16, 3), LogitAdjusted(COUNTS), neck=Streams(BatchFormer(16, **keywords))
    )


def batch(seed: int = 1) -> dict[str, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    return {
        "image": torch.rand(6, 3, 8, 8, generator=generator),
        "target": torch.tensor([0, 0, 0, 1, 1, 2]),
    }


@torch.no_grad()
def slow_attention(batchformer: BatchFormer, rows: Tensor) -> list[list[float]]:
    layer: Any = batchformer.layers[0]
    count, dim = rows.shape
    query, key, _ = (rows @ layer.self_attn.in_proj_weight.T + layer.self_attn.in_proj_bias).split(
        dim, 1
    )
    width, weights = dim // 4, torch.zeros(count, count)
    for head in range(4):
        part = slice(head * width, (head + 1) * width)
        for i in range(count):
            scores = [float(query[i, part] @ key[j, part]) / math.sqrt(width) for j in range(count)]
            total = sum(map(math.exp, scores))
            weights[i] += torch.tensor([math.exp(score) / total / 4 for score in scores])
    return weights.tolist()


def test_attention_is_what_the_module_uses() -> None:
    torch.manual_seed(0)
    batchformer, rows = BatchFormer(8, layers=2), torch.randn(5, 8)
    result = attention(batchformer, rows)
    assert result.shape == (2, 5, 5)
    assert np.allclose(result[0].numpy(), slow_attention(batchformer, rows), atol=1e-6)
    assert batchformer.training
    assert torch.equal(attention(BatchFormer(8, attention="self"), rows)[0], torch.eye(5))


def test_gradients_cross_only_where_rows_meet() -> None:
    rows = torch.randn(4, 8, dtype=torch.float64, requires_grad=True)
    for kind in ("batch", "self"):
        batchformer = BatchFormer(8, attention=kind, dropout=0.0).double()

        def loss(given: Tensor, i: int, batchformer: BatchFormer = batchformer) -> Tensor:
            return batchformer.attend(given)[i, :3].exp().sum()

        result = cross_gradients(torch.stack([loss(rows, i) for i in range(4)]), rows)
        slow = torch.zeros(4, 4, dtype=torch.float64)
        for i in range(4):
            for j in range(4):
                for d in range(8):  # by finite differences
                    step = torch.zeros_like(rows).index_put(
                        (torch.tensor(j), torch.tensor(d)), torch.tensor(1e-5, dtype=torch.float64)
                    )
                    slope = (loss(rows + step, i) - loss(rows - step, i)) / 2e-5
                    slow[i, j] += slope.detach() ** 2
        assert torch.allclose(result, slow.sqrt(), atol=1e-6)
        assert (result[~torch.eye(4, dtype=torch.bool)] > 1e-6).all().item() is (kind == "batch")


def test_pairs_are_averaged_over_batches_by_both_classes() -> None:
    torch.manual_seed(0)
    pairs = ByClass(3)
    sums: dict[tuple[int, int], list[float]] = {}
    for _ in range(3):
        values, target = torch.rand(5, 5), torch.randint(0, 3, (5,))
        pairs.add(values, target)
        for i in range(5):
            for j in range(5):
                if i != j:
                    sums.setdefault((int(target[i]), int(target[j])), []).append(
                        float(values[i, j])
                    )
    for (a, b), of_pair in sums.items():
        assert pairs.matrix()[a, b] == pytest.approx(sum(of_pair) / len(of_pair))
    for a in range(3):
        of_class = [value for (first, _), part in sums.items() if first == a for value in part]
        assert pairs.rows()[a] == pytest.approx(sum(of_class) / len(of_class))


@pytest.mark.parametrize("at", ["features", "image"])
def test_the_statistics_of_a_method(at: Any) -> None:
    trained, given = method(), batch()
    result = relations(trained, [given, batch(2)], classes=3, at=at)
    assert result["gradient"].shape == (3,)
    assert result["gradient_pairs"].shape == result["attention_pairs"].shape == (3, 3)
    assert np.isnan(result["gradient_pairs"][2, 2])  # a batch has one image of class 2
    assert float(result["uniform"]) == pytest.approx(1 / 6)
    assert (result["gradient"] > 0).all()
    # All attention of an image goes somewhere: to itself, or to the others.
    one = relations(trained, [given], classes=3)
    sizes = np.array([3, 2, 1])
    others = sizes[None, :] - np.eye(3)
    assert np.allclose(
        one["attention_self"] + np.nansum(one["attention_pairs"] * others, axis=1), 1
    )


def test_the_gradient_is_of_the_loss_that_is_trained() -> None:
    trained, given = method().eval(), batch()
    features = trained.network(given["image"]).detach().requires_grad_()
    logits = trained.head(trained.neck.batchformer.attend(features))  # type: ignore[operator, union-attr]
    total = []
    for i in (0, 1, 2):  # the images of class 0
        (gradient,) = torch.autograd.grad(
            trained.loss(logits[i : i + 1], given["target"][i : i + 1]), features, retain_graph=True
        )
        total += [float(gradient[j].norm()) for j in range(6) if j != i]
    result = relations(trained, [given], classes=3)["gradient"][0]
    assert result == pytest.approx(sum(total) / len(total), rel=1e-5)


def test_alone_there_is_nothing_between_images() -> None:
    result = relations(method(attention="self"), [batch()], classes=3)
    assert not result["gradient"].any()
    assert result["attention_self"].tolist() == [1.0, 1.0, 1.0]


def test_bad_input_is_refused() -> None:
    plain = Classify(
        build({"name": "fast_cnn", "size": 8, "width": 4}), Linear(16, 3), LogitAdjusted(COUNTS)
    )
    with pytest.raises(ValueError, match="train with --batchformer on"):
        relations(plain, [batch()], classes=3)
    with pytest.raises(ValueError, match="got none"):
        relations(method(), [], classes=3)
    with pytest.raises(ValueError, match="at features or at image, got 'pixels'"):
        relations(method(), [batch()], classes=3, at="pixels")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match=r"one loss for each of 3 inputs, got shape \(2,\)"):
        cross_gradients(torch.zeros(2), torch.zeros(3, 2))
