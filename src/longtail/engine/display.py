"""The progress line on the terminal: step, losses, speed and remaining time."""

from __future__ import annotations

import shutil
import sys
import time
from collections.abc import Mapping
from typing import TextIO

from longtail import processes
from longtail.core import Clock
from longtail.errors import warn

REFRESH = 0.2  # seconds between two updates of the progress line
MILESTONES = 10.0  # seconds between two lines that stay
LONG = 30 * 86_400.0  # seconds that a stage may take without a warning
QUIET = 20.0  # seconds between two lines if the output is not a terminal (a log file)


def duration(seconds: float) -> str:
    """Format a duration for people.

    >>> [duration(s) for s in (9, 95, 7300, 900_000, 4e9)]
    ['9 s', '1 min 35 s', '2 h 01 min', '10 days', '127 years']
    """
    rounded = round(seconds)
    if rounded < 60:
        return f"{rounded} s"
    if rounded < 3600:
        return f"{rounded // 60} min {rounded % 60:02d} s"
    if rounded < 7 * 86_400:
        return f"{rounded // 3600} h {rounded % 3600 // 60:02d} min"
    days = round(rounded / 86_400)
    return f"{days:,} days" if days < 730 else f"{round(days / 365.25):,} years"


class Display:
    """Shows the progress of a stage, at most five times a second, in the first process only."""

    def __init__(self, stage: str, *, stream: TextIO | None = None) -> None:
        self.stage = stage
        self.stream = stream or sys.stderr
        self.live = self.stream.isatty()
        self.silent = processes.rank() != 0
        self._next = self._milestone = 0.0
        self._started: tuple[float, int] | None = None
        self._warned = False

    def due(self) -> bool:
        """Whether it is time to update the line. Cheap: called at every step."""
        return not self.silent and time.monotonic() >= self._next

    def show(self, clock: Clock, means: Mapping[str, float], *, lr: float, images: float) -> None:
        """Update the progress line; `images` is the number of images of each step."""
        now = time.monotonic()
        self._next = now + (REFRESH if self.live else QUIET)
        if self._started is None:
            self._started = (now, clock.step)
        seconds, steps = now - self._started[0], clock.step - self._started[1]
        speed = "..."
        if steps:
            left = (clock.steps - clock.step - 1) * seconds / steps
            speed = f"{images * steps / seconds:,.0f} images/s, {duration(left)} left"
            if left > LONG and not self._warned:
                self._warned = True
                warn(f"stage {self.stage!r} would take another {duration(left)} at this speed")
        done = (clock.step + 1) / clock.steps
        terms = "  ".join(
            f"{name.partition('/')[2]} {value:.3f}"
            for name, value in means.items()
            if name.startswith("terms/")
        )
        bar = "█" * int(20 * done) + "░" * (20 - int(20 * done))
        self._line(
            f"{self.stage} {bar} {done:4.0%}  epoch {clock.epoch + 1}/{clock.epochs}  {terms}  lr"
            f" {lr:.2g}  {speed}"
        )

    def milestone(self, text: str, *, final: bool) -> None:
        """Print a permanent line, unless the last one was printed a moment ago.

        Short epochs would flood the screen.
        """
        if final or time.monotonic() >= self._milestone:
            self._milestone = time.monotonic() + MILESTONES
            self.say(text)

    def say(self, text: str) -> None:
        """Print a permanent line."""
        if not self.silent:
            self.stream.write(("\r\x1b[2K" if self.live else "") + text + "\n")
            self.stream.flush()

    def _line(self, text: str) -> None:
        if self.live:
            self.stream.write("\r\x1b[2K" + text[: shutil.get_terminal_size().columns - 1])
        else:
            self.stream.write(text + "\n")
        self.stream.flush()
