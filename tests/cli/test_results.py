"""What is shown when there is little, much, or nothing to show."""

from __future__ import annotations

import numpy as np
import pytest

from longtail.cli import results
from longtail.metrics.conformal import calibrate
from longtail.records.groups import Groups
from longtail.records.row import Evaluation, Summary
from longtail.records.scores import long_tail_labels
from longtail.scoring.long_tail import detailed, summarise


def evaluation(test: Summary | None) -> Evaluation:
    return {
        "val": None,
        "test": test,
        "headline": {"name": "balanced", "higher_is_better": True},
        "labels": long_tail_labels(["many", "medium", "few"]),
    }


def test_nothing_to_evaluate_is_reported(capsys: pytest.CaptureFixture[str]) -> None:
    results.summaries(evaluation(None))
    assert "no images for evaluation" in capsys.readouterr().out


def test_the_parts_of_a_head_stand_below_it(capsys: pytest.CaptureFixture[str]) -> None:
    groups = Groups("ranks: 1/0/1", {"many": (0,), "medium": (), "few": (1,)})
    logits, target = np.eye(2)[[0, 0, 1, 1]], np.array([0, 0, 1, 1])
    part = summarise(np.eye(2)[[0, 0, 0, 0]], target, classes=2, groups=groups)
    complete: Summary = {
        **summarise(logits, target, classes=2, groups=groups),
        "heads": {"cls": part},
    }
    results.summaries(evaluation(complete))
    lines = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert ["test", "100.0", "100.0", "100.0", "-", "100.0"] in lines
    assert ["test,", "cls", "alone", "50.0", "50.0", "100.0", "-", "0.0"] in lines


def test_details_name_the_worst_class_what_it_is_taken_for_and_the_promise(
    capsys: pytest.CaptureFixture[str],
) -> None:
    groups = Groups("ranks: 1/0/1", {"many": (0,), "medium": (), "few": (1,)})
    target = np.repeat([0, 1], 20)
    logits = np.eye(2)[[0] * 20 + [0] * 5 + [1] * 15]
    summary = detailed(
        logits,
        target,
        groups=groups,
        counts=np.array([90, 9]),
        thresholds=calibrate(logits, target, groups=groups),
    )
    results.details(summary, ["cat", "[dog]"])
    out = capsys.readouterr().out
    lines = [line.split() for line in out.splitlines()]
    assert [
        "[dog]",
        "few",
        "9",
        "20",
        "75.0",
        "53.1",
        "to",
        "88.8",
        "cat",
        "(many):",
        "25.0",
    ] in lines
    assert not [line for line in lines if line[:1] == ["cat"]]  # of which no image is lost
    assert ["few", "75.0", "25.0", "0.0", "0.0", "73.1", "0.019", "0.1439"] in lines
    assert "accuracy 99.5 99.0 97.7 95.8 91.7 87.5 83.3 79.2 77.3 76.0 75.5" in [
        " ".join(line) for line in lines
    ]
    assert "nominal coverage 90.0%, measured" in out
    assert "2 classes by class images" in out
    assert "should abstain" in out


def test_details_of_little_and_of_old_rows(capsys: pytest.CaptureFixture[str]) -> None:
    groups = Groups("ranks: 1/0/1", {"many": (0,), "medium": (), "few": (1,)})
    logits, target = np.eye(2)[[0, 0]], np.array([0, 0])
    results.details(
        detailed(logits, target, groups=groups, counts=np.array([9, 1])), ["cat", "dog"]
    )
    out = capsys.readouterr().out
    assert "no validation images" in out
    assert "worst" not in out
    old: Summary = summarise(logits, target, classes=2, groups=groups)
    del old["h_mean"]
    results.summaries(evaluation(old))
    results.details(old, ["cat", "dog"])
    out = capsys.readouterr().out
    assert "H-mean" not in out
    assert "written by an earlier version" in out
