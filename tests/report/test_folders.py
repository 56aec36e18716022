from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from longtail.records.predictions import read_predictions
from longtail.report.folders import read_folder
from longtail.scoring.long_tail import detailed

from .conftest import GROUPS, write_examples

Finished = Callable[..., Path]


def test_a_folder_is_read_completely(finished: Finished) -> None:
    folder = finished("a")
    write_examples(folder)
    (folder / "analysis" / "more.npz").touch()
    run = read_folder(folder)
    assert run.classes == ("cat", "dog", "axolotl")
    assert run.members == {"many": (0,), "medium": (1,), "few": (2,)}
    assert (run.group(2), run.group(7)) == ("few", "")
    assert [line["epoch"] for line in run.journals["train"]] == [1, 2, 2, 3, 4]
    assert run.split == "test"
    assert run.predictions is not None
    assert len(run.predictions.target) == 60
    assert run.examples is not None
    assert [path.name for path in run.analyses] == ["more.npz"]
    assert run.missing == ()


def test_the_row_of_an_earlier_version_is_completed_from_the_predictions(
    finished: Finished,
) -> None:
    folder = finished("a")
    row = json.loads((folder / "row.json").read_text())
    for new in ("reliability", "recall_low", "confusions", "macro_f1"):
        row["test"].pop(new, None)
    (folder / "row.json").write_text(json.dumps(row))
    run = read_folder(folder)
    predictions, _ = read_predictions(folder / "predictions" / "test.npz")
    complete = detailed(
        predictions.logits["logits"],
        predictions.target,
        groups=GROUPS,
        counts=np.array([90, 18, 9]),
    )
    assert run.summary == {**complete, **row["test"]}
    assert run.summary["confusions"]["groups"] == ["many", "medium", "few"]


def test_what_is_missing_is_named_with_what_to_do(finished: Finished) -> None:
    folder = finished("a", predictions=False)
    (folder / "model" / "spec.json").unlink()
    (folder / "train" / "journal.jsonl").unlink()
    run = read_folder(folder)
    assert run.classes == ("class 0", "class 1", "class 2")
    words = "\n".join(run.missing)
    assert f"predictions/test.npz is not in the folder. `longtail eval {folder} --rewrite`" in words
    assert "model/spec.json" in words
    assert "train/journal.jsonl" in words
    assert "analysis/examples.npz" in "\n".join(read_folder(finished("b")).missing)


def test_examples_are_not_missed_where_the_tail_has_no_mistakes(finished: Finished) -> None:
    run = read_folder(finished("a", right=(0.5, 0.5, 1.0)))
    assert run.predictions is not None
    assert (run.predictions.predicted != run.predictions.target).any()
    assert run.missing == ()


def test_validation_stands_in_for_a_test_that_there_is_not(finished: Finished) -> None:
    numbers = json.loads((finished("a") / "row.json").read_text())["test"]
    run = read_folder(finished("b", test=None, val=numbers, predictions=False))
    assert run.split == "val"
    assert run.summary is not None
    assert read_folder(finished("c", test=None, predictions=False)).summary is None


def test_a_journal_cut_short_by_a_crash_loses_its_last_line_only(finished: Finished) -> None:
    folder = finished("a")
    path = folder / "train" / "journal.jsonl"
    complete = path.read_text()
    path.write_text(complete + '{"kind": "ep')
    assert len(read_folder(folder).journals["train"]) == 5
    path.write_text('{"kind": "ep\n' + complete)
    with pytest.raises(ValueError, match=r"line 1 of .*journal\.jsonl"):
        read_folder(folder)


def test_broken_files_are_refused_by_name(finished: Finished, tmp_path: Path) -> None:
    folder = finished("a")
    (folder / "analysis" / "examples.npz").write_bytes(b"PK no archive")
    with pytest.raises(ValueError, match=r"expected arrays.*examples\.npz"):
        read_folder(folder)
    np.savez(folder / "analysis" / "examples.npz", image=np.array([object()], dtype=object))
    with pytest.raises(ValueError, match=r"expected arrays.*examples\.npz"):
        read_folder(folder)
    (folder / "recipe.json").write_text("[]")
    with pytest.raises(ValueError, match=r"expected a JSON object.*recipe\.json"):
        read_folder(folder)
    (folder / "recipe.json").write_text("{")
    with pytest.raises(ValueError, match=r"expected JSON.*recipe\.json"):
        read_folder(folder)
