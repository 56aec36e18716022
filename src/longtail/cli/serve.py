"""`longtail serve`: a web page to try a run, and a JSON API."""

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
        str,
        typer.Option(help="The address to listen on; by default only this machine can connect."),
    ] = "127.0.0.1",
    port: Annotated[
        int, typer.Option(min=0, max=65535, help="The port; 0 picks a free one.")
    ] = 8000,
    max_megabytes: Annotated[
        float, typer.Option(help="The largest accepted upload in megabytes.")
    ] = 10.0,
    device: flags.Device = "auto",
    trust: flags.Trust = False,
) -> None:
    """Try a finished run in the browser: upload an image, see its classes and a saliency map.

    Stop it with Ctrl-C.
    """
    missing = [
        name
        for name in ("fastapi", "uvicorn", "python_multipart")
        if importlib.util.find_spec(name) is None
    ]
    if missing:
        raise MissingExtra(f"serving needs {', '.join(missing)}: run pip install 'longtail[serve]'")
    listening = _socket(host, port)
    with listening:
        import uvicorn

        from longtail.runs import load
        from longtail.serve.app import create

        app = create(load(run, device=device, trust=trust), megabytes=max_megabytes)
        address = f"http://{f'[{host}]' if ':' in host else host}:{listening.getsockname()[1]}"
        if not _is_loopback(host):
            tables.warn(
                f"anyone who can connect to {host} can use this network: there is no authentication"
            )
        tables.say(f"serving {run} at {address} (stop with Ctrl-C)")
        tables.next_step(f"open {address}", f"curl -F image=@photo.jpg {address}/predict")
        # Refuse more requests than this: each may hold an upload in memory.
        settings = uvicorn.Config(
            app, log_level="warning", limit_concurrency=32, server_header=False
        )
        with contextlib.suppress(KeyboardInterrupt):
            uvicorn.Server(settings).run(sockets=[listening])


def _socket(host: str, port: int) -> socket.socket:
    """Bind the port before loading the network, so that a port in use fails at once."""
    try:
        family = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0][0]
        # It listens already, so early requests wait instead of failing
        return socket.create_server((host, port), family=family)
    except OSError as error:
        raise LongtailError(
            f"cannot listen on {host}, port {port} ({error.strerror}): pass another --port"
        ) from error


def _is_loopback(host: str) -> bool:
    try:
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
