"""`longtail report`."""

from __future__ import annotations

from pathlib import Path
from shlex import quote
from typing import Annotated

import typer

from longtail.cli import tables
from longtail.records.layout import RunFolder

ACROSS = "Let a field differ, as a column: split, test, groups, selection, protocol, pretraining, tta, resolution or geometry; may be repeated."


def report(
    runs: Annotated[
        list[Path], typer.Argument(help="Folders of finished runs, or folders of such folders.")
    ],
    out: Annotated[
        Path | None,
        typer.Option(
            help="The file; report.html in the run's folder, or in this one for several, unless given."
        ),
    ] = None,
    across: Annotated[list[str] | None, typer.Option(help=ACROSS)] = None,
) -> None:
    """Write one HTML file about a run, or about several beside each other; it needs no network and no server."""
    from longtail.cli.main import expanded
    from longtail.report.document import write

    folders = expanded(runs)
    path = out or RunFolder(folders[0] if len(folders) == 1 else Path()).report
    for warning in write(folders, path, across=across or []):
        tables.warn(warning)
    tables.say(f"report: {path} ({path.stat().st_size / 1e6:.1f} MB)")
    tables.next_step(
        f"open {quote(str(path))}", f"longtail predict {quote(str(folders[0]))} IMAGE_OR_FOLDER"
    )
