"""Files of a run: whole or not there, JSON with a format version, lines of JSON of which the last may be cut; and a place for others."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from longtail.errors import LongtailError
from longtail.records.layout import part_of

FORMAT = 1
"""Of recipe.json, model/spec.json and the like; raised when an older longtail would misread them."""


@contextmanager
def atomic_write(path: Path) -> Iterator[Path]:
    """Give a place to write to, and put what was written at `path` in one move; if that fails, what was there before stays.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     with atomic_write(Path(folder) / "a.txt") as part:
    ...         _ = part.write_text("all of it")
    ...     [(file.name, file.read_text()) for file in Path(folder).iterdir()]
    [('a.txt', 'all of it')]
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    part = part_of(path)
    try:
        yield part
        with part.open("r+b") as file:  # Windows lets none be synced that cannot be written
            os.fsync(
                file.fileno()
            )  # or a crash of the machine could leave an empty file under the final name
        part.replace(path)
    except OSError as error:
        raise OSError(
            f"could not write {path}: {error}. What was there before is intact: free some space and run the same command again"
        ) from error
    finally:
        part.unlink(missing_ok=True)


def write_text(path: Path, text: str) -> None:
    """Write a text file in one move."""
    with atomic_write(path) as part:
        part.write_bytes(text.encode())


def write_json(path: Path, content: object) -> None:
    """Write a JSON file in one move."""
    write_text(path, json.dumps(content, indent=1) + "\n")


def read_json(path: Path) -> dict[str, Any]:
    """Read a JSON file of a run, of this format version or an older one."""
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise LongtailError(
            f"expected a run folder with {path.name}, got none at {path.parent}: pass the folder given as --out"
        ) from None
    except ValueError as error:
        raise LongtailError(
            f"expected JSON, got something else or a part of it in {path} ({error})"
        ) from error
    if not isinstance(content, dict) or not isinstance(content.get("format"), int):
        raise LongtailError(
            f"expected a format version in {path}, got none: this file was not written by longtail"
        )
    if content["format"] > FORMAT:
        got = content["format"]
        raise LongtailError(
            f"expected format {FORMAT} or older, got {got} in {path}: a newer longtail wrote it, upgrade this one"
        )
    return content


def cache_folder() -> Path:
    """Where files may be kept that only save time: `longtail` under `$XDG_CACHE_HOME`, else `~/.cache`. OSError where there is no home."""
    try:
        return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "longtail"
    except RuntimeError as error:
        raise OSError(f"there is no home folder ({error})") from error


def read_lines(path: Path) -> list[dict[str, Any]]:
    """The lines of a JSON lines file, such as a journal; a last one that was cut short by a crash is left out."""
    texts = path.read_text(encoding="utf-8").splitlines()
    lines = []
    for number, text in enumerate(texts):
        try:
            lines.append(json.loads(text))
        except ValueError as error:
            if number < len(texts) - 1:
                raise LongtailError(
                    f"expected JSON lines, got something else in line {number + 1} of {path} ({error})"
                ) from error
    return lines
