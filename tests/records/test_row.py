"""Rows of format 1 are read as rows of the current format; committed results among them."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from longtail.deprecated import EARLIER
from longtail.errors import LongtailError
from longtail.records.documents import FORMAT, write_document
from longtail.records.row import mirrored, read_evaluations, read_row, row_of

ROOT = Path(__file__).parents[2]
FORMAT1 = ROOT / "tests" / "format1" / "finished"
OLD = {
    "adjusting",
    "classes_without_test",
    "eaten",
    "eater",
    "eater_group",
    "known",
    "marks",
    "several",
    "single_right",
    "tested",
}

ADDED = ("headline", "labels", "scores")


def keys(content: Any) -> Iterator[str]:
    """Every key in a document, however deep."""
    if isinstance(content, dict):
        yield from content
    inner = content.values() if isinstance(content, dict) else content
    for value in inner if isinstance(inner, list) or isinstance(content, dict) else ():
        yield from keys(value)


def leaves(content: Any) -> Iterator[Any]:
    """Every value in a document that holds no others, in order."""
    if isinstance(content, dict):
        content = [value for name, value in content.items() if name not in ADDED]
    if isinstance(content, list):
        for value in content:
            yield from leaves(value)
    else:
        yield content


def test_format_1_keeps_its_values_under_new_keys() -> None:
    before = json.loads((FORMAT1 / "row.json").read_text())
    assert before["format"] == 1
    assert set(keys(before)) >= OLD
    row = read_row(FORMAT1)
    assert row["format"] == FORMAT
    assert not set(keys(row)) & OLD
    assert row["folder"] == str(FORMAT1)
    test, old = row["test"], before["test"]
    assert test is not None
    assert row["adjustment"]["tau"] == before["adjusting"]["tau"]
    assert row["data"]["caveats"] == before["data"]["marks"]
    assert test["confused_with"] == old["eater"]
    assert test["confused_share"] == old["eaten"]
    assert test["images_per_class"] == old["tested"]
    assert test["classes_without_images"] == old["classes_without_test"]
    assert test["confusions"]["correct"] == old["confusions"]["right"]
    assert [one["known_prior"] for one in test["priors"]] == [one["known"] for one in old["priors"]]
    assert test["conformal"]["multiple"] == old["conformal"]["several"]
    assert test["conformal"]["single_correct"] == old["conformal"]["single_right"]
    for one, other in zip(test["worst"], old["worst"], strict=True):
        assert [*one.values()] == [*other.values()]
        assert one["train_images"] == other["train"]
        assert one["confused_with_group"] == other["eater_group"]
    assert not mirrored(row)


def test_heads_are_upgraded_too() -> None:
    before = json.loads((FORMAT1 / "row.json").read_text())
    head = before["val"] | {"eater": [1], "eaten": [0.5]}
    before["val"] |= {"heads": {"cls": head}}
    before["adjusting"]["test"] |= {"heads": {"cls": head}}
    row: Any = row_of(before, source=Path("x"))
    for summary in (row["val"], row["adjustment"]["test"]):
        upgraded = summary["heads"]["cls"]
        assert (upgraded["confused_with"], upgraded["confused_share"]) == ([1], [0.5])
        assert upgraded["scores"]["balanced"] == head["balanced"]
        assert not set(keys(upgraded)) & OLD


def test_a_row_of_the_current_format_stays_as_it_is() -> None:
    row = row_of(json.loads((FORMAT1 / "row.json").read_text()), source=Path("x"))
    assert row_of(row, source=Path("x")) == row


@pytest.mark.parametrize("plan", ["digits_lt_demo", "plankton_auto", "deit_lt_cifar10_lt"])
def test_committed_results_are_read(plan: str) -> None:
    paths = sorted((ROOT / "benchmarks" / "results" / plan).glob("*.json"))
    assert paths
    for path in paths:
        before = json.loads(path.read_text(encoding="utf-8"))["row"]
        row = row_of(before, source=path)
        assert not set(keys(row)) & OLD
        assert row["recipe"] != "deit_lt" or row["keywords"]["crop"] == "part", "as it was then"
        for name in set(EARLIER.get(row["recipe"], {})) - set(before["keywords"]):
            del row["keywords"][name]
        assert [*leaves(row)][1:] == [*leaves(before)][1:]  # but for the format


def test_evaluations_are_read_in_both_formats_and_checked(tmp_path: Path) -> None:
    row = json.loads((FORMAT1 / "row.json").read_text())
    old: dict[str, Any] = {"data": "moths", "hash": "f" * 64, "tta": "flip", "versions": {}}
    old |= {"format": 1, "val": None, "test": row["test"]}
    path = tmp_path / "eval-moths-flip.json"
    path.write_text(json.dumps(old))
    (evaluation,) = read_evaluations(tmp_path)
    test = evaluation["test"]
    assert test is not None
    assert test["scores"]["balanced"] == row["test"]["balanced"]
    assert "eater" in row["test"]
    assert "confused_with" in test
    write_document(path, evaluation)
    assert read_evaluations(tmp_path) == [{**evaluation, "format": FORMAT}]
    path.write_text(json.dumps({**evaluation, "tta": 3, "format": FORMAT}))
    message = r"a string as tta, got a number in .*delete it and run"
    with pytest.raises(LongtailError, match=message):
        read_evaluations(tmp_path)
