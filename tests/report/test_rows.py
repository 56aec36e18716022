from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path

import pytest

from longtail.records.documents import FORMAT
from longtail.records.row import Row, read_row
from longtail.report.rows import find_runs, read_rows


def test_a_finished_run(finished: Callable[..., Path]) -> None:
    folder = finished("a", seed=3)
    row = read_row(folder)
    assert row["seed"] == 3
    assert row["folder"] == str(folder)
    of_some = {"adjustment", "epoch_plan", "minutes_before", "operating_point", "unused"}
    assert set(row) == set(Row.__annotations__) - of_some


def refused(folder: Path, *words: str) -> None:
    with pytest.raises(ValueError, match=r"expected .* got|missing") as caught:
        read_row(folder)
    for word in (*words, str(folder)):
        assert re.search(re.escape(word), str(caught.value)), f"{word!r} is not in: {caught.value}"


def test_an_unfinished_run_says_how_to_continue(finished: Callable[..., Path]) -> None:
    folder = finished("a")
    (folder / "row.json").unlink()
    refused(folder, "unfinished", "run the same `longtail train` command again")


def test_folders_that_are_no_runs(tmp_path: Path, finished: Callable[..., Path]) -> None:
    refused(tmp_path / "none", "nothing", "--out")
    (tmp_path / "empty").mkdir()
    refused(tmp_path / "empty", "empty folder")
    (tmp_path / "file").write_text("")
    refused(tmp_path / "file", "a file")
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "holiday.jpg").write_text("")
    refused(tmp_path / "other", "other files")
    run = finished("sweep/a")
    refused(tmp_path / "sweep", "a folder of runs", str(run))


def test_rows_that_cannot_be_read(finished: Callable[..., Path]) -> None:
    refused(finished("newer", format=FORMAT + 1), f"got {FORMAT + 1}", "newer longtail", "upgrade")
    cut = finished("cut")
    (cut / "row.json").write_text('{"format": 1, "rec')
    refused(cut, "expected JSON")
    (cut / "row.json").write_text("[]")
    refused(cut, "expected a JSON object")
    for content in ("{}", '{"format": "one"}'):
        (cut / "row.json").write_text(content)
        refused(cut, "not written by longtail")
    row = json.loads((finished("poor") / "row.json").read_text())
    del row["seed"], row["tta"]
    (cut / "row.json").write_text(json.dumps(row))
    refused(cut, "missing seed, tta")


def test_all_folders_without_a_row_are_named_at_once(
    tmp_path: Path, finished: Callable[..., Path]
) -> None:
    a, b = finished("a"), finished("b", seed=1)
    assert [row["seed"] for row in read_rows([b, a])] == [1, 0]
    (b / "row.json").unlink()
    with pytest.raises(ValueError, match="unfinished") as caught:
        read_rows([a, b, tmp_path / "none"])
    assert str(b) in str(caught.value)
    assert str(tmp_path / "none") in str(caught.value)


def make_runs(folder: Path, *runs: str) -> None:
    for run in runs:
        (folder / run).mkdir(parents=True)
        for name in ("recipe.json", "row.json"):
            (folder / run / name).write_text("{}")


def test_trials_of_a_search_are_not_among_the_runs_of_a_folder(tmp_path: Path) -> None:
    make_runs(tmp_path, "search/trials/001", "search/final/winner-seed=0", "other/trials/001")
    (tmp_path / "search" / "search.json").write_text("{}")
    final, mine = tmp_path / "search/final/winner-seed=0", tmp_path / "other/trials/001"
    assert find_runs([tmp_path / "search"]) == ([final], [])
    assert find_runs([tmp_path / "other"]) == ([mine], []), "somebody's name for a folder"
    trial = tmp_path / "search/trials/001"
    assert find_runs([trial, trial]) == ([trial], [])


def test_prerequisites_are_left_out_and_unfinished_runs_are_named(tmp_path: Path) -> None:
    make_runs(tmp_path, "sweep/first/mgp-seed=0", "sweep/a", "sweep/b")
    (tmp_path / "sweep/b/row.json").unlink()
    assert find_runs([tmp_path / "sweep"]) == ([tmp_path / "sweep/a"], [tmp_path / "sweep/b"])
    assert find_runs([tmp_path / "nowhere"]) == ([tmp_path / "nowhere"], [])
