"""Files that are either whole or not there."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


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
        with part.open("rb") as file:
            os.fsync(file.fileno())  # or a crash of the machine could leave an empty file under the final name
        part.replace(path)
    finally:
        part.unlink(missing_ok=True)
