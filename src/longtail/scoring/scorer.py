"""Which scorer applies to a dataset, and how predictions become the summary of a split."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from longtail.core import Scorer
from longtail.data.dataset import Dataset, Split
from longtail.errors import LongtailError
from longtail.metrics.conformal import Thresholds
from longtail.naming import unknown
from longtail.records.groups import Groups
from longtail.records.predictions import SplitPredictions
from longtail.records.row import Summary
from longtail.records.scores import Headline, Label
from longtail.scoring.compositional import CompositionalScorer
from longtail.scoring.domains import DomainScorer
from longtail.scoring.long_tail import LongTailScorer, Top5Scorer, detailed, summarise
from longtail.scoring.zero_shot import ZeroShotScorer


@dataclass(frozen=True)
class ScorerCollection:
    """The scores of several scorers, in this order; of two with the same name the first counts."""

    scorers: tuple[Scorer, ...]
    headline: str

    @property
    def labels(self) -> Mapping[str, Label]:
        """How each score is shown."""
        labels: dict[str, Label] = {}
        for scorer in self.scorers:
            labels |= {name: label for name, label in scorer.labels.items() if name not in labels}
        return labels

    def __call__(self, predictions: SplitPredictions, /) -> dict[str, float | None]:
        """Scores by name."""
        scores: dict[str, float | None] = {}
        for scorer in self.scorers:
            values = scorer(predictions)
            scores |= {name: value for name, value in values.items() if name not in scores}
        return scores


def task_scorer(data: Dataset) -> Scorer | None:
    """The scorer of what is particular to a dataset; None where class accuracies suffice.

    A scorer of the dataset itself (`Dataset.scorer`) goes first. A new kind of scorer joins here,
    with the columns or class attributes that it applies to.
    """
    if data.scorer is not None:
        return data.scorer
    if {"attribute", "object"} <= {*data.class_attributes}:
        return CompositionalScorer(
            (data.counts > 0).numpy(),
            data.class_attributes["attribute"].numpy(),
            data.class_attributes["object"].numpy(),
            data.pairs,
        )
    if data.test_domain is not None:
        return DomainScorer(data.categories["domain"])
    if "vector" in data.class_attributes and bool((data.counts == 0).any()):
        return ZeroShotScorer((data.counts > 0).numpy())
    return None


def scorer_for(data: Dataset) -> Scorer:
    """Choose the scorer of a dataset, so that all recipes on it are scored alike.

    The scores of `task_scorer` come first. Accuracy of many, medium and few classes is added where
    classes fall into several such groups. The data request may name another score as the headline
    (`Dataset.scoring`).
    """
    task, long_tail = task_scorer(data), LongTailScorer(data.groups)
    scorer: LongTailScorer | ScorerCollection = long_tail
    if task is not None:
        has_tail = sum(bool(members) for members in data.groups.members.values()) > 1
        scorer = ScorerCollection((task, long_tail) if has_tail else (task,), task.headline)
    if data.scoring == "top5" and "top5" not in scorer.labels and len(data.classes) > 5:
        scorer = ScorerCollection((Top5Scorer(), scorer), "top5")
    if data.scoring is not None:
        scorer = replace(scorer, headline=data.scoring)
    if scorer.headline not in scorer.labels:
        raise unknown(f"score of {data.name}", scorer.headline, scorer.labels)
    return scorer


def headline_of(scorer: Scorer) -> Headline:
    """The score that ranks, and its direction, as a row names them."""
    better = scorer.labels[scorer.headline]["higher_is_better"]
    return {"name": scorer.headline, "higher_is_better": better}


def score(scorer: Scorer, predictions: SplitPredictions) -> dict[str, float | None]:
    """The scores of the main head, checked: each has a label, and is a finite number or None."""
    scores = {
        name: None if value is None else float(value) for name, value in scorer(predictions).items()
    }
    unlabelled = [name for name in scores if "/" not in name and name not in scorer.labels]
    if unlabelled or scorer.headline not in scores:
        raise LongtailError(
            f"expected the scores {', '.join(scorer.labels)} with the headline {scorer.headline},"
            f" got {', '.join(scores) or 'none'}: give each score a label, and the headline a score"
        )
    broken = [
        name for name, value in scores.items() if value is not None and not math.isfinite(value)
    ]
    if broken:
        raise LongtailError(
            f"expected finite scores, got {scores[broken[0]]} for {broken[0]}: give None where"
            " there is nothing to measure"
        )
    return scores


def check_scorer(data: Dataset) -> None:
    """Try the scorer of a dataset on random predictions, so that it fails before training."""
    for split in (data.val, data.test):
        if len(split):
            random_scores(data, split)


def random_scores(data: Dataset, split: Split) -> dict[str, float | None]:
    """The scores of random predictions for a split; None says what cannot be measured on it."""
    scorer = scorer_for(data)
    shape = len(split), len(data.classes)
    if isinstance(scorer, LongTailScorer):  # measures the same for any logits: these take no memory
        logits = np.broadcast_to(np.float32(0), shape)
    else:
        logits = np.random.default_rng(0).standard_normal(shape, dtype=np.float32)
    columns = {name: values.numpy() for name, values in split.columns.items()}
    index = np.arange(len(split))
    return score(scorer, SplitPredictions({"logits": logits}, split.target.numpy(), index, columns))


def summarise_splits(
    predictions: Mapping[str, SplitPredictions],
    scorer: Scorer,
    *,
    groups: Groups,
    counts: NDArray[Any],
    confidence: str = "softmax",
    detail: bool = True,
    once: Mapping[str, SplitPredictions] | None = None,
    thresholds: Thresholds | None = None,
) -> dict[str, Summary | None]:
    """The summaries of "val" and "test" for a row; None for a split without predictions.

    Args:
        predictions: of each split, with logits (N, C) of each head.
        scorer: gives `Summary.scores`.
        groups: of the C classes.
        counts: (C,), training images of each class.
        confidence: how logits become probabilities, "softmax" or "sigmoid".
        detail: whether to compute intervals, confusions, reliability, priors and prediction sets.
        once: the predictions without test-time averaging, which prediction sets are evaluated on;
            `predictions` unless given.
        thresholds: of prediction sets, which are evaluated on "test" only.
    """
    summaries: dict[str, Summary | None] = {"val": None, "test": None}
    for split, split_predictions in predictions.items():
        target = split_predictions.target
        heads = {
            name: summarise(
                logits, target, classes=len(counts), groups=groups, confidence=confidence
            )
            for name, logits in split_predictions.logits.items()
            if name != "logits" or not detail
        }
        main = (
            heads.pop("logits")
            if not detail
            else detailed(
                split_predictions.logits["logits"],
                target,
                groups=groups,
                counts=counts,
                confidence=confidence,
                thresholds=thresholds if split == "test" else None,
                once=(once or predictions)[split].logits["logits"],
            )
        )
        for name, summary in {**heads, "logits": main}.items():
            # The long-tailed scores are in the summary: those of thousands of classes are not
            # computed twice.
            if not isinstance(scorer, LongTailScorer):
                logits = {"logits": split_predictions.logits[name]}
                summary["scores"] = score(scorer, replace(split_predictions, logits=logits))
        summaries[split] = {**main, "heads": heads} if heads else main
    return summaries
