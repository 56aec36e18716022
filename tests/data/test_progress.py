from __future__ import annotations

import io
import sys
import threading

import pytest

from longtail import processes
from longtail.data import progress
from longtail.data.progress import Bar, map_threaded


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_every_index_once_whatever_the_chunks(capsys: pytest.CaptureFixture[str]) -> None:
    seen: list[int] = []
    lock = threading.Lock()

    def call(index: int) -> None:
        with lock:
            seen.append(index)

    map_threaded(call, range(1000), what="reading")
    map_threaded(call, [], what="reading")
    assert sorted(seen) == list(range(1000))
    assert capsys.readouterr().err == ""  # over in a moment


def test_errors_are_not_swallowed() -> None:
    def call(index: int) -> None:
        raise ValueError(f"bad {index}")

    with pytest.raises(ValueError, match="bad"):
        map_threaded(call, range(3), what="reading")


def test_a_log_gets_a_line_now_and_then(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(progress, "QUIET", 0.0)
    with Bar("reading images", 2000) as bar:
        bar.advance(1500)
    assert capsys.readouterr().err == "reading images: 1,500 of 2,000\n"


def test_a_terminal_gets_a_bar_that_goes_away(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(progress, "MOMENT", 0.0)
    monkeypatch.setenv("TERM", "xterm")
    screen = Terminal()
    monkeypatch.setattr(sys, "stderr", screen)
    with Bar("reading images", 10) as bar:
        bar.advance(4)
        bar.advance(6)
    assert "reading images" in screen.getvalue()
    assert "10/10" in screen.getvalue()


def test_other_processes_print_nothing(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(progress, "QUIET", 0.0)
    monkeypatch.setattr(processes, "rank", lambda: 1)
    with Bar("reading images", 2) as bar:
        bar.advance(1)
    assert capsys.readouterr().err == ""
