"""Messages are silent in other processes, and names cannot command the terminal."""

from __future__ import annotations

import pytest

from longtail.cli import tables


def test_other_processes_are_silent(
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
