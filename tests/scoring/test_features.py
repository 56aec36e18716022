from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from longtail.records.groups import Groups
from longtail.scoring.features import FeatureEvaluator, fit_linear
from longtail.scoring.long_tail import LongTailScorer


class Rows:
    """All rows in one batch."""

    def __init__(self, image: Tensor, target: Tensor) -> None:
        self.image, self.target = image, target

    def __len__(self) -> int:
        return 1

    def epoch(self, index: int, *, start: int = 0) -> Iterator[dict[str, Any]]:
        yield {"image": self.image, "target": self.target, "index": torch.arange(len(self.target))}


def clouds(seed: int, counts: tuple[int, ...]) -> tuple[Tensor, Tensor]:
    rng = np.random.default_rng(seed)
    target = np.repeat(np.arange(len(counts)), counts)
    centres = 2.0 * np.eye(3, 5)[target]
    features = 3.0 + np.array([1, 10, 0.1, 1, 1]) * (centres + rng.normal(size=(len(target), 5)))
    return torch.from_numpy(features).float(), torch.from_numpy(target)


def test_the_linear_classifier_is_the_minimum() -> None:
    features, target = clouds(0, (40, 40, 40))
    weight, bias = fit_linear(features, target, torch.tensor([40, 40, 40]), decay=0.01, steps=500)
    # At the minimum, the gradient by the weights for standardised features is zero.
    mean, std = features.double().mean(0), features.double().std(0, unbiased=False)
    rows, scaled = (features.double() - mean) / std, weight.double() * std
    shift = bias.double() + weight.double() @ mean
    wrong = (rows @ scaled.T + shift).softmax(1) - torch.eye(3, dtype=torch.float64)[target]
    gradient = wrong.T @ rows / 120 + 0.01 * scaled
    assert gradient.abs().max() < 1e-4
    assert wrong.mean(0).abs().max() < 1e-4, "the bias is not decayed"
    assert scaled.abs().max() > 0.1


def test_rare_classes_count_as_much_as_others() -> None:
    features, target = clouds(0, (200, 200, 5))
    weight, bias = fit_linear(features, target, torch.tensor([200, 200, 5]))
    plain = fit_linear(features, target, torch.tensor([1, 1, 1]))
    many, many_target = clouds(1, (100, 100, 100))
    hits = (many @ weight.T + bias).argmax(1) == many_target
    other = (many @ plain[0].T + plain[1]).argmax(1) == many_target
    assert hits[-100:].float().mean() > other[-100:].float().mean() + 0.1


def test_scores_of_neighbours_and_of_the_linear_classifier() -> None:
    features, target = clouds(0, (30, 20, 10))
    queries, query_target = clouds(1, (10, 10, 10))
    groups = Groups("ranks: 1/1/1", {"many": (0,), "medium": (1,), "few": (2,)})
    evaluator = FeatureEvaluator(
        Rows(queries, query_target),
        Rows(features, target),
        LongTailScorer(groups),
        counts=torch.tensor([30, 20, 10]),
        neighbours=5,
    )
    numbers = evaluator(lambda image: {"logits": image})
    unit, rows = ((v / v.norm(dim=1, keepdim=True)).numpy() for v in (features, queries))
    hits = np.zeros(30)
    for place, cosines in enumerate(rows @ unit.T):
        votes = np.zeros(3)
        for nearest in np.argsort(-cosines)[:5]:
            votes[target[nearest]] += np.exp(cosines[nearest] / 0.1)
        hits[place] = votes.argmax() == query_target[place]
    assert numbers["knn/top1"] == pytest.approx(hits.mean())
    assert numbers["knn/few"] == pytest.approx(hits[-10:].mean())
    assert set(numbers) == {
        f"{head}/{name}"
        for head in ("knn", "linear")
        for name in ("top1", "balanced", "many", "medium", "few")
    }
