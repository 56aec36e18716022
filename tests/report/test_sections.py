"""The section of a run shows what its files contain."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from longtail.recipes.published import Published
from longtail.records.predictions import read_predictions
from longtail.report import sections
from longtail.report.folders import read_folder
from longtail.report.sections import section

from .conftest import write_examples

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
    whole = json.loads((finished("w") / "row.json").read_text())["test"]
    ahead = read_section(finished("a", right=(0.2, 0.5, 0.9)))
    assert "points higher" in " ".join(ahead["sentences"])
    without = read_section(
        finished(
            "b", test={"classes_without_images": {"count": 1, "indices": [2]}, "zero_recall": 1}
        )
    )
    assert "1 of 3 classes have no test images" in " ".join(without["sentences"])
    assert "1 class has a recall of 0." in without["sentences"]
    validated = read_section(finished("c", test=None, val=whole, predictions=False))
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
                "test": whole | {"balanced": 0.123},
            },
        )
    )
    assert "without adjustment, the balanced accuracy is 12.3%" in " ".join(adjusted["sentences"])
    assert read_section(finished("e", test=None, predictions=False))["summary"] is None


def test_classes_are_sorted_from_frequent_to_rare_with_their_numbers(finished: Finished) -> None:
    values = read_section(finished("a", data={"counts_after": [9, 18, 90]}))
    assert [row[0] for row in values["class_table"]["rows"]] == ["axolotl", "dog", "cat"]
    assert values["class_table"]["columns"][:4] == [
        "class",
        "group",
        "training images",
        "recall, %",
    ]
    assert values["classes"].index("axolotl: recall") < values["classes"].index("cat: recall")


def test_thousands_of_classes_stay_a_page(finished: Finished) -> None:
    many = 4000
    recalls = [None if index % 10 == 0 else (index % 7) / 7 for index in range(many)]
    counts = list(range(many, 0, -1))
    data = {"counts_before": counts, "counts_after": counts, "classes": many}
    whole = {
        "recall": recalls,
        "images_per_class": [3] * many,
        "recall_low": recalls,
        "recall_high": recalls,
        "confused_with": [None] * many,
    }
    folder = finished(
        "a",
        data=data,
        test=whole | {"confused_share": [None] * many},
        predictions=False,
        classes=tuple(f"c{index}" for index in range(many)),
    )
    values = read_section(folder)
    assert len(values["class_table"]["rows"]) == sections.ROWS
    assert values["class_table"]["which"] == "The 500 classes with the lowest recall of 4,000"
    assert {row[3] for row in values["class_table"]["rows"]} == {("0.0", 0.0)}
    assert values["classes"].count("<title>mean of 1") == sections.MARKERS
    assert len(values["classes"]) < 300_000


def test_the_worst_of_the_tail_with_its_confusions_and_examples(finished: Finished) -> None:
    folder = finished("a", right=(0.9, 0.5, 0.0))
    write_examples(folder)
    (worst,) = read_section(folder)["worst"]
    assert worst["name"] == "axolotl"
    assert worst["confusions"] == "cat (10 of 10; many)"
    assert (
        "Recall 0.0% (95% interval 0% to 28%), on 10 test images; 9 training images."
        in worst["words"]
    )
    assert [example["words"] for example in worst["examples"]] == [
        "predicted cat, confidence 91%",
        "predicted cat, confidence 75%",
    ]
    assert worst["examples"][0]["alt"] == "test image 051.png of class axolotl"
    assert all(
        example["image"].startswith("data:") and example["map"].startswith("data:")
        for example in worst["examples"]
    )
    write_examples(folder, maps=False)
    values = read_section(folder)
    assert values["worst"][0]["examples"][0]["map"] == ""
    assert values["maps"] == "There are no saliency maps (no maps: expected maps)."


def test_confusions_are_counted_as_in_the_predictions(finished: Finished) -> None:
    folder = finished("a")
    predictions, _ = read_predictions(folder / "predictions" / "test.npz")
    answer = predictions.logits["logits"].argmax(1)[predictions.target == 2]
    assert (
        read_section(folder)["worst"][0]["confusions"]
        == f"cat ({int((answer == 0).sum())} of 10; many)"
    )


def test_numbers_of_newer_rows_are_shown_and_older_rows_do_without(finished: Finished) -> None:
    values = read_section(finished("a"))
    assert len(values["reliability"]) == 4  # all, many, medium, few
    assert [row[0] for row in values["calibration"]["rows"]] == ["all", "many", "medium", "few"]
    assert [row[0] for row in values["confusions"]["rows"]] == ["many", "medium", "few"]
    assert "head × 50" in values["priors"]
    assert values["more"] != ("macro F1", "top-5 accuracy")
    conformal = {
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
    pairs = dict(read_section(finished("b", test={"conformal": conformal}))["conformal"])
    assert pairs["worst class"] == "axolotl: 50.0% of 10 images"
    # Of an earlier version, and nothing to complete it from
    bare = read_section(finished("c", predictions=False))
    assert bare["reliability"] == []
    assert bare["conformal"] is None
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


def test_percent_of_nothing_is_a_dash() -> None:
    assert [sections.percent(value) for value in (None, 0.0, np.float64(1.0))] == [
        "-",
        "0.0%",
        "100.0%",
    ]


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
