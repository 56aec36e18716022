"""The rows of several runs."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from longtail.errors import LongtailError
from longtail.records.row import Row, read_row


def read_rows(folders: Sequence[Path]) -> list[Row]:
    """Read the rows of finished runs; every folder that has none is named at once."""
    rows, problems = [], []
    for folder in folders:
        try:
            rows.append(read_row(folder))
        except LongtailError as error:
            problems.append(str(error))
    if problems:
        raise LongtailError("\n".join(problems))
    return rows
