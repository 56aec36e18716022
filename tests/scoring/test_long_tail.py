from __future__ import annotations

import json

import numpy as np
import pytest

from longtail.metrics.conformal import calibrate, evaluate_sets
from longtail.metrics.confusion import between_groups
from longtail.metrics.priors import sweep
from longtail.records.groups import Groups
from longtail.records.row import Summary
from longtail.scoring.long_tail import detailed, summarise

GROUPS = Groups("ranks: 2/2/2", {"many": (0, 1), "medium": (2, 3), "few": (4, 5)})
BESIDE = ("h_mean", "g_mean", "zero_recall", "macro_f1", "calibration", "classwise_ece")


def test_every_number_by_hand() -> None:
    target = np.array([0, 0, 1, 2, 3, 4])
    logits = 100 * np.eye(6)[[0, 1, 1, 2, 0, 5]]
    numbers = summarise(logits, target, classes=6, groups=GROUPS)
    # Of equal logits the lower indices win: in the last row class 4 comes after 5, 0, 1, 2, 3
    assert {name: value for name, value in numbers.items() if name not in BESIDE} == {
        "scores": {"top1": 0.5, "balanced": 0.5, "many": 0.75, "medium": 0.5, "few": 0.0},
        "top1": pytest.approx(3 / 6),
        "top5": pytest.approx(5 / 6),
        "balanced": pytest.approx((0.5 + 1 + 1 + 0 + 0) / 5),
        "groups": {"many": 0.75, "medium": 0.5, "few": 0.0},
        "group_rule": "ranks: 2/2/2",
        "recall": [0.5, 1.0, 1.0, 0.0, 0.0, None],
        "classes_without_images": {"count": 1, "indices": [5]},
        "ece": pytest.approx(0.5),
        "mce": pytest.approx(0.5),
        "bins": 15,
        "confidence": "softmax",
        "images": 6,
    }
    recalls = [0.5, 1.0, 1.0, 0.0, 0.0]
    assert {name: numbers[name] for name in BESIDE[:4]} == {  # type: ignore[literal-required]
        "h_mean": 0.0,
        "g_mean": 0.0,
        "zero_recall": recalls.count(0.0),
        "macro_f1": pytest.approx((0.5 + 2 / 3 + 1 + 0 + 0) / 5),
    }
    assert numbers["calibration"] == {
        "softmax": {"ece": numbers["ece"], "mce": numbers["mce"]},
        "sigmoid": pytest.approx({"ece": 0.5, "mce": 0.5}),
    }
    # Certain predictions leave two bins for each class: in the last what is wrongly predicted as
    # it, in the first what it missed.
    assert numbers["classwise_ece"] == {
        "mean": pytest.approx((2 / 6 + 1 / 6 + 0 + 1 / 6 + 1 / 6 + 1 / 6) / 6),
        "groups": {
            "many": pytest.approx(1.5 / 6),
            "medium": pytest.approx(0.5 / 6),
            "few": pytest.approx(1 / 6),
        },
    }


def test_details_are_what_the_parts_say() -> None:
    rng = np.random.default_rng(0)
    target = np.repeat(np.arange(5), [8, 6, 5, 3, 1])  # class 5 has no images
    logits = rng.normal(size=(len(target), 6)) + 2 * np.eye(6)[target]
    counts = np.array([90, 40, 20, 20, 3, 1])
    thresholds = calibrate(logits, target, groups=GROUPS)
    numbers = detailed(logits, target, groups=GROUPS, counts=counts, thresholds=thresholds)
    # Of methods with several heads only
    assert set(numbers) == set(Summary.__annotations__) - {"heads"}
    brief = summarise(logits, target, classes=6, groups=GROUPS)
    assert {name: numbers[name] for name in brief} == brief  # type: ignore[literal-required]
    assert numbers["images_per_class"] == [8, 6, 5, 3, 1, 0]
    assert numbers["members"] == {"many": [0, 1], "medium": [2, 3], "few": [4, 5]}
    assert numbers["recall_low"][5] is None
    assert numbers["recall_high"][5] is None
    assert numbers["priors"] == sweep(logits, target, counts=counts)
    assert numbers["confusions"] == between_groups(logits, target, groups=GROUPS)
    assert numbers["conformal"] == evaluate_sets(
        logits, target, groups=GROUPS, thresholds=thresholds
    )
    complete, few = numbers["reliability"]["all"], numbers["reliability"]["few"]
    assert complete is not None
    assert few is not None
    assert (sum(complete["images"]), sum(few["images"]), complete["ece"]) == (23, 1, numbers["ece"])
    assert numbers["priors"][5]["accuracy"] == pytest.approx(numbers["balanced"])
    assert json.loads(json.dumps(numbers, allow_nan=False)) == numbers
    assert "conformal" not in detailed(logits, target, groups=GROUPS, counts=counts)


def test_worst_classes_come_by_recall_then_training_images_then_index() -> None:
    target = np.repeat(np.arange(5), 2)
    logits = np.eye(6)[[0, 0, 1, 0, 0, 3, 3, 0, 4, 0]]  # recalls 1, 1/2, 0, 1/2, 1/2
    numbers = detailed(logits, target, groups=GROUPS, counts=np.array([50, 9, 40, 3, 9, 1]))
    assert [worst["index"] for worst in numbers["worst"]] == [
        2,
        3,
        1,
        4,
        0,
    ]  # class 5 has no images
    first = numbers["worst"][0]
    assert (first["group"], first["recall"], first["train_images"], first["images"]) == (
        "medium",
        0.0,
        40,
        2,
    )
    # As many as class 3, which comes later
    assert (first["confused_with"], first["confused_with_group"], first["confused_share"]) == (
        0,
        "many",
        0.5,
    )
    assert (first["low"], first["high"]) == (0.0, 0.6576)
    last = numbers["worst"][-1]
    assert (last["confused_with"], last["confused_with_group"], last["confused_share"]) == (
        None,
        None,
        None,
    )


def test_a_thousand_classes_fit_into_a_row() -> None:
    rng = np.random.default_rng(0)
    target = np.repeat(np.arange(1000), 3)
    logits = (
        rng.normal(size=(3000, 1000)).astype(np.float32)
        + 3 * np.eye(1000, dtype=np.float32)[target]
    )
    groups = Groups(
        "r",
        {
            "many": tuple(range(400)),
            "medium": tuple(range(400, 800)),
            "few": tuple(range(800, 1000)),
        },
    )
    thresholds = calibrate(logits, target, groups=groups)
    numbers = detailed(
        logits, target, groups=groups, counts=np.arange(1000, 0, -1), thresholds=thresholds
    )
    assert len(numbers["worst"]) == 10
    assert len(json.dumps(numbers, indent=1)) < 150_000


def test_it_is_json_without_nan() -> None:
    numbers = summarise(
        np.eye(6, dtype=np.float32)[:2], np.array([0, 1], dtype=np.int32), classes=6, groups=GROUPS
    )
    assert json.loads(json.dumps(numbers, allow_nan=False)) == numbers
    assert numbers["groups"] == {"many": 1.0, "medium": None, "few": None}


def test_five_classes_have_no_top5() -> None:
    groups = Groups("r", {"many": (0,), "medium": (), "few": ()})
    assert summarise(np.eye(5), np.arange(5), classes=5, groups=groups)["top5"] is None


def test_confidence_and_bins_are_as_requested_and_reported() -> None:
    target = np.array([0, 1])
    numbers = summarise(
        np.eye(6)[:2], target, classes=6, groups=GROUPS, confidence="sigmoid", bins=7
    )
    assert (numbers["confidence"], numbers["bins"]) == ("sigmoid", 7)
    assert numbers["ece"] == pytest.approx(1 - 1 / (1 + np.exp(-1)))
