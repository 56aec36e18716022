"""Cases for `benchmarks/hostile.py`: commands on broken input, and how each of them must end.

Every module in this folder has a list `CASES`. A case is data: the words after `longtail`, what its
folder contains, the exit code and a part of the message. The runner checks the rest for all cases
alike: no traceback, one message, every file that was there still as it was, no process left, and
the limits of time and memory.
"""

from __future__ import annotations

import os
import shutil
import signal
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from PIL import Image

USAGE = 2
"""The exit code of an error that a person can fix."""

STOPPED = 130
"""The exit code after Ctrl-C or SIGTERM."""

COUNTS = {"ant": 14, "bee": 9, "cat": 6}
"""The classes of the images that `Place.photos` writes, and how many images they have."""


@dataclass(frozen=True)
class Place:
    """The folder that a case runs in, and finished runs to copy into it."""

    folder: Path
    fixtures: Path

    def __truediv__(self, name: str) -> Path:
        return self.folder / name

    def photos(self, name: str = "photos") -> Path:
        """Copy the small image folder: class folders of PNG files that are not square."""
        return Path(shutil.copytree(self.fixtures / "photos", self.folder / name))

    def run(self, name: str = "run", *, of: str = "run") -> Path:
        """Copy a finished run on those images; `of` is "run" or "other" (balanced softmax)."""
        return Path(shutil.copytree(self.fixtures / of, self.folder / name))

    def folder_at(self, name: str) -> Path:
        """Make an empty folder."""
        (self.folder / name).mkdir(parents=True)
        return self.folder / name

    def link(self, name: str, target: str) -> Path:
        """Make a link, whose target need not exist."""
        os.symlink(target, self.folder / name)
        return self.folder / name

    def write(self, name: str, content: str | bytes = "") -> Path:
        """Write a file, with the folders above it."""
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content.encode() if isinstance(content, str) else content)
        return path


@dataclass(frozen=True)
class Running:
    """A command that is running: its process group, and what it has printed so far."""

    pid: int
    stdout: Path
    stderr: Path
    patience: float = 1.0  # more on a machine that is busy otherwise

    def output(self) -> str:
        return "".join(
            path.read_text(encoding="utf-8", errors="replace")
            for path in (self.stdout, self.stderr)
        )

    def wait_for(self, text: str, *, seconds: float = 15) -> str:
        """Wait until the output contains a text; AssertionError if it does not."""
        deadline = time.monotonic() + seconds * self.patience
        while text not in (output := self.output()):
            assert time.monotonic() < deadline, f"never printed {text!r}"
            time.sleep(0.02)
        return output

    def send(self, number: signal.Signals = signal.SIGINT) -> None:
        """Send a signal to the command itself, not to its children."""
        os.kill(self.pid, number)


def nothing(*_: object) -> None:
    """Do nothing."""


@dataclass(frozen=True)
class Case:
    """One command, and how it must end.

    Args:
        name: Unique; `--only` selects cases by a part of it.
        argv: The words after `longtail`. It runs in its folder, so paths are relative.
        point: Which kind of damage it is about, 1 to 20 (see `POINTS` of the runner); 0: another.
        code: The exit code.
        message: A regular expression for what it prints, to stdout or stderr.
        setup: Fills the folder.
        during: Acts while the command runs: sends signals or requests. AssertionError is a failure.
        check: Inspects the folder and the output afterwards. AssertionError is a failure.
        may_change: Patterns of the files that the command may change or remove.
        env: Environment variables; `None` removes one.
        stdout: Where stdout goes instead, such as /dev/full.
        unprivileged: Run without root's right to read everything.
        disk: Bytes of a file system of its own, mounted at `small` in the folder.
    """

    name: str
    argv: tuple[str, ...]
    point: int = 0
    code: int = USAGE
    message: str = ""
    setup: Callable[[Place], object] = nothing
    during: Callable[[Place, Running], object] = nothing
    check: Callable[[Place, str], object] = nothing
    may_change: tuple[str, ...] = ()
    env: Mapping[str, str | None] = field(default_factory=dict)
    stdout: str | None = None
    unprivileged: bool = False
    disk: int | None = None

    @property
    def verb(self) -> str:
        """The subcommand; "longtail" without one."""
        return next((word for word in self.argv if not word.startswith("-")), "longtail")


def write_photos(folder: Path, counts: Mapping[str, int] = COUNTS) -> Path:
    """Write class folders of noisy images in a colour of their class, 20 x 14 pixels each."""
    generator = np.random.default_rng(0)
    for label, (name, count) in enumerate(counts.items()):
        (folder / name).mkdir(parents=True)
        colour = np.eye(3)[label % 3] * 160
        for index in range(count):
            pixels = (colour + generator.integers(0, 90, (14, 20, 3))).astype(np.uint8)
            Image.fromarray(pixels).save(folder / name / f"{index:02}.png")
    return folder


QUICK = ("--epochs", "1", "--batch", "8", "--size", "16", "--device", "cpu", "--threads", "1")
"""Flags of a training of a second."""


def train(*words: str, recipe: str = "cross_entropy", data: str = "photos") -> tuple[str, ...]:
    """The words of a training of a second into the folder `out`."""
    return ("train", recipe, "--data", data, "--out", "out", *QUICK, *words)
