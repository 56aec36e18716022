"""One process at a time in a run folder."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path

from longtail.errors import LongtailError

_descriptors: set[int] = set()  # of the folders that this process has locked


def _release() -> None:
    """Release the locks in a forked loader worker, which may outlive a parent that was killed."""
    for descriptor in _descriptors:
        os.close(descriptor)
    _descriptors.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_release)


@contextlib.contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Keep other processes from training into a folder at the same time.

    The lock ends with its process. Windows has no such lock.
    """
    folder.resolve().mkdir(parents=True, exist_ok=True)  # a link whose target is not there yet
    try:
        import fcntl
    except ImportError:
        yield
        return
    descriptor = os.open(folder, os.O_RDONLY)
    _descriptors.add(descriptor)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise LongtailError(
                f"expected to be the only one that trains into {folder}, got another process: wait"
                " for it, or choose another --out"
            ) from None
        except OSError:  # a file system without locks
            pass
        yield
    finally:
        _descriptors.discard(descriptor)
        os.close(descriptor)
