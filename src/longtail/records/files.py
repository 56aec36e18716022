"""Atomic writes, JSON lines, and the cache folder."""

from __future__ import annotations

import errno
import json
import os
import stat
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from longtail.errors import LongtailError
from longtail.records.layout import part_of

LINES_LIMIT = 2_000_000_000  # bytes of a file of JSON lines
WEIGHTS_LIMIT = 200_000_000_000  # bytes of a file of weights


@contextmanager
def atomic_write(path: Path) -> Iterator[Path]:
    """Give a temporary path to write to, then move the file to `path` in one step.

    If writing fails, the previous file stays. A link stays a link: its target is replaced. A device
    or a pipe, such as /dev/null, is written to as a stream. The file gets the umask's permissions.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     with atomic_write(Path(folder) / "a.txt") as part:
    ...         _ = part.write_text("all of it")
    ...     [(file.name, file.read_text()) for file in Path(folder).iterdir()]
    [('a.txt', 'all of it')]
    """
    path = path.resolve()
    if path.is_dir():
        raise LongtailError(f"{path} is a folder: name a file to write")
    if path.exists() and not path.is_file():
        with tempfile.TemporaryDirectory() as folder:
            yield Path(folder) / "stream"
            with path.open("wb") as stream:
                stream.write((Path(folder) / "stream").read_bytes())
        return
    path.parent.mkdir(parents=True, exist_ok=True)
    part = part_of(path)
    try:
        part.touch()
        mode = part.stat().st_mode
        yield part
        part.chmod(mode)  # some writers make files that only their owner may read
        with part.open("r+b") as file:  # Windows syncs only files that can be written
            # Without it, a crash of the machine could leave an empty file at `path`.
            os.fsync(file.fileno())
        part.replace(path)
    except OSError as error:
        raise OSError(
            f"could not write {path}: {error}. What was there before is intact: free some space and"
            " run the same command again"
        ) from error
    finally:
        part.unlink(missing_ok=True)


def write_text(path: Path, text: str) -> None:
    """Write a text file in one move."""
    with atomic_write(path) as part:
        part.write_bytes(text.encode())


def read_regular(path: str | Path, *, limit: int) -> bytes:
    """Read a regular file of at most `limit` bytes; links are followed."""
    check_regular(path, limit=limit)
    with open(path, "rb") as file:
        return file.read(min(limit, os.fstat(file.fileno()).st_size))  # reserves as many bytes


def check_regular(path: str | Path, *, limit: int) -> None:
    """Refuse what is not a regular file of at most `limit` bytes; links are followed.

    A pipe would block for ever, and a device such as /dev/zero, or a sparse file, fill the memory.
    """
    status = os.stat(path)
    if stat.S_ISDIR(status.st_mode):
        os.scandir(path).close()  # where that fails, its reason is the better one
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(path))
    if not stat.S_ISREG(status.st_mode):
        raise LongtailError(f"{path} is a {_kind(status.st_mode)}, not a file: remove it")
    if status.st_size > limit:
        raise LongtailError(
            f"{path} has {status.st_size / 1e6:,.0f} MB, and files of at most"
            f" {limit / 1e6:,.0f} MB are read: reduce or remove it"
        )


def _kind(mode: int) -> str:
    if stat.S_ISFIFO(mode):
        return "pipe"
    return "socket" if stat.S_ISSOCK(mode) else "device"


def append_line(path: Path, line: Mapping[str, Any]) -> None:
    """Add a line to a JSON lines file."""
    with path.open("a", encoding="utf-8") as file:
        file.write(json.dumps(line) + "\n")


def cache_folder() -> Path:
    """Where files may be kept that only save time: `longtail` under `$XDG_CACHE_HOME`, else
    `~/.cache`. OSError where there is no home.
    """
    try:
        return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "longtail"
    except RuntimeError as error:
        raise OSError(f"there is no home folder ({error})") from error


def read_lines(path: Path) -> list[dict[str, Any]]:
    """The lines of a JSON lines file, without a last line that a crash cut short."""
    texts = read_regular(path, limit=LINES_LIMIT).decode(errors="replace").splitlines()
    lines = []
    for number, text in enumerate(texts):
        try:
            line = json.loads(text)
            if not isinstance(line, dict):
                raise ValueError(f"expected an object, got {text[:20]!r}")
            lines.append(line)
        except (ValueError, RecursionError) as error:
            if number < len(texts) - 1:
                raise LongtailError(
                    f"expected JSON lines, got something else in line {number + 1} of {path}"
                    f" ({error}): delete this line"
                ) from error
    return lines


def read_journal(path: Path) -> list[dict[str, Any]]:
    """The lines of a stage's journal; each has its kind, epoch and step."""
    lines = read_lines(path)
    for number, line in enumerate(lines, start=1):
        numbers = (line.get("epoch"), line.get("step"))
        if not isinstance(line.get("kind"), str) or not all(
            isinstance(value, int) and value > 0 for value in numbers
        ):
            raise LongtailError(
                f"expected kind, epoch and step in line {number} of {path}, got"
                f" {json.dumps(line)[:60]}: delete this line"
            )
    return lines
