"""Progress of long operations: a bar on a terminal, occasional lines in a log.

Nothing is shown for short operations.
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
QUIET = 20.0  # seconds between two lines in a log
CHUNK = 64


class Bar:
    """Counts finished steps and shows them on stderr, in the first process only."""

    def __init__(self, what: str, total: int) -> None:
        self.what, self.total, self.done = what, total, 0
        self._console = Console(file=sys.stderr)
        self._bar: Progress | None = None
        self._next = time.monotonic() + (MOMENT if self._console.is_terminal else QUIET)

    def __enter__(self) -> Self:
        return self

    def advance(self, steps: int) -> None:
        """Count `steps` more as done."""
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
    function: Callable[[int], None],
    indices: Sequence[int],
    *,
    what: str,
    then: Callable[[Sequence[int]], None] | None = None,
) -> None:
    """Call a function with every index, in threads, and show the progress.

    `then` is called in the current thread with the indices that are done.
    """

    def call_chunk(start: int) -> Sequence[int]:
        chunk = indices[start : start + CHUNK]
        for index in chunk:
            function(index)
        return chunk

    with Bar(what, len(indices)) as bar, ThreadPoolExecutor(min(16, os.cpu_count() or 1)) as pool:
        for done in pool.map(call_chunk, range(0, len(indices), CHUNK)):
            bar.advance(len(done))
            if then is not None:
                then(done)
