"""The section of a run shows what its files contain."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from longtail.recipes.published import Published
from longtail.report import sections
from longtail.report.folders import read_folder
from longtail.report.sections import section

Finished = Callable[..., Path]


def read_section(folder: Path) -> dict[str, Any]:
    return section(read_folder(folder))


def test_the_headline_says_the_balanced_accuracy_and_the_groups(finished: Finished) -> None:
    folder = finished("a")
    test = json.loads((folder / "row.json").read_text())["test"]
    values = read_section(folder)
    numbers = {name: value for name, value, _ in values["headline"]}
    assert numbers["balanced accuracy"] == f"{100 * test['balanced']:.1f}%"
    assert numbers["few (1 class)"] == f"{100 * test['groups']['few']:.1f}%"
    assert numbers["calibration error (ECE), points"] == f"{100 * test['ece']:.1f}"
    small = values["headline"][0][2]
    assert small.startswith("95% interval ")
    low, high = map(float, small.removeprefix("95% interval ").split(" to "))
    assert low <= 100 * test["balanced"] <= high
    words = " ".join(values["sentences"])
    assert f"{100 * (test['groups']['many'] - test['groups']['few']):.1f} points lower" in words
    assert "60 test images" in words
    assert values["lede"].startswith(
        "3 classes, 111 training images: 90 of the most frequent class, 9 of the rarest."
    )


def test_the_sentences_name_what_matters(finished: Finished) -> None:
    complete = json.loads((finished("w") / "row.json").read_text())["test"]
    ahead = read_section(finished("a", right=(0.2, 0.5, 0.9)))
    assert "points higher" in " ".join(ahead["sentences"])
    without = read_section(
        finished(
            "b", test={"classes_without_images": {"count": 1, "indices": [2]}, "zero_recall": 1}
        )
    )
    assert "1 of 3 classes have no test images" in " ".join(without["sentences"])
    assert "1 class has a recall of 0." in without["sentences"]
    validated = read_section(finished("c", test=None, val=complete, predictions=False))
    assert "validation images, which may have been used to select the weights" in " ".join(
        validated["sentences"]
    )
    assert validated["headline"][0][2] == ""
    adjusted = read_section(
        finished(
            "d",
            adjustment={
                "tau": 0.5,
                "temperature": 1.5,
                "val": None,
                "test": complete | {"balanced": 0.123},
            },
        )
    )
    assert "without adjustment, the balanced accuracy is 12.3%" in " ".join(adjusted["sentences"])
    assert read_section(finished("e", test=None, predictions=False))["summary"] is None


def test_numbers_of_newer_rows_are_shown_and_older_rows_do_without(finished: Finished) -> None:
    values = read_section(finished("a"))
    assert [row[0] for row in values["confusions"]["rows"]] == ["many", "medium", "few"]
    assert "head × 50" in values["priors"]
    assert values["more"] != ("macro F1", "top-5 accuracy")
    # Of an earlier version, and nothing to complete it from
    bare = read_section(finished("c", predictions=False))
    assert bare["class_table"]["rows"]


def test_the_published_number_is_named_with_its_band(
    finished: Finished, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = finished("a")
    assert read_section(folder)["published"] is None
    top1 = json.loads((folder / "row.json").read_text())["test"]["top1"]
    shared: dict[str, Any] = {
        "name": "toy",
        "recipe": "r",
        "data": "d",
        "band": "one point",
        "source": "Doe 2020, table 1",
    }
    for low, high, where in (
        (top1, 1.0, "inside"),
        (0.0, top1 - 0.01, "above"),
        (top1 + 0.01, 1.0, "below"),
    ):
        row = Published(value=0.5, low=low, high=high, differs=("the moon",), **shared)
        monkeypatch.setattr(sections, "match", lambda _, row=row: row)
        values = read_section(folder)["published"]
        assert f"{where} the band, {100 * low:.1f}% to {100 * high:.1f}%" in values["words"]
        assert "Doe 2020, table 1" in values["words"]
        assert values["differs"] == ("the moon",)
        assert values["heading"] == "Comparison with the published number"


def test_a_run_can_be_repeated_from_its_section(finished: Finished) -> None:
    folder = finished(
        "a",
        versions={"torch": "2.6"},
        hardware={"device": "cpu", "compile": False, "channels_last": True},
    )
    values = read_section(folder)["reproduce"]
    assert values["command"] == f"longtail train cross_entropy --data toy-lt --out {folder}"
    pairs = dict(values["pairs"])
    assert "split 0123456789abcdef, split seed 0" in pairs["data"]
    assert pairs["versions"] == "torch 2.6"
    assert pairs["hardware"] == "device cpu, channels_last"
    assert values["keywords"] == [["epochs", "4"]]


def test_other_evaluations_are_listed(finished: Finished) -> None:
    folder = finished("a")
    assert read_section(folder)["evaluations"] == []
    row = json.loads((folder / "row.json").read_text())
    kept = {name: row[name] for name in ("headline", "labels", "test", "val", "format")}
    content = {"data": "moths", "hash": "f" * 64, "tta": "flip", "versions": {}, **kept}
    (folder / "eval-moths-flip.json").write_text(json.dumps(content))
    test = row["test"]
    assert [
        "moths",
        f"{test['images']} (test)",
        "flip",
        "balanced accuracy",
        f"{100 * test['balanced']:.1f}%",
    ] in read_section(folder)["evaluations"]
