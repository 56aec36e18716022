"""HTTP connections with time limits, so that silent or slow ones cannot keep others out."""

from __future__ import annotations

import asyncio
import math
from typing import Any

from uvicorn.protocols.http.h11_impl import H11Protocol

HEADERS = 10.0
"""Seconds in which a connection must send the headers of a request."""

BODY = 60.0
"""Seconds in which it must send all of the body after that."""

CONNECTIONS = 256
"""Connections at the same time; beyond that, the one that has waited longest is closed."""

_EVERY = 0.5  # seconds between two checks of a connection


class TimedProtocol(H11Protocol):
    """Closes connections that do not send a complete request in time.

    uvicorn limits only the time between two requests: a connection that sends nothing, or one byte
    a minute, would stay for ever.
    """

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._state: tuple[object, bool] = (None, False)
        self._since = self.loop.time()
        others: Any = self.connections
        waiting = [one for one in others if isinstance(one, TimedProtocol) and one.is_waiting()]
        if len(others) > CONNECTIONS and waiting:
            min(waiting, key=lambda one: one._since).transport.abort()
        self._check()

    def is_waiting(self) -> bool:
        """Whether no request has arrived since the connection or the last response."""
        return self.cycle is None or self.cycle.response_complete

    def _check(self) -> None:
        if self.transport.is_closing():
            return
        state = (self.cycle, self.is_waiting())
        if state != self._state:
            self._state, self._since = state, self.loop.time()
        limit = HEADERS if self.is_waiting() else BODY if self.cycle.more_body else math.inf
        if self.loop.time() - self._since > limit:
            self.transport.abort()
        else:
            self.loop.call_later(_EVERY, self._check)
