from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from longtail.data.open import open_data
from longtail.errors import LongtailError
from longtail.records.predictions import SplitPredictions
from longtail.scoring.domains import DomainScorer
from longtail.scoring.scorer import check_scorer, headline_of, scorer_for

NAMES = ("art", "photo", "sketch")


def test_scores_equal_a_slow_reference() -> None:
    rng = np.random.default_rng(0)
    logits = rng.normal(size=(60, 4)).astype(np.float32)
    target, domain = rng.integers(4, size=60), rng.choice([0, 2], size=60, p=[0.8, 0.2])
    scores = DomainScorer(NAMES)(
        SplitPredictions({"logits": logits}, target, np.arange(60), {"domain": domain})
    )
    rows = list(zip(logits.tolist(), target.tolist(), domain.tolist(), strict=True))
    accuracy, loss = {}, []
    for number in (0, 2):
        inside = [(row, label) for row, label, where in rows if where == number]
        accuracy[NAMES[number]] = sum(row.index(max(row)) == label for row, label in inside) / len(
            inside
        )
        surprise = [math.log(sum(map(math.exp, row))) - row[label] for row, label in inside]
        loss.append(sum(surprise) / len(inside))
    recalls = []
    for label in range(4):
        inside = [(row, where) for row, label_of_row, where in rows if label_of_row == label]
        recalls.append(sum(row.index(max(row)) == label for row, _ in inside) / len(inside))
    assert scores == pytest.approx(
        {
            "domains": sum(accuracy.values()) / 2,
            "balanced": sum(recalls) / 4,
            "loss": sum(loss) / 2,
            "domains/art": accuracy["art"],
            "domains/sketch": accuracy["sketch"],
        }
    )


@pytest.fixture
def features(tmp_path: Path) -> Path:
    arrays = {
        "features": np.random.default_rng(0).normal(size=(60, 4)),
        "target": np.arange(60) % 3,
    }
    np.savez(tmp_path / "f.npz", **arrays, **{"column.domain": np.repeat(NAMES, 20)})  # type: ignore[arg-type]
    return tmp_path / "f.npz"


def test_data_with_a_test_domain_is_scored_by_domain(features: Path) -> None:
    data = open_data(features, test_domain="photo")
    scorer = scorer_for(data)
    assert headline_of(scorer) == {"name": "domains", "higher_is_better": True}
    assert [*scorer.labels] == ["domains", "balanced", "loss"]
    check_scorer(data)
    by_class = scorer_for(open_data(features, test_domain="photo", scoring="balanced"))
    assert headline_of(by_class) == {"name": "balanced", "higher_is_better": True}
    with pytest.raises(LongtailError, match="unknown score of f 'domain': did you mean domains"):
        scorer_for(replace(data, scoring="domain"))
    assert headline_of(scorer_for(open_data(features)))["name"] == "balanced"
