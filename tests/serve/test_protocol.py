"""Connections that send nothing, or slowly, are closed; others are served meanwhile."""

from __future__ import annotations

import asyncio
import socket
import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest
import uvicorn

from longtail.serve import protocol
from longtail.serve.protocol import TimedProtocol

REQUEST = b"GET / HTTP/1.1\r\nHost: localhost\r\n"


async def app(scope: Any, receive: Any, send: Any) -> None:
    """Read the body, take a while, answer."""
    while (await receive()).get("more_body"):
        pass
    await asyncio.sleep(0.8 if scope["path"] == "/slow" else 0)
    await send(
        {"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"2")]}
    )
    await send({"type": "http.response.body", "body": b"ok"})


@pytest.fixture
def port(monkeypatch: pytest.MonkeyPatch) -> Iterator[int]:
    for name, value in {"HEADERS": 0.4, "BODY": 0.4, "CONNECTIONS": 8, "_EVERY": 0.05}.items():
        monkeypatch.setattr(protocol, name, value)
    listening = socket.create_server(("127.0.0.1", 0))
    settings = uvicorn.Config(app, http=TimedProtocol, log_level="critical", lifespan="off")
    server = uvicorn.Server(settings)
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listening]})
    thread.start()
    while not server.started:
        assert thread.is_alive(), "the server did not start"
        time.sleep(0.01)
    yield listening.getsockname()[1]
    server.should_exit = True
    thread.join()
    listening.close()


def connect(port: int, data: bytes = b"") -> socket.socket:
    connection = socket.create_connection(("127.0.0.1", port), timeout=5)
    connection.sendall(data)
    return connection


def reply(connection: socket.socket) -> bytes:
    """What arrives until the connection is closed, or the first part of it."""
    try:
        return connection.recv(1000)
    except ConnectionResetError:
        return b""


@pytest.mark.parametrize(
    "data",
    [b"", REQUEST, b"POST / HTTP/1.1\r\nHost: localhost\r\nContent-Length: 100\r\n\r\nslow"],
    ids=["silent", "headers", "body"],
)
def test_an_unfinished_request_is_closed(port: int, data: bytes) -> None:
    with connect(port, data) as connection:
        assert reply(connection) == b""


def test_the_second_request_of_a_connection_is_timed_too(port: int) -> None:
    with connect(port, REQUEST + b"\r\n") as connection:
        received = reply(connection)
        while not received.endswith(b"ok"):  # the body may come by itself
            received += reply(connection)
        assert b"200 OK" in received
        connection.sendall(b"GET / HT")
        assert reply(connection) == b""


def test_a_slow_response_is_not_cut(port: int) -> None:
    with connect(port, b"GET /slow HTTP/1.1\r\nHost: localhost\r\n\r\n") as connection:
        assert b"200 OK" in reply(connection)


def test_idle_connections_block_nobody(port: int) -> None:
    idle = [connect(port) for _ in range(40)]
    with connect(port, REQUEST + b"\r\n") as connection:
        assert b"200 OK" in reply(connection)
    for connection in idle:
        connection.close()
