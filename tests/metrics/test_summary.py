from __future__ import annotations

import json

import numpy as np
import pytest

from longtail.core import Groups
from longtail.metrics.row import Summary
from longtail.metrics.summary import summarise

GROUPS = Groups("ranks: 2/2/2", {"many": (0, 1), "medium": (2, 3), "few": (4, 5)})


def test_every_number_by_hand() -> None:
    target = np.array([0, 0, 1, 2, 3, 4])
    logits = 100 * np.eye(6)[[0, 1, 1, 2, 0, 5]]
    numbers = summarise(logits, target, classes=6, groups=GROUPS)
    assert numbers == {
        "top1": pytest.approx(3 / 6),
        "top5": pytest.approx(5 / 6),  # of equal logits the lower indices win: in the last row class 4 comes after 5, 0, 1, 2, 3
        "balanced": pytest.approx((0.5 + 1 + 1 + 0 + 0) / 5),
        "groups": {"many": 0.75, "medium": 0.5, "few": 0.0},
        "group_rule": "ranks: 2/2/2",
        "recall": [0.5, 1.0, 1.0, 0.0, 0.0, None],
        "classes_without_test": {"count": 1, "indices": [5]},
        "ece": pytest.approx(0.5),
        "mce": pytest.approx(0.5),
        "bins": 15,
        "confidence": "softmax",
        "images": 6,
    }
    assert set(numbers) == set(Summary.__annotations__) - {"heads"}  # of methods with several heads only - {"heads"}


def test_it_is_json_without_nan() -> None:
    numbers = summarise(np.eye(6, dtype=np.float32)[:2], np.array([0, 1], dtype=np.int32), classes=6, groups=GROUPS)
    assert json.loads(json.dumps(numbers, allow_nan=False)) == numbers
    assert numbers["groups"] == {"many": 1.0, "medium": None, "few": None}


def test_five_classes_have_no_top5() -> None:
    groups = Groups("r", {"many": (0,), "medium": (), "few": ()})
    assert summarise(np.eye(5), np.arange(5), classes=5, groups=groups)["top5"] is None


def test_confidence_and_bins_are_as_asked_and_said() -> None:
    target = np.array([0, 1])
    numbers = summarise(np.eye(6)[:2], target, classes=6, groups=GROUPS, confidence="sigmoid", bins=7)
    assert (numbers["confidence"], numbers["bins"]) == ("sigmoid", 7)
    assert numbers["ece"] == pytest.approx(1 - 1 / (1 + np.exp(-1)))
