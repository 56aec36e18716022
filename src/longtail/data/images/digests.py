"""A cache of the digests of streamed files, by path and what the system records of a file.

It is `longtail/files.sqlite` under `$XDG_CACHE_HOME` (else `~/.cache`). It only saves time and may
be deleted. If it cannot be written, all files are read whenever the data is opened.
"""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Iterable, Mapping
from contextlib import closing

from longtail.records.files import cache_folder

Stamp = tuple[int, int, int, int]
"""Size, modification time and status time in nanoseconds, inode."""


def fingerprint(path: str) -> Stamp:
    """What changes with the content of a file.

    Tools that restore the modification time of what they write cannot restore the status time.
    """
    stat = os.stat(path)
    return stat.st_size, stat.st_mtime_ns, stat.st_ctime_ns, stat.st_ino


def get(stamps: Mapping[str, Stamp]) -> dict[str, bytes]:
    """Return the cached digests of the files that have not changed."""
    result = {}
    try:
        with closing(_connect()) as database:
            for path, expected in stamps.items():
                row = database.execute(
                    "SELECT size, changed, status, inode, digest FROM contents WHERE path = ?",
                    (_key(path),),
                ).fetchone()
                if row is not None and row[:4] == expected:
                    result[path] = row[4]
    except (OSError, sqlite3.Error):
        return {}
    return result


def put(files: Iterable[tuple[str, Stamp, bytes]]) -> None:
    """Cache the digests of readable image files."""
    rows = [(_key(path), *stamp, digest) for path, stamp, digest in files]
    try:
        with closing(_connect()) as database, database:
            database.executemany("INSERT OR REPLACE INTO contents VALUES (?, ?, ?, ?, ?, ?)", rows)
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
        "CREATE TABLE IF NOT EXISTS contents (path BLOB PRIMARY KEY, size INTEGER, changed INTEGER,"
        " status INTEGER, inode INTEGER, digest BLOB) WITHOUT ROWID"
    )
    database.execute("DROP TABLE IF EXISTS files")  # of earlier versions
    return database
