"""Files of a run: those that are either whole or not there, and lines of JSON, the last of which may be cut; and a place for others."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any


@contextmanager
def whole(path: Path) -> Iterator[Path]:
    """Give a place to write to, and put what was written at `path` in one move; if that fails, what was there before stays.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     with whole(Path(folder) / "a.txt") as part:
    ...         _ = part.write_text("all of it")
    ...     [(file.name, file.read_text()) for file in Path(folder).iterdir()]
    [('a.txt', 'all of it')]
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_name(f"{path.name}.part")
    try:
        yield part
        with part.open("r+b") as file:  # Windows lets none be synced that cannot be written
            os.fsync(file.fileno())  # or a crash of the machine could leave an empty file under the final name
        part.replace(path)
    finally:
        part.unlink(missing_ok=True)


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
                raise ValueError(f"expected JSON lines, got something else in line {number + 1} of {path} ({error})") from error
    return lines
