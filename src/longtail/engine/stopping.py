"""Stopping a run with SIGTERM or Ctrl-C, which saves first."""

from __future__ import annotations

import contextlib
import signal
import threading
from collections.abc import Iterator
from types import FrameType


class Stopped(Exception):
    """Training was stopped and is saved. The message says how to continue."""


class Request:
    """A signal handler that records the request to stop in `made`."""

    def __init__(self) -> None:
        self.made = False

    def __call__(self, number: int, frame: FrameType | None) -> None:
        self.made = True
        # The second signal stops at once
        signal.signal(
            number, signal.SIG_DFL if number == signal.SIGTERM else signal.default_int_handler
        )


@contextlib.contextmanager
def listening() -> Iterator[Request]:
    """Turn SIGTERM and Ctrl-C into a request that the training loop checks after each step."""
    request = Request()
    if threading.current_thread() is not threading.main_thread():
        yield request
        return
    previous = {
        number: signal.signal(number, request) for number in (signal.SIGTERM, signal.SIGINT)
    }
    try:
        yield request
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)
