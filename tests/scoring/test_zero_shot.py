"""U, S and H equal a slow reading of the protocol, at every bias."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import zero_shot_files
from numpy.typing import NDArray

from longtail.data.open import open_data
from longtail.records.predictions import SplitPredictions
from longtail.scoring.scorer import ScorerCollection, check_scorer, scorer_for
from longtail.scoring.zero_shot import ZeroShotScorer


def case(seed: int) -> tuple[SplitPredictions, NDArray[np.bool_]]:
    rng = np.random.default_rng(seed)
    seen = np.array([True] * 5 + [False] * 4)
    target = rng.integers(0, 8, size=60)  # class 8 has no images: it is no candidate
    logits = (rng.normal(size=(60, 9)) + 1.5 * np.eye(9)[target]).astype(np.float32)
    return SplitPredictions({"logits": logits}, target, np.arange(60)), seen


def slow(predictions: SplitPredictions, seen: NDArray[np.bool_], bias: float) -> Any:
    """Accuracy of each class with the bias, averaged over seen and over unseen classes."""
    present = {*predictions.target.tolist()}
    hits: dict[int, list[bool]] = {}
    for logits, target in zip(predictions.logits["logits"], predictions.target, strict=True):
        best, highest = -1, -np.inf
        for number, value in enumerate(logits):
            if not seen[number] and number not in present:
                continue
            shifted = value + (0 if seen[number] else bias)
            if shifted > highest:
                best, highest = number, shifted
        hits.setdefault(int(target), []).append(best == target)
    means = [
        np.mean([np.mean(right) for label, right in hits.items() if seen[label] == kind])
        for kind in (True, False)
    ]
    return float(means[0]), float(means[1])


@pytest.mark.parametrize("seed", range(4))
def test_scores_equal_the_slow_reference(seed: int) -> None:
    predictions, seen = case(seed)
    scores = ZeroShotScorer(seen)(predictions)
    s, u = slow(predictions, seen, 0.0)
    assert scores["seen"] == pytest.approx(s, abs=1e-12)
    assert scores["unseen"] == pytest.approx(u, abs=1e-12)
    assert scores["h"] == pytest.approx(2 * s * u / (s + u), abs=1e-12)
    margins = sorted(
        {
            float(a - b)
            for a in np.unique(predictions.logits["logits"][:, :5].max(1))
            for b in np.unique(predictions.logits["logits"][:, 5:8].max(1))
        }
    )
    biases = [margins[0] - 1, *[(a + b) / 2 for a, b in itertools.pairwise(margins)]]
    points = [slow(predictions, seen, bias) for bias in [*biases[::40], margins[-1] + 1]]
    sweep = ZeroShotScorer(seen).sweep(predictions)
    assert sweep is not None
    for bias, expected in zip([*biases[::40], margins[-1] + 1], points, strict=True):
        at = int(np.searchsorted(sweep.bias, bias))
        near = [
            (sweep.seen[i], sweep.unseen[i])
            for i in range(max(0, at - 1), at + 1)
            if i < len(sweep.bias)
        ]
        assert any(np.allclose(expected, point, atol=1e-12) for point in near)
    best = slow(predictions, seen, sweep.best_bias)
    assert scores["best_h"] == pytest.approx(2 * best[0] * best[1] / sum(best), abs=1e-12)
    curve = [slow(predictions, seen, bias) for bias in sweep.bias]
    area = sum(
        (after[1] - before[1]) * (after[0] + before[0]) / 2
        for before, after in itertools.pairwise(curve)
    )
    assert scores["ausuc"] == pytest.approx(area, abs=1e-12)


def test_without_unseen_images_there_is_no_h() -> None:
    predictions, seen = case(0)
    rows = np.flatnonzero(seen[predictions.target])
    only = SplitPredictions(
        {"logits": predictions.logits["logits"][rows]}, predictions.target[rows], rows
    )
    scores = ZeroShotScorer(seen)(only)
    assert scores["seen"] is not None
    assert [scores[name] for name in ("unseen", "h", "ausuc", "best_h")] == [None] * 4


def test_data_with_described_unseen_classes_is_ranked_by_h(tmp_path: Path) -> None:
    data = open_data(zero_shot_files.write(tmp_path))
    scorer = scorer_for(data)
    assert isinstance(scorer, ScorerCollection)
    assert scorer.headline == "h"
    assert list(scorer.labels)[:3] == ["h", "unseen", "seen"]
    check_scorer(data)
