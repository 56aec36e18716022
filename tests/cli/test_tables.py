"""Messages are silent in other processes, and names cannot command the terminal."""

from __future__ import annotations

import pytest
from rich.console import Console

from longtail.cli import tables


def test_other_processes_print_nothing(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RANK", "1")
    tables.say("something")
    assert capsys.readouterr().out == ""


def test_names_cannot_command_the_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    evil = "cat\x1b[2J"
    tables.say(evil)
    tables.warn(evil)
    tables.next_step(evil)
    tables.pairs(evil, {evil: evil})
    tables.grid([evil], [[evil]], title=evil)
    printed = "".join(capsys.readouterr())
    assert "\x1b" not in printed
    assert printed.count(r"cat\x1b[2J") == 9


def test_a_wide_table_is_printed_in_parts_that_repeat_the_first_column(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    columns = ["row", "state", *(f"column{number}" for number in range(8))]
    rows = [["a-long-name-of-a-row", "finished", *map(str, range(8))]]
    monkeypatch.setattr(tables, "terminal", lambda **_: Console(width=60))
    tables.wide_grid(columns, rows, left=2)
    lines = capsys.readouterr().out.splitlines()
    assert max(map(len, lines)) <= 60
    parts = [line for line in lines if line.startswith("a-long-name-of-a-row")]
    assert len(parts) == 3
    shown = " ".join(part.removeprefix("a-long-name-of-a-row") for part in parts)
    assert shown.split() == ["finished", *map(str, range(8))]
