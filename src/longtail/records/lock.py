"""One process at a time in a run folder."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path

from longtail.errors import LongtailError

_places: set[int] = set()  # open folders that this process holds


def _let_go() -> None:
    """A forked loader worker holds nothing: it may outlive a parent that was killed, and would keep
    the next one out.
    """
    for place in _places:
        os.close(place)
    _places.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_let_go)


@contextlib.contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Keep other processes from training into a folder at the same time; whoever dies lets go.
    Nothing is kept out on Windows.
    """
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
            raise LongtailError(
                f"expected to be the only one that trains into {folder}, got another process: wait"
                " for it, or choose another --out"
            ) from None
        except OSError:  # a file system without locks
            pass
        yield
    finally:
        _places.discard(place)
        os.close(place)
