from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any
from urllib.request import urlopen

import pytest
from finished import finished


def test_it_serves_until_it_is_stopped(tmp_path: Path) -> None:
    words = [
        sys.executable,
        "-m",
        "longtail.cli.main",
        "serve",
        str(finished(tmp_path)),
        "--port",
        "0",
        "--device",
        "cpu",
    ]
    environment = {**os.environ, "PYTHONUNBUFFERED": "1"}
    with subprocess.Popen(
        words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment
    ) as server:
        try:
            assert server.stdout is not None
            assert server.stderr is not None
            line = server.stdout.readline()
            address = next(
                (word for word in line.split() if word.startswith("http://127.0.0.1:")), None
            )
            assert address is not None, server.stderr.read()
            assert json.load(urlopen(f"{address}/health"))["status"] == "ok"
            server.send_signal(signal.SIGINT)
            assert server.wait(60) == 0
            assert "Traceback" not in server.stderr.read()
        finally:
            server.kill()


def test_a_taken_port_is_reported_at_once(longtail: Any, tmp_path: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        result = longtail("serve", tmp_path, "--port", taken.getsockname()[1])
    assert result.code == 2
    assert "cannot listen on" in result.err
    assert "pass another --port" in result.err


@pytest.mark.parametrize(
    ("host", "warned"), [("127.0.0.1", False), ("0.0.0.0", True), ("localhost", False)]
)
def test_a_public_host_is_warned_of(
    longtail: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, host: str, warned: bool
) -> None:
    monkeypatch.setattr("uvicorn.Server.run", lambda self, sockets: None)
    result = longtail("serve", finished(tmp_path), "--port", 0, "--host", host, "--device", "cpu")
    assert result.code == 0
    assert ("warning: anyone" in result.err) == warned
    assert f"http://{host}:" in result.out


def test_a_missing_part_is_named(
    longtail: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    result = longtail("serve", tmp_path)
    assert result.code == 2
    assert "pip install 'longtail[serve]'" in result.err
    assert longtail("serve", tmp_path, "--max-megabytes", "x").code == 2


@pytest.mark.parametrize("host", ["256.1.1.1", "no such host", "8.8.8.8", "x" * 300])
def test_a_wrong_host_is_not_blamed_on_the_port(longtail: Any, tmp_path: Path, host: str) -> None:
    result = longtail("serve", tmp_path, "--host", host, "--port", 0)
    assert result.code == 2
    assert "pass another --host" in result.err
    assert "--port" not in result.err
