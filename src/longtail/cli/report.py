"""`longtail report`."""

from __future__ import annotations

from pathlib import Path
from shlex import quote
from typing import Annotated

import typer

from longtail.cli import tables
from longtail.cli.compare import Across, By, Runs


def report(
    runs: Runs,
    out: Annotated[
        Path | None,
        typer.Option(
            help=(
                "The HTML file; by default report.html in the run folder, or in the current folder"
                " for several runs."
            )
        ),
    ] = None,
    across: Across = None,
    by: By = None,
) -> None:
    """Write a self-contained HTML report about one run, or about several side by side."""
    from longtail.report.public import write_report

    path, folders, warnings = write_report(runs, out, across=across or [], by=by or [])
    for warning in warnings:
        tables.warn(warning)
    tables.say(f"report: {path} ({path.stat().st_size / 1e6:.1f} MB)")
    tables.next_step(
        f"open {quote(str(path))}", f"longtail predict {quote(str(folders[0]))} IMAGE_OR_FOLDER"
    )
