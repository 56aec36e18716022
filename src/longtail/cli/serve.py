"""`longtail serve`: a page where a run can be tried, and a JSON interface for programs."""

from __future__ import annotations

import contextlib
import importlib.util
import ipaddress
import socket
from pathlib import Path
from typing import Annotated

import typer

from longtail.cli import flags, tables
from longtail.errors import LongtailError, MissingExtra


def serve(
    run: Annotated[Path, typer.Argument(help="The folder of a finished run.")],
    host: Annotated[
        str, typer.Option(help="The address to listen on; only this machine reaches the usual one.")
    ] = "127.0.0.1",
    port: Annotated[
        int, typer.Option(min=0, max=65535, help="The port; 0 takes a free one.")
    ] = 8000,
    max_megabytes: Annotated[float, typer.Option(help="The largest upload.")] = 10.0,
    device: flags.Device = "auto",
    trust: flags.Trust = False,
) -> None:
    """Try a finished run in the browser: upload a picture, see its classes and where the network
    looked. Stop it with Ctrl-C.
    """
    missing = [
        name
        for name in ("fastapi", "uvicorn", "python_multipart")
        if importlib.util.find_spec(name) is None
    ]
    if missing:
        raise MissingExtra(
            f"expected {', '.join(missing)} to serve, got none: run pip install 'longtail[serve]'"
        )
    listening = _socket(host, port)
    with listening:
        import uvicorn

        from longtail.runs import load
        from longtail.serve.app import create

        app = create(load(run, device=device, trust=trust), megabytes=max_megabytes)
        address = f"http://{f'[{host}]' if ':' in host else host}:{listening.getsockname()[1]}"
        if not _is_loopback(host):
            tables.warn(
                f"everyone who can reach {host} can ask this network, and nobody is asked for a"
                " password"
            )
        tables.say(f"serving {run} at {address} (stop with Ctrl-C)")
        tables.next_step(f"open {address}", f"curl -F image=@photo.jpg {address}/predict")
        # A queue of more requests than these is refused: each may hold an upload.
        settings = uvicorn.Config(
            app, log_level="warning", limit_concurrency=32, server_header=False
        )
        with contextlib.suppress(KeyboardInterrupt):
            uvicorn.Server(settings).run(sockets=[listening])


def _socket(host: str, port: int) -> socket.socket:
    """Take the port before the network is loaded, so that a taken one is said at once and in words."""
    try:
        family = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0][0]
        # Already listening: whoever is early waits, and is not refused
        return socket.create_server((host, port), family=family)
    except OSError as error:
        raise LongtailError(
            f"expected a free port at {host}, got {port} ({error.strerror}): pass another --port"
        ) from error


def _is_loopback(host: str) -> bool:
    try:
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
