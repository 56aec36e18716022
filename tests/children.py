"""Processes that end with the test that started them, however it ends."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any


@contextmanager
def ended(*processes: subprocess.Popen[Any]) -> Iterator[None]:
    """Kill these processes afterwards, and wait for them.

    A process that nobody waits for is reported as a ResourceWarning, in whichever test is running.
    """
    try:
        yield
    finally:
        for process in processes:
            process.kill()
            process.wait()
            if process.stdin is not None:
                process.stdin.close()
