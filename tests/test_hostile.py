"""The runner of hostile commands recognises every way in which one can end badly."""

from __future__ import annotations

import os
from pathlib import Path

import hostile
import pytest
from hostile_cases import Case, Place, Running


def problems(case: Case, code: int | None, stderr: str, folder: Path) -> list[str]:
    return hostile.problems_of(case, Place(folder, folder), code, stderr, stderr)


def test_an_end_as_declared_is_handled(tmp_path: Path) -> None:
    case = Case("a", ("list",), message="no file")
    assert problems(case, 2, "error: no file at x: give another\n", tmp_path) == []


@pytest.mark.parametrize(
    ("code", "stderr", "expected"),
    [
        (1, "error: no file", "exit code 2, got 1"),
        (None, "error: no file", "exit code 2, got None"),
        (2, "error: something else", "a message like 'no file'"),
        (2, "Traceback (most recent call last):\nerror: no file", "most recent call last"),
        (2, "there is no file", "begins with `error: `"),
        (2, "error: no file" + 2000 * "x", "2,007 characters"),
    ],
)
def test_other_ends_are_failures(
    code: int | None, stderr: str, expected: str, tmp_path: Path
) -> None:
    (problem,) = problems(Case("a", ("list",), message="no file"), code, stderr, tmp_path)
    assert expected in problem


def test_a_failed_check_is_a_failure(tmp_path: Path) -> None:
    def check(place: Place, output: str) -> None:
        raise AssertionError("the folder is empty")

    case = Case("a", ("list",), code=0, check=check)
    assert problems(case, 0, "", tmp_path) == ["AssertionError: the folder is empty"]


def test_what_was_there_must_be_there(tmp_path: Path) -> None:
    for name in ("kept", "gone", "changed", "link", "report.html"):
        (tmp_path / name).write_text(name)
    os.mkfifo(tmp_path / "pipe")
    before = hostile.snapshot(tmp_path)
    (tmp_path / "gone").unlink()
    (tmp_path / "changed").write_text("other")
    (tmp_path / "report.html").write_text("other")
    (tmp_path / "link").unlink()
    (tmp_path / "link").symlink_to("kept")
    (tmp_path / "new").write_text("")
    lost = hostile.lost(before, hostile.snapshot(tmp_path), ["report.*"])
    assert lost == ["changed was changed", "gone was lost", "link was changed"]


def test_a_command_runs_in_its_folder_and_within_the_limits(tmp_path: Path) -> None:
    case = Case("help", ("show", "nothing"), message="unknown recipe", setup=lambda p: p.write("a"))
    result = hostile.run_case(case, tmp_path / "case", tmp_path)
    assert result.handled, result
    assert result.code == 2
    assert not (tmp_path / "case").exists()

    def never(place: Place, running: Running) -> None:
        running.wait_for("words that it never prints", seconds=0.1)

    waiting = Case("waits", ("list",), code=0, during=never)
    assert "never printed" in hostile.run_case(waiting, tmp_path / "case", tmp_path).reason
    assert (
        "more than 0.01 s"
        in hostile.run_case(case, tmp_path / "case", tmp_path, seconds=0.01).reason
    )


def test_the_cases_have_names_verbs_and_points() -> None:
    from longtail.cli.main import VERBS

    for case in hostile.cases():
        assert case.point in (0, *hostile.POINTS), case.name
        assert case.verb in VERBS or case.code != 0, case.name
