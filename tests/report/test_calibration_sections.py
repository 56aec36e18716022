"""Sections about probabilities show what a row has of them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from longtail.report.calibration_sections import calibration, conformal, reliability
from longtail.report.folders import read_folder

Finished = Callable[..., Path]


def test_reliability_and_calibration_are_of_all_images_and_of_groups(finished: Finished) -> None:
    summary = read_folder(finished("a")).summary
    assert summary is not None
    assert len(reliability(summary)) == 4
    table = calibration(summary)
    assert table is not None
    assert [row[0] for row in table["rows"]] == ["all", "many", "medium", "few"]


def test_prediction_sets_name_their_worst_class(finished: Finished) -> None:
    sets = {
        "level": 0.9,
        "score": "aps",
        "images": 50,
        "calibrated_on": {"class": 3},
        "single_correct": 0.9,
        "groups": {"many": 0.95, "few": None},
        "size_groups": {"many": 1.5},
        "coverage": 0.91,
        "balanced": 0.9,
        "size": 1.6,
        "multiple": 0.3,
        "empty": 0.01,
        "worst": {"index": 2, "coverage": 0.5, "images": 10},
    }
    run = read_folder(finished("b", test={"conformal": sets}))
    assert run.summary is not None
    pairs = dict(conformal(run, run.summary) or [])
    assert pairs["worst class"] == "axolotl: 50.0% of 10 images"


def test_rows_of_earlier_versions_have_none_of_them(finished: Finished) -> None:
    run = read_folder(finished("c", predictions=False))
    assert run.summary is not None
    assert reliability(run.summary) == []
    assert conformal(run, run.summary) is None
