"""The JSON files of a run folder: whole or not there, with a format version, and refused in words when they cannot be read."""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from longtail.engine.checkpoint import write_atomically

FORMAT = 1
"""Of recipe.json and model/spec.json; raised when an older longtail would misread them."""


_places: set[int] = set()  # open folders that this process holds


def _let_go() -> None:
    """A forked loader worker holds nothing: it may outlive a parent that was killed, and would keep the next one out."""
    for place in _places:
        os.close(place)
    _places.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_let_go)


@contextlib.contextmanager
def held(folder: Path) -> Iterator[None]:
    """Keep other processes from training into a folder at the same time; whoever dies lets go. Nothing is kept out on Windows."""
    folder.mkdir(parents=True, exist_ok=True)
    try:
        import fcntl
    except ImportError:
        yield
        return
    place = os.open(folder, os.O_RDONLY)
    _places.add(place)
    try:
        try:
            fcntl.flock(place, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise ValueError(
                f"expected to be the only one that trains into {folder}, got another process: wait for it, or choose another --out"
            ) from None
        except OSError:  # a file system without locks
            pass
        yield
    finally:
        _places.discard(place)
        os.close(place)


def write_json(path: Path, content: object) -> None:
    """Write a JSON file in one move."""
    write_text(path, json.dumps(content, indent=1) + "\n")


def write_text(path: Path, text: str) -> None:
    """Write a text file in one move."""
    write_atomically(path, lambda file: file.write(text.encode()))


def read_json(path: Path) -> dict[str, Any]:
    """Read a JSON file of a run, of this format version or an older one."""
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise ValueError(f"expected a run folder with {path.name}, got none at {path.parent}: pass the folder given as --out") from None
    except ValueError as error:
        raise ValueError(f"expected JSON, got something else or a part of it in {path} ({error})") from error
    if not isinstance(content, dict) or not isinstance(content.get("format"), int):
        raise ValueError(f"expected a format version in {path}, got none: this file was not written by longtail")
    if content["format"] > FORMAT:
        got = content["format"]
        raise ValueError(f"expected format {FORMAT} or older, got {got} in {path}: a newer longtail wrote it, upgrade this one")
    return content
