"""`longtail.compare` and `longtail.report`: finished runs, given as folders."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from longtail.records.layout import RunFolder
from longtail.report.columns import ColumnTable, compare_by
from longtail.report.comparison import Comparison
from longtail.report.comparison import compare as compare_rows
from longtail.report.rows import find_runs, read_rows

Folders = str | os.PathLike[str] | Sequence[str | os.PathLike[str]]


def compare(
    runs: Folders, *, across: Sequence[str] = (), by: str | Sequence[str] = ()
) -> Comparison | ColumnTable:
    """Rank finished runs that are comparable, or raise an error that lists the differences.

    Args:
        runs: Folders of finished runs, or folders of such folders. The first is the baseline.
        across: Fields that may differ and become columns: split, test, groups, selection, protocol,
            pretraining, tta, resolution or geometry.
        by: Data flags such as "imbalance": one column per value, with the headline score only.

    Returns:
        A table with `columns()`, `cells()` (text), `lines` (numbers) and `notes`.
    """
    rows = read_rows(find_runs(_paths(runs))[0])
    flags = _flags(by)
    return compare_by(rows, flags, across=across) if flags else compare_rows(rows, across=across)


def report(
    runs: Folders,
    out: str | os.PathLike[str] | None = None,
    *,
    across: Sequence[str] = (),
    by: str | Sequence[str] = (),
) -> Path:
    """Write an HTML report about one run, or several side by side, and return its path.

    Args:
        runs: Folders of finished runs, or folders of such folders.
        out: The file; by default report.html in the run folder, or in the current folder for
            several runs.
        across: Fields that may differ, as in `longtail.compare`.
        by: Data flags such as "imbalance": one column per value, as in `longtail.compare`.
    """
    path = None if out is None else Path(out)
    return write_report(_paths(runs), path, across=across, by=_flags(by))[0]


def write_report(
    paths: Sequence[Path],
    out: Path | None,
    *,
    across: Sequence[str] = (),
    by: Sequence[str] = (),
) -> tuple[Path, list[Path], list[str]]:
    """Write a report; returns its path, its runs, and warnings, such as runs not ranked."""
    from longtail.report.page import write  # comparing needs no templates and figures

    folders, unfinished = find_runs(paths)
    path = out or RunFolder(folders[0] if len(folders) == 1 else Path()).report
    warnings = [f"{folder} is unfinished and not in the report" for folder in unfinished]
    return path, folders, warnings + write(folders, path, across=across, by=by)


def _paths(runs: Folders) -> list[Path]:
    return [Path(runs)] if isinstance(runs, str | os.PathLike) else [Path(run) for run in runs]


def _flags(by: str | Sequence[str]) -> list[str]:
    """Data flags as their fields are called; `--by split-seed` is the flag `--split-seed`."""
    return [name.replace("-", "_") for name in ([by] if isinstance(by, str) else by)]
