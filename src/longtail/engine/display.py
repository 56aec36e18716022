"""One live line on the terminal: where training is, how it goes, how long it will take."""

from __future__ import annotations

import shutil
import sys
import time
from collections.abc import Mapping
from typing import TextIO

from longtail import processes
from longtail.core import Clock

REFRESH = 0.2  # seconds between two updates of the live line
MILESTONES = 10.0  # seconds between two lines that stay
QUIET = 20.0  # seconds between two lines where nobody is watching (a log file)


def duration(seconds: float) -> str:
    """Say a time as people do.

    >>> [duration(s) for s in (9, 95, 7300)]
    ['9 s', '1 min 35 s', '2 h 01 min']
    """
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60:02d} s"
    return f"{whole // 3600} h {whole % 3600 // 60:02d} min"


class Display:
    """Shows the newest state of a stage, at most five times a second, in the first process only."""

    def __init__(self, stage: str, *, stream: TextIO | None = None) -> None:
        self.stage = stage
        self.stream = stream or sys.stderr
        self.live = self.stream.isatty()
        self.silent = processes.rank() != 0
        self._next = self._milestone = 0.0
        self._began: tuple[float, int] | None = None

    def due(self) -> bool:
        """Whether it is time to show something. Cheap: asked at every step."""
        return not self.silent and time.monotonic() >= self._next

    def show(self, clock: Clock, means: Mapping[str, float], *, rate: float, images: float) -> None:
        """Replace the line. `images` is how many each step has seen."""
        now = time.monotonic()
        self._next = now + (REFRESH if self.live else QUIET)
        if self._began is None:
            self._began = (now, clock.step)
        seconds, steps = now - self._began[0], clock.step - self._began[1]
        speed = "..."
        if steps:
            speed = (
                f"{images * steps / seconds:,.0f} images/s,"
                f" {duration((clock.steps - clock.step - 1) * seconds / steps)} left"
            )
        done = (clock.step + 1) / clock.steps
        terms = "  ".join(
            f"{name.partition('/')[2]} {value:.3f}"
            for name, value in means.items()
            if name.startswith("terms/")
        )
        bar = "█" * int(20 * done) + "░" * (20 - int(20 * done))
        self._line(
            f"{self.stage} {bar} {done:4.0%}  epoch {clock.epoch + 1}/{clock.epochs}  {terms}  rate"
            f" {rate:.2g}  {speed}"
        )

    def milestone(self, text: str, *, final: bool) -> None:
        """Print a line that stays, unless the last one did so a moment ago: short epochs would
        flood the screen.
        """
        if final or time.monotonic() >= self._milestone:
            self._milestone = time.monotonic() + MILESTONES
            self.say(text)

    def say(self, text: str) -> None:
        """Print a line that stays."""
        if not self.silent:
            self.stream.write(("\r\x1b[2K" if self.live else "") + text + "\n")
            self.stream.flush()

    def _line(self, text: str) -> None:
        if self.live:
            self.stream.write("\r\x1b[2K" + text[: shutil.get_terminal_size().columns - 1])
        else:
            self.stream.write(text + "\n")
        self.stream.flush()
