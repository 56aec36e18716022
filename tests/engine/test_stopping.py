"""Signals become a request, and only while someone listens."""

import os
import signal
import threading

import pytest

from longtail.engine.stopping import Request, listening


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_is_a_request_once_and_the_old_handler_comes_back(number: signal.Signals) -> None:
    before = signal.getsignal(number)
    with listening() as request:
        assert not request.made
        os.kill(os.getpid(), number)
        assert request.made
        assert signal.getsignal(number) in (
            signal.SIG_DFL,
            signal.default_int_handler,
        ), "a second signal means now"
    assert signal.getsignal(number) is before


def test_other_threads_cannot_listen_and_do_not_fail() -> None:
    seen: list[Request] = []

    def work() -> None:
        with listening() as request:
            seen.append(request)

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert not seen[0].made
