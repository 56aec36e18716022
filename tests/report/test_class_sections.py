"""The parts of a report about single classes show what the run's files contain."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from longtail.records.predictions import read_predictions
from longtail.report import class_sections
from longtail.report.folders import read_folder
from longtail.report.sections import section

from .conftest import write_examples

Finished = Callable[..., Path]


def read_section(folder: Path) -> dict[str, Any]:
    return section(read_folder(folder))


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
    complete = {
        "recall": recalls,
        "images_per_class": [3] * many,
        "recall_low": recalls,
        "recall_high": recalls,
        "confused_with": [None] * many,
    }
    folder = finished(
        "a",
        data=data,
        test=complete | {"confused_share": [None] * many},
        predictions=False,
        classes=tuple(f"c{index}" for index in range(many)),
    )
    values = read_section(folder)
    assert len(values["class_table"]["rows"]) == class_sections.ROWS
    assert values["class_table"]["which"] == "The 500 classes with the lowest recall of 4,000"
    assert {row[3] for row in values["class_table"]["rows"]} == {("0.0", 0.0)}
    assert values["classes"].count("<title>mean of 1") == class_sections.MARKERS
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


def test_a_single_group_is_not_named(finished: Finished) -> None:
    run = read_folder(finished("a", right=(0.9, 0.5, 0.0)))
    summary = run.row["test"]
    assert summary is not None
    worst = class_sections.worst(replace(run, members={"all": (0, 1, 2)}), summary)
    assert worst[0]["confusions"] == "cat (10 of 10)"


def test_confusions_are_counted_as_in_the_predictions(finished: Finished) -> None:
    folder = finished("a")
    predictions, _ = read_predictions(folder / "predictions" / "test.npz")
    answer = predictions.logits["logits"].argmax(1)[predictions.target == 2]
    assert (
        read_section(folder)["worst"][0]["confusions"]
        == f"cat ({int((answer == 0).sum())} of 10; many)"
    )


@pytest.mark.parametrize(
    ("test", "title"),
    [
        ({"groups": {"many": 0.9, "medium": 0.5, "few": 0.1}}, "The worst classes of the tail"),
        ({"groups": {"all": 0.5}}, "The worst classes"),
        ({"groups": {"seen": 0.5, "unseen": 0.1}}, "The worst unseen classes"),
        (
            {"groups": {"seen": 0.5, "unseen": 0.1}, "scores": {"auc": 0.1, "best_unseen": 0.2}},
            "The worst unseen pairs",
        ),
    ],
)
def test_the_worst_are_called_what_they_are(test: dict[str, Any], title: str) -> None:
    summary: Any = {"scores": {}, **test}
    assert class_sections.worst_title(summary) == title
