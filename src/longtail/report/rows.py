"""Find and read the rows of several runs."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import TypeVar

from longtail.errors import LongtailError
from longtail.records.layout import RunFolder, is_trial
from longtail.records.row import Row, read_row

T = TypeVar("T")

PREREQUISITES = "first"
"""The subfolder of a sweep for the runs that others start from."""


def find_runs(folders: Sequence[Path]) -> tuple[list[Path], list[Path]]:
    """The finished and the unfinished runs at or inside these folders, without duplicates.

    Prerequisites are excluded, and so are the trials of a search: a comparison would select among
    them by their test images.
    """
    finished: list[Path] = []
    unfinished: list[Path] = []
    for folder in folders:
        inside = []
        if not RunFolder(folder).recipe.exists():
            inside = [
                run
                for run in RunFolder(folder).runs_inside()
                if PREREQUISITES not in run.path.relative_to(folder).parts and not is_trial(run)
            ]
        unfinished += [run.path for run in inside if not run.is_finished]
        finished += [run.path for run in inside if run.is_finished] or [folder]
    return list(dict.fromkeys(finished)), list(dict.fromkeys(unfinished))


def read_rows(folders: Sequence[Path]) -> list[Row]:
    """Read the rows of finished runs; one error lists all folders without a row."""
    return read_all(read_row, folders)


def read_all(read: Callable[[Path], T], folders: Iterable[Path]) -> list[T]:
    """Read all folders; one error has the messages of those that cannot be read."""
    contents, problems = [], []
    for folder in folders:
        try:
            contents.append(read(folder))
        except LongtailError as error:
            problems.append(str(error))
    if problems:
        raise LongtailError("\n".join(problems))
    return contents
