"""`longtail report`."""

from __future__ import annotations

from pathlib import Path
from shlex import quote
from typing import Annotated

import typer

from longtail.cli import tables
from longtail.cli.compare import Across, Runs


def report(
    runs: Runs,
    out: Annotated[
        Path | None,
        typer.Option(
            help=(
                "The file; report.html in the run's folder, or in this one for several, unless"
                " given."
            )
        ),
    ] = None,
    across: Across = None,
) -> None:
    """Write one HTML file about a run, or about several beside each other; it needs no network and
    no server.
    """
    from longtail.report.public import write_report

    path, folders, warnings = write_report(runs, out, across=across or [])
    for warning in warnings:
        tables.warn(warning)
    tables.say(f"report: {path} ({path.stat().st_size / 1e6:.1f} MB)")
    tables.next_step(
        f"open {quote(str(path))}", f"longtail predict {quote(str(folders[0]))} IMAGE_OR_FOLDER"
    )
