"""A cache of the digests of streamed files, by path, size and modification time.

It is `longtail/files.sqlite` under `$XDG_CACHE_HOME` (else `~/.cache`). It only saves time and may
be deleted. If it cannot be written, all files are read whenever the data is opened.
"""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Iterable, Mapping
from contextlib import closing

from longtail.records.files import cache_folder

Stamp = tuple[int, int]  # size in bytes, modification time in nanoseconds


def fingerprint(path: str) -> Stamp:
    """Size and modification time of a file, which change with its content."""
    stat = os.stat(path)
    return stat.st_size, stat.st_mtime_ns


def get(stamps: Mapping[str, Stamp]) -> dict[str, bytes]:
    """Return the cached digests of the files that have not changed."""
    result = {}
    try:
        with closing(_connect()) as database:
            for path, expected in stamps.items():
                row = database.execute(
                    "SELECT size, changed, digest FROM files WHERE path = ?", (_key(path),)
                ).fetchone()
                if row is not None and (row[0], row[1]) == expected:
                    result[path] = row[2]
    except (OSError, sqlite3.Error):
        return {}
    return result


def put(files: Iterable[tuple[str, Stamp, bytes]]) -> None:
    """Cache the digests of readable image files."""
    rows = [(_key(path), *stamp, digest) for path, stamp, digest in files]
    try:
        with closing(_connect()) as database, database:
            database.executemany("INSERT OR REPLACE INTO files VALUES (?, ?, ?, ?)", rows)
    except (OSError, sqlite3.Error):
        pass


def _key(path: str) -> bytes:
    # File names may not be valid UTF-8
    return os.fsencode(os.path.abspath(path))


def _connect() -> sqlite3.Connection:
    folder = cache_folder()
    folder.mkdir(parents=True, exist_ok=True)
    database = sqlite3.connect(folder / "files.sqlite", timeout=30)
    database.execute(
        "CREATE TABLE IF NOT EXISTS files (path BLOB PRIMARY KEY, size INTEGER, changed INTEGER,"
        " digest BLOB) WITHOUT ROWID"
    )
    return database
