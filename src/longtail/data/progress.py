"""How far a long reading is: a bar on a terminal, a line now and then in a log, nothing where it
takes only a moment.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from types import TracebackType
from typing import Self

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from longtail import processes

MOMENT = 1.0  # seconds before anything is shown
QUIET = 20.0  # seconds between two lines where nobody is watching
CHUNK = 64


class Bar:
    """Counts what is done, and shows it in the first process only, on stderr."""

    def __init__(self, what: str, total: int) -> None:
        self.what, self.total, self.done = what, total, 0
        self._console = Console(file=sys.stderr)
        self._bar: Progress | None = None
        self._next = time.monotonic() + (MOMENT if self._console.is_terminal else QUIET)

    def __enter__(self) -> Self:
        return self

    def advance(self, steps: int) -> None:
        """Say that so many more are done."""
        self.done += steps
        if self._bar is not None:
            self._bar.update(self._bar.task_ids[0], completed=self.done)
        elif time.monotonic() >= self._next and processes.rank() == 0:
            self._show()

    def _show(self) -> None:
        if not self._console.is_terminal:
            self._next = time.monotonic() + QUIET
            print(f"{self.what}: {self.done:,} of {self.total:,}", file=sys.stderr, flush=True)
            return
        columns = (
            TextColumn("{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TimeRemainingColumn(),
        )
        self._bar = Progress(*columns, console=self._console, transient=True)
        self._bar.add_task(self.what, total=self.total, completed=self.done)
        self._bar.start()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._bar is not None:
            self._bar.stop()


def map_threaded(
    look: Callable[[int], None],
    indices: Sequence[int],
    *,
    what: str,
    then: Callable[[Sequence[int]], None] | None = None,
) -> None:
    """Call `look` with every index, in threads, and show how far it is; `then` hears, in this
    thread, which are done.
    """

    def some(start: int) -> Sequence[int]:
        chunk = indices[start : start + CHUNK]
        for index in chunk:
            look(index)
        return chunk

    with Bar(what, len(indices)) as bar, ThreadPoolExecutor(min(16, os.cpu_count() or 1)) as pool:
        for done in pool.map(some, range(0, len(indices), CHUNK)):
            bar.advance(len(done))
            if then is not None:
                then(done)
