"""What streamed files were found to hold: read once, then remembered by path, size and time of
change.

Kept in `longtail/files.sqlite` under `$XDG_CACHE_HOME` (else `~/.cache`). It saves time and nothing
else: it may be deleted, and where it cannot be written every opening reads all files."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Iterable, Mapping
from contextlib import closing

from longtail.records.files import cache_folder

Stamp = tuple[int, int]  # size in bytes, time of change in nanoseconds


def fingerprint(path: str) -> Stamp:
    """What changes when a file's content does."""
    stat = os.stat(path)
    return stat.st_size, stat.st_mtime_ns


def get(stamps: Mapping[str, Stamp]) -> dict[str, bytes]:
    """The digests of those files that were read before and have not changed since."""
    found = {}
    try:
        with closing(_connect()) as database:
            for path, expected in stamps.items():
                row = database.execute(
                    "SELECT size, changed, digest FROM files WHERE path = ?", (_key(path),)
                ).fetchone()
                if row is not None and (row[0], row[1]) == expected:
                    found[path] = row[2]
    except (OSError, sqlite3.Error):
        return {}
    return found


def put(files: Iterable[tuple[str, Stamp, bytes]]) -> None:
    """Keep the digests of files that are good images."""
    rows = [(_key(path), *mark, digest) for path, mark, digest in files]
    try:
        with closing(_connect()) as database, database:
            database.executemany("INSERT OR REPLACE INTO files VALUES (?, ?, ?, ?)", rows)
    except (OSError, sqlite3.Error):
        pass


def _key(path: str) -> bytes:
    # Names of files may be anything, also what is no text
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
