from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from longtail.records.row import read_row
from longtail.records.scores import add_scores, format_score, label, with_unit

FORMAT1 = Path(__file__).parents[1] / "format1" / "finished"


def test_numbers_are_shown_as_their_label_says() -> None:
    assert format_score(0.99996, label("overall")) == "100.0"
    assert format_score(12.3456, label("NLL", format="plain")) == "12.346"
    assert with_unit(None, label("overall")) == "-"


def test_a_row_of_format_1_is_read_as_long_tailed(tmp_path: Path) -> None:
    row = read_row(FORMAT1)
    assert "scores" not in json.loads((FORMAT1 / "row.json").read_text())["test"]
    assert row["headline"] == {"name": "balanced", "higher_is_better": True}
    assert [shown["title"] for shown in row["labels"].values()] == [
        "overall",
        "balanced",
        "many",
        "medium",
        "few",
    ]
    for summary in (row["test"], row["val"], row["adjustment"]["test"]):
        assert summary is not None
        assert summary["scores"] == {
            "top1": summary["top1"],
            "balanced": summary["balanced"],
            **summary["groups"],
        }


def test_heads_have_scores_and_a_row_without_images_has_none() -> None:
    numbers: dict[str, Any] = {"top1": 0.5, "balanced": 0.4, "groups": {"seen": 0.3}}
    row: dict[str, Any] = {"test": {**numbers, "heads": {"cls": dict(numbers)}}, "val": None}
    add_scores(row)
    assert row["test"]["heads"]["cls"]["scores"] == {"top1": 0.5, "balanced": 0.4, "seen": 0.3}
    assert [*row["labels"]] == ["top1", "balanced", "seen"]
    empty: dict[str, Any] = {"test": None, "val": None, "best_validation": None}
    add_scores(empty)
    assert [*empty["labels"]] == ["top1", "balanced"]
    assert empty["best_validation"] is None
