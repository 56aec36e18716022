"""Sets of classes that hold the right one with a promised probability, and so a way to abstain:
split conformal prediction.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from longtail.errors import LongtailError
from longtail.metrics.accuracy import balanced, blocks, by_group, check, group_of
from longtail.metrics.calibration import softmax
from longtail.records.groups import Groups
from longtail.records.row import Conformal

LEVEL = 0.9
SCORE = "1 - softmax probability"
SOURCES = ("class", "group", "all", "nothing")


@dataclass(frozen=True)
class Thresholds:
    """A class is in an image's set where 1 - its softmax probability is at most the class's
    threshold.
    """

    level: float
    values: NDArray[np.float64]  # one for each class
    # How many classes have theirs from their own images, with others of their group, of all, or
    # nothing
    calibrated_on: Mapping[str, int]
    images: int

    def to_json(self) -> dict[str, Any]:
        """What is left beside a model, so that it can abstain."""
        own = {
            "level": self.level,
            "score": SCORE,
            "images": self.images,
            "calibrated_on": dict(self.calibrated_on),
        }
        return {**own, "thresholds": self.values.tolist()}


def from_json(content: Mapping[str, Any]) -> Thresholds:
    """Read thresholds that `Thresholds.to_json` wrote.

    >>> from_json(Thresholds(0.9, np.array([0.5, 1.0]), {"class": 1, "nothing": 1}, 20).to_json()).values.tolist()
    [0.5, 1.0]
    """
    if content.get("score") != SCORE:
        raise LongtailError(
            f"expected thresholds for the score {SCORE!r}, got {content.get('score')!r}: evaluate"
            " the run again with --rewrite"
        )
    values = np.asarray(content["thresholds"], dtype=np.float64)
    return Thresholds(
        float(content["level"]),
        values,
        dict(content.get("calibrated_on", {})),
        int(content.get("images", 0)),
    )


def rank(images: int, level: float) -> int:
    """Which of the sorted scores is the threshold: ceil((n + 1) level). Beyond n, there are too few
    images for the level.

    >>> rank(9, 0.9), rank(8, 0.9)
    (9, 9)
    """
    return math.ceil((images + 1) * level - 1e-9)  # 1e-9: 0.9 is not 9/10


def calibrate(
    logits: NDArray[Any], target: NDArray[Any], *, groups: Groups, level: float = LEVEL
) -> Thresholds:
    """Find thresholds on images that were not trained on, so that sets of further such images hold
    their class with probability `level`.

    Split conformal prediction with the score 1 - softmax probability (LAC: Sadinle et al. 2019),
    for each class by itself (Mondrian: Vovk 2012), so that the promise holds for rare classes, too:
    a class's threshold is the ceil((n + 1) level)-th smallest score of its n images. A class with
    too few images for that (at 0.9: fewer than nine) shares a threshold with the other such classes
    of its group, for which together the promise then holds; where these have too few, with all
    classes that are still without; where these have too few, it is in every set. Images of classes
    with their own threshold have no part in it: they are easier, and would make it too low.

    >>> from longtail.records.groups import Groups
    >>> groups = Groups("ranks: 1/0/1", {"many": (0,), "medium": (), "few": (1,)})
    >>> logits, target = np.log([[0.8, 0.2]] * 9 + [[0.4, 0.6]]), np.array([0] * 9 + [1])
    >>> found = calibrate(logits, target, groups=groups)
    >>> found.values.round(2).tolist(), found.calibrated_on
    ([0.2, 1.0], {'class': 1, 'group': 0, 'all': 0, 'nothing': 1})
    """
    check(logits, target)
    if not 0 < level < 1:
        raise LongtailError(
            f"expected a level between 0 and 1, got {level}: 0.9 promises that 9 of 10 sets hold"
            " the class"
        )
    classes = logits.shape[1]
    scores = np.concatenate(
        [1 - softmax(own)[np.arange(len(own)), target[rows]] for rows, own in blocks(logits)]
    )
    position = group_of(groups, classes)
    of_class = _thresholds(scores, target, classes, level)
    rest = np.isnan(of_class)[target]  # the images of classes that have none yet
    of_group = _thresholds(scores[rest], position[target[rest]], len(groups.members), level)
    # For a class of no group, whose position is -1
    of_group = np.append(of_group, np.nan)[position]
    rest &= np.isnan(of_group)[target]
    of_all = _thresholds(scores[rest], np.zeros_like(target[rest]), 1, level)[0]
    candidates = np.stack([of_class, of_group, np.full(classes, of_all), np.ones(classes)])
    source = np.isfinite(candidates).argmax(axis=0)  # the first that there is
    from_where = dict(
        zip(SOURCES, np.bincount(source, minlength=len(SOURCES)).tolist(), strict=True)
    )
    return Thresholds(level, candidates[source, np.arange(classes)], from_where, len(target))


def _thresholds(
    scores: NDArray[np.float64], of: NDArray[Any], number: int, level: float
) -> NDArray[np.float64]:
    """The threshold of the scores of each kind; nan where there are too few."""
    found = np.full(number, np.nan)
    order = np.lexsort((scores, of))
    kinds, first, images = np.unique(of[order], return_index=True, return_counts=True)
    for kind, begin, own in zip(kinds.tolist(), first.tolist(), images.tolist(), strict=True):
        if kind >= 0 and rank(own, level) <= own:
            found[kind] = scores[order[begin + rank(own, level) - 1]]
    return found


def sets(logits: NDArray[Any], thresholds: NDArray[Any]) -> NDArray[np.bool_]:
    """Tell for each image which classes are in its set: more than one, or none, is a reason to
    abstain.

    >>> sets(np.log([[0.8, 0.2], [0.5, 0.5]]), np.array([0.5, 0.6])).tolist()
    [[True, False], [True, True]]
    """
    if logits.ndim != 2 or thresholds.shape != logits.shape[1:]:
        raise LongtailError(
            f"expected a threshold for each class, got {thresholds.shape} for logits {logits.shape}"
        )
    return np.asarray(1 - softmax(logits) <= thresholds)


def judge(
    logits: NDArray[Any], target: NDArray[Any], *, groups: Groups, thresholds: Thresholds
) -> Conformal:
    """Say on other images whether the promise was kept, for rare classes too, and what it costs:
    how
    large the sets are.

    >>> from longtail.records.groups import Groups
    >>> groups = Groups("ranks: 1/0/1", {"many": (0,), "medium": (), "few": (1,)})
    >>> own = Thresholds(0.9, np.array([0.5, 0.6]), {"class": 2}, 100)
    >>> found = judge(np.log([[0.8, 0.2], [0.5, 0.5], [0.7, 0.3]]), np.array([0, 1, 1]), groups=groups, thresholds=own)
    >>> found["groups"], found["multiple"], found["empty"]
    ({'many': 1.0, 'medium': None, 'few': 0.5}, 0.3333333333333333, 0.0)
    """
    check(logits, target)
    covered, size = np.empty(len(target), dtype=bool), np.empty(len(target), dtype=np.int64)
    for rows, own in blocks(logits):
        inside = sets(own, thresholds.values)
        covered[rows], size[rows] = inside[np.arange(len(own)), target[rows]], inside.sum(axis=1)
    images = np.bincount(target, minlength=logits.shape[1])

    def of_classes(values: NDArray[Any]) -> NDArray[np.float64]:
        means = np.full(len(images), np.nan)
        np.divide(
            np.bincount(target, weights=values, minlength=len(images)),
            images,
            out=means,
            where=images > 0,
        )
        return means

    coverages, single = of_classes(covered), size == 1
    worst = min(
        np.flatnonzero(images).tolist(), key=lambda index: (coverages[index], -images[index], index)
    )
    return {
        "level": thresholds.level,
        "score": SCORE,
        "images": thresholds.images,
        "calibrated_on": dict(thresholds.calibrated_on),
        "coverage": float(covered.mean()),
        "balanced": balanced(coverages),
        "groups": by_group(coverages, groups),
        "worst": {
            "index": worst,
            "coverage": float(coverages[worst]),
            "images": int(images[worst]),
        },
        "size": float(size.mean()),
        "size_groups": by_group(of_classes(size), groups),
        "multiple": float((size > 1).mean()),
        "empty": float((size == 0).mean()),
        "single_correct": float(covered[single].mean()) if single.any() else None,
    }
