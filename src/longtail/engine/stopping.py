"""Asking a run to stop: SIGTERM and Ctrl-C save first."""

from __future__ import annotations

import contextlib
import signal
import threading
from collections.abc import Iterator
from types import FrameType


class Stopped(Exception):
    """Training was asked to stop and has saved. The message says how to continue."""


class Request:
    """Becomes true when someone asks to stop."""

    def __init__(self) -> None:
        self.made = False

    def __call__(self, number: int, frame: FrameType | None) -> None:
        self.made = True
        # A second time means now
        signal.signal(
            number, signal.SIG_DFL if number == signal.SIGTERM else signal.default_int_handler
        )


@contextlib.contextmanager
def listening() -> Iterator[Request]:
    """Turn SIGTERM and Ctrl-C into a request that the loop reads between two steps."""
    request = Request()
    if threading.current_thread() is not threading.main_thread():
        yield request
        return
    before = {number: signal.signal(number, request) for number in (signal.SIGTERM, signal.SIGINT)}
    try:
        yield request
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
