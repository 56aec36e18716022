from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pytest

from longtail.data.open import open_data
from longtail.errors import LongtailError
from longtail.metrics.conformal import calibrate
from longtail.records.groups import Groups
from longtail.records.predictions import SplitPredictions
from longtail.records.scores import Label, label
from longtail.scoring.long_tail import LongTailScorer, detailed, summarise
from longtail.scoring.scorer import (
    ScorerCollection,
    check_scorer,
    headline_of,
    score,
    scorer_for,
    summarise_splits,
)

GROUPS = Groups("ranks: 1/1/1", {"many": (0,), "medium": (1,), "few": (2,)})
COUNTS = np.array([90, 20, 5])


@dataclass(frozen=True)
class Errors:
    """How often the second logit misses, and what tests want to be returned besides."""

    headline: str = "errors"
    more: Mapping[str, Any] = field(default_factory=dict)

    @property
    def labels(self) -> Mapping[str, Label]:
        return {
            "errors": label("errors", higher_is_better=False),
            "balanced": label("ours"),
            "part": label("by part"),
        }

    def __call__(self, predictions: SplitPredictions, /) -> dict[str, Any]:
        wrong = predictions.logits["logits"].argmax(1) != predictions.target
        return {"errors": wrong.mean(), "balanced": 0.125, "part/a": None, **self.more}


def predictions(seed: int = 0, **heads: int) -> SplitPredictions:
    target = np.repeat(np.arange(3), [12, 10, 9])
    logits = {
        name: np.random.default_rng(draw).normal(size=(len(target), 3)) + np.eye(3)[target]
        for name, draw in {"logits": seed, **heads}.items()
    }
    return SplitPredictions(
        {name: values.astype(np.float32) for name, values in logits.items()},
        target,
        np.arange(len(target)),
    )


def test_long_tailed_scores_are_those_of_the_summary() -> None:
    given = predictions()
    numbers = summarise(given.logits["logits"], given.target, classes=3, groups=GROUPS)
    scorer = LongTailScorer(GROUPS)
    assert scorer(given) == numbers["scores"]
    assert [*scorer.labels] == [*numbers["scores"]] == ["top1", "balanced", "many", "medium", "few"]
    assert headline_of(scorer) == {"name": "balanced", "higher_is_better": True}


def test_the_data_decides_and_the_first_scorer_names_the_headline() -> None:
    data = open_data("digits-lt")
    assert scorer_for(data) == LongTailScorer(data.groups)
    assert scorer_for(replace(data, scoring="few")) == LongTailScorer(data.groups, "few")
    both = scorer_for(replace(data, scorer=Errors()))
    assert headline_of(both) == {"name": "errors", "higher_is_better": False}
    assert [*both.labels] == ["errors", "balanced", "part", "top1", "many", "medium", "few"]
    assert both.labels["balanced"]["title"] == "ours"
    alike = replace(data, scorer=Errors(), groups=Groups("none", {"all": tuple(range(10))}))
    assert [*scorer_for(alike).labels] == ["errors", "balanced", "part"]  # no tail, nothing to add
    other = scorer_for(replace(data, scorer=Errors(), scoring="few"))
    assert headline_of(other) == {"name": "few", "higher_is_better": True}
    with pytest.raises(LongtailError, match="unknown score of digits-lt 'fwe': did you mean few"):
        scorer_for(replace(data, scoring="fwe"))


def test_of_two_scores_with_one_name_the_first_counts() -> None:
    both = ScorerCollection((Errors(), LongTailScorer(GROUPS)), "errors")
    scores = score(both, predictions())
    assert [*scores] == ["errors", "balanced", "part/a", "top1", "many", "medium", "few"]
    assert scores["balanced"] == 0.125
    assert scores["top1"] == pytest.approx(1 - (scores["errors"] or 0.0))
    assert all(type(value) in (float, type(None)) for value in scores.values())


def test_what_is_no_score_is_refused() -> None:
    for more, words in (
        ({"unlabelled": 0.5}, "give each score a label"),
        ({"balanced": np.nan}, "expected finite scores, got nan for balanced"),
    ):
        with pytest.raises(LongtailError, match=words):
            score(Errors(more=more), predictions())
    data = replace(open_data("digits-lt"), scorer=Errors(more={"unlabelled": 0.5}))
    with pytest.raises(LongtailError, match="give each score a label"):
        check_scorer(data)
    check_scorer(replace(data, scorer=Errors()))


def test_summaries_of_splits_are_those_of_their_parts() -> None:
    val, test, once = predictions(1), predictions(2, cls=3), predictions(4, cls=5)
    thresholds = calibrate(val.logits["logits"], val.target, groups=GROUPS)
    known: dict[str, Any] = {"groups": GROUPS, "counts": COUNTS, "confidence": "sigmoid"}
    result = summarise_splits(
        {"val": val, "test": test},
        LongTailScorer(GROUPS),
        **known,
        once={"val": val, "test": once},
        thresholds=thresholds,
    )
    assert result["val"] == detailed(val.logits["logits"], val.target, **known)
    head = summarise(
        test.logits["cls"], test.target, classes=3, groups=GROUPS, confidence="sigmoid"
    )
    assert result["test"] == {
        **detailed(
            test.logits["logits"],
            test.target,
            **known,
            thresholds=thresholds,
            once=once.logits["logits"],
        ),
        "heads": {"cls": head},
    }
    brief = summarise_splits({"test": test}, LongTailScorer(GROUPS), **known, detail=False)
    assert brief["val"] is None
    main = summarise(
        test.logits["logits"], test.target, classes=3, groups=GROUPS, confidence="sigmoid"
    )
    assert brief["test"] == {**main, "heads": {"cls": head}}


def test_every_head_has_the_scores_of_the_scorer() -> None:
    test = predictions(2, cls=3)
    summary = summarise_splits({"test": test}, Errors(), groups=GROUPS, counts=COUNTS)["test"]
    assert summary is not None
    for name, head in (("logits", summary), ("cls", summary["heads"]["cls"])):
        wrong = test.logits[name].argmax(1) != test.target
        assert head["scores"] == {
            "errors": pytest.approx(wrong.mean()),
            "balanced": 0.125,
            "part/a": None,
        }


def test_top5_is_a_score_on_request() -> None:
    data = open_data("digits-lt")
    assert "top5" not in scorer_for(data).labels
    scorer = scorer_for(replace(data, scoring="top5"))
    assert headline_of(scorer) == {"name": "top5", "higher_is_better": True}
    rng = np.random.default_rng(0)
    logits = rng.normal(size=(40, 10)).astype(np.float32)
    target = rng.integers(0, 10, 40)
    ranks = [
        sorted(row, reverse=True).index(row[one]) for row, one in zip(logits, target, strict=True)
    ]
    scores = score(scorer, SplitPredictions({"logits": logits}, target, np.arange(40)))
    assert scores["top5"] == pytest.approx(np.mean([rank < 5 for rank in ranks]))
    assert scores["top1"] == pytest.approx(np.mean([rank < 1 for rank in ranks]))
    five = replace(data, classes=data.classes[:5], scoring="top5")
    with pytest.raises(LongtailError, match="top5"):
        scorer_for(five)
