"""Split conformal prediction: sets of classes that contain the true one with a given probability.

A set with more than one class, or none, is a reason to abstain.
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
    # How many classes have a threshold from the images of: class, group, all, nothing
    calibrated_on: Mapping[str, int]
    images: int

    def to_json(self) -> dict[str, Any]:
        """The thresholds as they are saved with a model."""
        settings = {
            "level": self.level,
            "score": SCORE,
            "images": self.images,
            "calibrated_on": dict(self.calibrated_on),
        }
        return {**settings, "thresholds": self.values.tolist()}


def from_json(content: Mapping[str, Any]) -> Thresholds:
    """Read thresholds that `Thresholds.to_json` wrote.

    >>> thresholds = Thresholds(0.9, np.array([0.5, 1.0]), {"class": 1, "nothing": 1}, 20)
    >>> from_json(thresholds.to_json()).values.tolist()
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
    """Which of the n sorted scores is the threshold: ceil((n + 1) level).

    A rank beyond n means that there are too few images for the level.

    >>> rank(9, 0.9), rank(8, 0.9)
    (9, 9)
    """
    return math.ceil((images + 1) * level - 1e-9)  # 1e-9: 0.9 is not 9/10


def calibrate(
    logits: NDArray[Any], target: NDArray[Any], *, groups: Groups, level: float = LEVEL
) -> Thresholds:
    """Find thresholds with which sets contain the true class with probability `level`.

    The images must not have been used for training.

    Split conformal prediction with the score 1 - softmax probability (LAC: Sadinle et al. 2019),
    for each class separately (Mondrian: Vovk 2012), so that the guarantee holds for rare classes:
    a class's threshold is the ceil((n + 1) level)-th smallest score of its n images. A class with
    too few images for that (at 0.9: fewer than nine) shares a threshold with the other such classes
    of its group, and the guarantee then holds for these together; where these have too few, with
    all classes that still have no threshold; where these have too few, it is in every set. Images
    of classes with a separate threshold are not used for shared ones: they are easier, and
    would make the shared threshold too low.

    >>> from longtail.records.groups import Groups
    >>> groups = Groups("ranks: 1/0/1", {"many": (0,), "medium": (), "few": (1,)})
    >>> logits, target = np.log([[0.8, 0.2]] * 9 + [[0.4, 0.6]]), np.array([0] * 9 + [1])
    >>> thresholds = calibrate(logits, target, groups=groups)
    >>> thresholds.values.round(2).tolist(), thresholds.calibrated_on
    ([0.2, 1.0], {'class': 1, 'group': 0, 'all': 0, 'nothing': 1})
    """
    check(logits, target)
    if not 0 < level < 1:
        raise LongtailError(
            f"expected a level between 0 and 1, got {level}: with 0.9, 9 of 10 sets contain the"
            " true class"
        )
    classes = logits.shape[1]
    scores = np.concatenate(
        [1 - softmax(block)[np.arange(len(block)), target[rows]] for rows, block in blocks(logits)]
    )
    position = group_of(groups, classes)
    of_class = _thresholds(scores, target, classes, level)
    rest = np.isnan(of_class)[target]  # the images of classes without a threshold
    of_group = _thresholds(scores[rest], position[target[rest]], len(groups.members), level)
    # For a class of no group, whose position is -1
    of_group = np.append(of_group, np.nan)[position]
    rest &= np.isnan(of_group)[target]
    of_all = _thresholds(scores[rest], np.zeros_like(target[rest]), 1, level)[0]
    candidates = np.stack([of_class, of_group, np.full(classes, of_all), np.ones(classes)])
    source = np.isfinite(candidates).argmax(axis=0)  # the first candidate that is defined
    calibrated_on = dict(
        zip(SOURCES, np.bincount(source, minlength=len(SOURCES)).tolist(), strict=True)
    )
    return Thresholds(level, candidates[source, np.arange(classes)], calibrated_on, len(target))


def _thresholds(
    scores: NDArray[np.float64], of: NDArray[Any], number: int, level: float
) -> NDArray[np.float64]:
    """The threshold of the scores of each class or group `of`; nan where there are too few."""
    thresholds = np.full(number, np.nan)
    order = np.lexsort((scores, of))
    kinds, first, images = np.unique(of[order], return_index=True, return_counts=True)
    for kind, begin, count in zip(kinds.tolist(), first.tolist(), images.tolist(), strict=True):
        if kind >= 0 and rank(count, level) <= count:
            thresholds[kind] = scores[order[begin + rank(count, level) - 1]]
    return thresholds


def sets(logits: NDArray[Any], thresholds: NDArray[Any]) -> NDArray[np.bool_]:
    """Which classes are in the set of each image: more than one, or none, is a reason to abstain.

    >>> sets(np.log([[0.8, 0.2], [0.5, 0.5]]), np.array([0.5, 0.6])).tolist()
    [[True, False], [True, True]]
    """
    if logits.ndim != 2 or thresholds.shape != logits.shape[1:]:
        raise LongtailError(
            f"expected a threshold for each class, got {thresholds.shape} for logits {logits.shape}"
        )
    return np.asarray(1 - softmax(logits) <= thresholds)


def evaluate_sets(
    logits: NDArray[Any], target: NDArray[Any], *, groups: Groups, thresholds: Thresholds
) -> Conformal:
    """Measure coverage, overall and by group, and size of the sets on other images.

    >>> from longtail.records.groups import Groups
    >>> groups = Groups("ranks: 1/0/1", {"many": (0,), "medium": (), "few": (1,)})
    >>> thresholds = Thresholds(0.9, np.array([0.5, 0.6]), {"class": 2}, 100)
    >>> logits, target = np.log([[0.8, 0.2], [0.5, 0.5], [0.7, 0.3]]), np.array([0, 1, 1])
    >>> result = evaluate_sets(logits, target, groups=groups, thresholds=thresholds)
    >>> result["groups"], result["multiple"], result["empty"]
    ({'many': 1.0, 'medium': None, 'few': 0.5}, 0.3333333333333333, 0.0)
    """
    check(logits, target)
    covered, size = np.empty(len(target), dtype=bool), np.empty(len(target), dtype=np.int64)
    for rows, block in blocks(logits):
        inside = sets(block, thresholds.values)
        covered[rows] = inside[np.arange(len(block)), target[rows]]
        size[rows] = inside.sum(axis=1)
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
