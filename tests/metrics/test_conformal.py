from __future__ import annotations

import json
import math
from functools import partial

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from longtail.metrics import conformal
from longtail.metrics.accuracy import blocks
from longtail.metrics.calibration import softmax
from longtail.metrics.conformal import Thresholds, calibrate, evaluate_sets, from_json, rank, sets
from longtail.records.groups import Groups

GROUPS = Groups("ranks: 1/2/2", {"many": (0,), "medium": (1, 2), "few": (3, 4)})


def sampled(
    rng: np.random.Generator, images: list[int]
) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
    """Rare classes are harder."""
    target = np.repeat(np.arange(5), images)
    return (
        1.5 * rng.normal(size=(len(target), 5)) + (4 - target)[:, None] * np.eye(5)[target],
        target,
    )


def probabilities(row: list[float]) -> list[float]:
    largest = max(row)
    shares = [math.exp(value - largest) for value in row]
    return [share / sum(shares) for share in shares]


@pytest.mark.parametrize("level", [0.5, 0.8, 0.9])
def test_thresholds_equal_sorting_by_hand_with_every_fallback(level: float) -> None:
    logits, target = sampled(np.random.default_rng(0), [40, 12, 9, 3, 0])
    thresholds = calibrate(logits, target, groups=GROUPS, level=level)
    scores = [
        1 - probabilities(row)[t] for row, t in zip(logits.tolist(), target.tolist(), strict=True)
    ]
    sources, without = [], set(range(5))
    for name in ("class", "group", "all", "nothing"):
        kinds = {
            "class": [{index} for index in range(5)],
            "group": [*map(set, GROUPS.members.values())],
        }.get(name, [set(range(5))])
        served = set()
        for inside in (kind & without for kind in kinds):  # of classes without a threshold
            sorted_scores = sorted(
                score for score, t in zip(scores, target.tolist(), strict=True) if t in inside
            )
            place = math.ceil(round((len(sorted_scores) + 1) * level, 6))
            if name == "nothing" or place <= len(sorted_scores):
                assert all(
                    thresholds.values[index]
                    == pytest.approx(1.0 if name == "nothing" else sorted_scores[place - 1])
                    for index in inside
                )
                served |= inside
        sources += [name] * len(served)
        without -= served
    assert thresholds.calibrated_on == {
        name: sources.count(name) for name in ("class", "group", "all", "nothing")
    }
    assert thresholds.images == 64


def test_the_image_that_gave_the_threshold_is_inside() -> None:
    logits, target = sampled(np.random.default_rng(0), [40, 30, 30, 30, 30])
    inside = sets(logits, calibrate(logits, target, groups=GROUPS).values)
    # ceil((n + 1) 0.9)
    assert [int(inside[target == index][:, index].sum()) for index in range(5)] == [
        37,
        28,
        28,
        28,
        28,
    ]


def test_classes_that_share_a_threshold_are_covered_together() -> None:
    """One frequent class and ten rare, harder ones in a group: with the frequent one's images,
    their threshold would be too low.
    """
    groups = Groups("one group", {"one": tuple(range(11))})
    rng, images = np.random.default_rng(0), [100] + [5] * 10

    def some() -> tuple[NDArray[np.float64], NDArray[np.int64]]:
        target = np.repeat(np.arange(11), images)
        return (
            rng.normal(size=(len(target), 11))
            + np.where(target == 0, 5.0, 1.0)[:, None] * np.eye(11)[target],
            target,
        )

    covered = []
    for _ in range(100):
        thresholds = calibrate(*some(), groups=groups)
        logits, target = some()
        inside = sets(logits, thresholds.values)[np.arange(len(target)), target]
        covered.append(inside[target > 0].mean())
    assert thresholds.calibrated_on == {"class": 1, "group": 10, "all": 0, "nothing": 0}
    assert 0.88 <= np.mean(covered) <= 0.95


def test_too_few_images_of_anything_put_every_class_into_every_set() -> None:
    logits, target = sampled(np.random.default_rng(0), [2, 2, 2, 1, 1])
    thresholds = calibrate(logits, target, groups=GROUPS)
    assert thresholds.values.tolist() == [1.0] * 5
    assert thresholds.calibrated_on["nothing"] == 5
    result = evaluate_sets(logits, target, groups=GROUPS, thresholds=thresholds)
    assert (result["coverage"], result["size"], result["multiple"], result["single_correct"]) == (
        1.0,
        5.0,
        1.0,
        None,
    )


@given(st.integers(1, 3000), st.sampled_from([0.5, 0.75, 0.9, 0.95, 0.99]))
def test_the_rank_is_the_exact_one(images: int, level: float) -> None:
    hundredths = round(level * 100)
    assert rank(images, level) == -(-(images + 1) * hundredths // 100)  # in whole numbers


def test_every_class_is_covered_and_a_pooled_threshold_would_not_cover_all() -> None:
    rng, level = np.random.default_rng(0), 0.9
    by_class, pooled = [], []
    alone = Groups("ranks: 0/0/5", {"many": (), "medium": (), "few": (0, 1, 2, 3, 4)})
    for _ in range(60):
        calibration, test = sampled(rng, [200, 60, 30, 19, 19]), sampled(rng, [200] * 5)
        thresholds = calibrate(*calibration, groups=alone, level=level)
        assert thresholds.calibrated_on["class"] == 5
        by_class.append(
            [
                sets(test[0], thresholds.values)[test[1] == index][:, index].mean()
                for index in range(5)
            ]
        )
        scores = np.sort(1 - softmax(calibration[0])[np.arange(328), calibration[1]])
        same = np.full(5, scores[rank(328, level) - 1])
        pooled.append(
            [sets(test[0], same)[test[1] == index][:, index].mean() for index in range(5)]
        )
    coverage, deviation = np.mean(by_class, axis=0), np.std(by_class, axis=0) / math.sqrt(60)
    assert (coverage >= level - 3 * deviation).all()
    assert (coverage <= level + 1 / 20 + 3 * deviation).all()  # at most 1 / (n + 1) too many
    assert np.mean(pooled, axis=0)[4] < level - 0.1


def test_evaluating_sets_equals_counting_set_by_set(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(1)
    thresholds = calibrate(*sampled(rng, [40, 20, 20, 9, 3]), groups=GROUPS)
    logits, target = sampled(rng, [30, 20, 10, 10, 0])
    inside = [
        [c for c, value in enumerate(probabilities(row)) if 1 - value <= thresholds.values[c]]
        for row in logits.tolist()
    ]
    result, repeated = (
        evaluate_sets(logits, target, groups=GROUPS, thresholds=thresholds),
        calibrate(logits, target, groups=GROUPS).values.tolist(),
    )
    covered = [t in members for t, members in zip(target.tolist(), inside, strict=True)]
    by_class = [
        np.mean([c for c, t in zip(covered, target, strict=True) if t == index])
        for index in range(4)
    ]
    sizes = [
        np.mean([len(members) for members, t in zip(inside, target, strict=True) if t == index])
        for index in range(4)
    ]
    single = [c for c, members in zip(covered, inside, strict=True) if len(members) == 1]
    assert result["coverage"] == pytest.approx(np.mean(covered))
    assert result["balanced"] == pytest.approx(np.mean(by_class))
    assert result["groups"] == pytest.approx(
        {"many": by_class[0], "medium": np.mean(by_class[1:3]), "few": by_class[3]}
    )
    assert result["worst"]["coverage"] == min(by_class) == by_class[result["worst"]["index"]]
    assert result["worst"]["images"] == [30, 20, 10, 10][result["worst"]["index"]]
    assert result["size"] == pytest.approx(np.mean([len(members) for members in inside]))
    assert result["size_groups"] == pytest.approx(
        {"many": sizes[0], "medium": np.mean(sizes[1:3]), "few": sizes[3]}
    )
    assert result["multiple"] == pytest.approx(np.mean([len(members) > 1 for members in inside]))
    assert result["empty"] == pytest.approx(np.mean([not members for members in inside]))
    assert result["single_correct"] == pytest.approx(np.mean(single))
    assert (result["level"], result["images"]) == (0.9, 92)
    monkeypatch.setattr(conformal, "blocks", partial(blocks, entries=12))
    assert evaluate_sets(logits, target, groups=GROUPS, thresholds=thresholds) == result
    assert calibrate(logits, target, groups=GROUPS).values.tolist() == repeated


def test_thresholds_come_back_from_json() -> None:
    thresholds = calibrate(*sampled(np.random.default_rng(0), [40, 12, 9, 3, 0]), groups=GROUPS)
    content = json.loads(json.dumps(thresholds.to_json(), allow_nan=False))
    assert (content["level"], content["score"], len(content["thresholds"])) == (
        0.9,
        "1 - softmax probability",
        5,
    )
    repeated = from_json(content)
    assert repeated.values.tolist() == thresholds.values.tolist()
    assert (repeated.level, repeated.images, repeated.calibrated_on) == (
        thresholds.level,
        thresholds.images,
        thresholds.calibrated_on,
    )
    bare = from_json({name: content[name] for name in ("level", "score", "thresholds")})
    assert (bare.images, bare.calibrated_on) == (0, {})


def test_mistakes_are_refused() -> None:
    logits, target = np.zeros((1, 5)), np.array([0])
    with pytest.raises(ValueError, match="level between 0 and 1, got 90"):
        calibrate(logits, target, groups=GROUPS, level=90)
    with pytest.raises(ValueError, match="NaN"):
        calibrate(logits * np.nan, target, groups=GROUPS)
    with pytest.raises(ValueError, match="a threshold for each class"):
        sets(logits, np.zeros(4))
    with pytest.raises(ValueError, match="a threshold for each class"):
        evaluate_sets(logits, target, groups=GROUPS, thresholds=Thresholds(0.9, np.zeros(4), {}, 1))
    with pytest.raises(ValueError, match="expected thresholds for the score"):
        from_json({"level": 0.9, "score": "aps", "thresholds": []})
