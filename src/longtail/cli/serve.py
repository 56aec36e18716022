"""`longtail serve`: a web page to try a run, and a JSON API."""

from __future__ import annotations

import contextlib
import errno
import importlib.util
import ipaddress
import socket
from pathlib import Path
from typing import Annotated

import typer

from longtail.cli import flags, tables
from longtail.errors import LongtailError, MissingExtra

_NO_ADDRESS = (errno.EADDRNOTAVAIL, socket.EAI_NONAME, socket.EAI_AGAIN, socket.EAI_FAMILY)


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
    allow_host: Annotated[
        list[str] | None,
        typer.Option(
            help="A host name to accept in requests, such as that of a proxy; may be repeated."
            " Addresses, localhost and --host are always accepted."
        ),
    ] = None,
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
        from longtail.serve.protocol import TimedProtocol

        loaded = load(run, device=device, trust=trust)
        hosts = (host, socket.gethostname(), *(allow_host or ()))
        app = create(loaded, megabytes=max_megabytes, hosts=hosts)
        address = f"http://{f'[{host}]' if ':' in host else host}:{listening.getsockname()[1]}"
        if not _is_loopback(host):
            tables.warn(
                f"anyone who can connect to {host} can use this network: there is no authentication"
            )
        tables.say(f"serving {run} at {address} (stop with Ctrl-C)")
        tables.next_step(f"open {address}", f"curl -F image=@photo.jpg {address}/predict")
        settings = uvicorn.Config(app, http=TimedProtocol, log_level="warning", server_header=False)
        with contextlib.suppress(KeyboardInterrupt):
            uvicorn.Server(settings).run(sockets=[listening])


def _socket(host: str, port: int) -> socket.socket:
    """Bind the port before loading the network, so that a port in use fails at once."""
    try:
        family = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0][0]
        # It listens already, so early requests wait instead of failing
        return socket.create_server((host, port), family=family)
    # A name that is no name at all is a UnicodeError
    except (OSError, UnicodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "not a host name"
        if not isinstance(error, OSError) or error.errno in _NO_ADDRESS:
            raise LongtailError(
                f"{host!r} is no address of this machine ({reason}): pass another --host, such as"
                " 127.0.0.1, or 0.0.0.0 for all addresses"
            ) from error
        raise LongtailError(
            f"cannot listen on {host}, port {port} ({reason}): pass another --port"
        ) from error


def _is_loopback(host: str) -> bool:
    try:
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
