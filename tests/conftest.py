"""One thread for every test: two cores shared by several processes are slower than one. And a
browser, for tests that are marked so.
"""

import os
import shutil
import sys
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, NamedTuple

os.environ.setdefault("OMP_NUM_THREADS", "1")

import pytest
import torch

from longtail.cli.main import run

if TYPE_CHECKING:
    from playwright.sync_api import Browser

torch.set_num_threads(1)

QUIET = (
    "--no-sandbox",  # containers run as root
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
)


@pytest.fixture(scope="session")
def browser() -> "Iterator[Browser]":
    """The Chromium of the machine, headless; without one, tests that need it are skipped."""
    executable = next(
        (
            path
            for name in ("chromium", "chromium-browser", "google-chrome")
            if (path := shutil.which(name))
        ),
        None,
    )
    if executable is None:
        pytest.skip(
            "no Chromium on this machine: install it (Debian: apt install chromium) to run the"
            " browser tests"
        )
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        started = playwright.chromium.launch(executable_path=executable, args=list(QUIET))
        yield started
        started.close()


class CommandResult(NamedTuple):
    code: int
    out: str
    err: str


Longtail = Callable[..., CommandResult]


@pytest.fixture
def longtail(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Longtail:
    """Call the command line in this process, as a person would see it."""

    def call(*words: object) -> CommandResult:
        monkeypatch.setattr(sys, "argv", ["longtail", *map(str, words)])
        with pytest.raises(SystemExit) as exit:
            run()
        code = exit.value.code
        captured = capsys.readouterr()
        return CommandResult(code if isinstance(code, int) else 0, captured.out, captured.err)

    return call
