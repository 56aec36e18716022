"""The files that only save time: what they are, how large they are, and how to delete them."""

from __future__ import annotations

import shutil
from pathlib import Path

from longtail.records.files import cache_folder

FREE_SHARE = 10  # a cache takes at most one part in this many of the free disk space

KINDS = {
    "labels of teachers": ("labels/*.bin", "labels/*.json", "labels/*.part"),
    "digests of images": ("files.sqlite*",),
}
"""What is cached -> patterns of its files in the cache folder. No other file is ever deleted."""


def cached_files() -> dict[str, list[Path]]:
    """The cached files of each kind."""
    folder = cache_folder()
    return {
        kind: sorted(path for pattern in patterns for path in folder.glob(pattern))
        for kind, patterns in KINDS.items()
    }


def clear_cache() -> int:
    """Delete all cached files and return their size in bytes. Programs that use them continue."""
    files = [path for paths in cached_files().values() for path in paths]
    size = total_size(files)
    for path in files:
        path.unlink(missing_ok=True)
    return size


def total_size(files: list[Path]) -> int:
    """The size of files in bytes; a file that another program deleted counts nothing."""
    return sum(_stat(path)[0] for path in files)


def free_space(folder: Path) -> int:
    """The free bytes of the disk that a folder is on."""
    return shutil.disk_usage(folder).free


def make_room(size: int, limit: int, *, keep: Path) -> None:
    """Delete the labels that were used least recently, until `size` bytes more are in the limit.

    The file `keep` stays. A program that has a deleted file open continues with it.
    """
    labels = sorted(cache_folder().glob("labels/*.bin"), key=lambda path: _stat(path)[1])
    total = total_size([path for path in labels if path != keep])
    for path in labels:
        if path == keep or total + size <= limit:
            continue
        total -= _stat(path)[0]
        path.unlink(missing_ok=True)
        path.with_suffix(".json").unlink(missing_ok=True)


def _stat(path: Path) -> tuple[int, float]:
    """Size and time of the last change; (0, 0) if the file is gone."""
    try:
        status = path.lstat()
    except OSError:
        return 0, 0.0
    return status.st_size, status.st_mtime


def size_text(size: float) -> str:
    """Format a number of bytes for people.

    >>> [size_text(size) for size in (0, 1200, 3_400_000, 52e9)]
    ['0 kB', '1 kB', '3.4 MB', '52.0 GB']
    """
    for unit, power in (("GB", 1e9), ("MB", 1e6)):
        if size >= power:
            return f"{size / power:,.1f} {unit}"
    return f"{size / 1e3:.0f} kB"
