"""The live line: throttled, short enough for the terminal, silent in other processes."""

import io

import pytest

from longtail import processes
from longtail.core import Clock
from longtail.engine.display import Display


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_the_line_says_where_training_is(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [100.0]
    monkeypatch.setattr("longtail.engine.display.time.monotonic", lambda: now[0])
    monkeypatch.setenv("COLUMNS", "200")
    terminal = Terminal()
    display = Display("finetune", stream=terminal)
    display.show(Clock(0, 100, 0, 10), {"terms/class": 2.0}, lr=0.1, images=64)
    assert not display.due()
    now[0] += 10
    assert display.due()
    display.show(Clock(20, 100, 2, 10), {"terms/class": 1.5, "notes/n": 3.0}, lr=0.05, images=64)
    line = terminal.getvalue().split("\r\x1b[2K")[-1]
    assert "epoch 3/10  class 1.500  lr 0.05  128 images/s, 40 s left" in line
    assert "notes" not in line


def test_a_narrow_terminal_gets_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "40")
    terminal = Terminal()
    Display("finetune", stream=terminal).show(
        Clock(0, 100, 0, 10), {"terms/class": 2.0}, lr=0.1, images=64
    )
    assert len(terminal.getvalue().removeprefix("\r\x1b[2K")) < 40


def test_short_epochs_do_not_flood_the_screen(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [100.0]
    monkeypatch.setattr("longtail.engine.display.time.monotonic", lambda: now[0])
    stream = io.StringIO()
    display = Display("finetune", stream=stream)
    for epoch in range(10):
        display.milestone(f"epoch {epoch}", final=epoch == 9)
        now[0] += 4
    assert stream.getvalue().splitlines() == ["epoch 0", "epoch 3", "epoch 6", "epoch 9"]


def test_other_processes_print_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(processes, "rank", lambda: 1)
    stream = io.StringIO()
    display = Display("finetune", stream=stream)
    assert not display.due()
    display.say("hello")
    assert not stream.getvalue()
