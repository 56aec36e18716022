"""`longtail compare`."""

from __future__ import annotations

from pathlib import Path
from shlex import join
from typing import Annotated, Literal

import typer

from longtail.cli import results, tables

Runs = Annotated[
    list[Path], typer.Argument(help="Folders of finished runs, or folders of such folders.")
]
ACROSS = (
    "Allow a field to differ and show it as a column: split, test, groups, selection, protocol, "
    "pretraining, tta, resolution or geometry; may be repeated."
)
Across = Annotated[list[str] | None, typer.Option(help=ACROSS)]
By = Annotated[
    list[str] | None,
    typer.Option(help="A data flag such as imbalance: one column per value; may be repeated."),
]


def compare(
    runs: Runs,
    across: Across = None,
    by: By = None,
    format: Annotated[
        Literal["table", "markdown", "csv", "latex"], typer.Option(help="The output format.")
    ] = "table",
    out: Annotated[
        Path | None, typer.Option(help="Write to this file; .md, .csv or .tex sets the format.")
    ] = None,
) -> None:
    """Rank finished runs that are comparable, or list what differs between them.

    Differences are relative to the first run.
    """
    from longtail.report.formats import FORMATS, write
    from longtail.report.public import compare as compare_runs
    from longtail.report.rows import find_runs

    for folder in find_runs(runs)[1]:
        tables.warn(f"{folder} is unfinished and not in the table")
    flags = [name.replace("-", "_") for name in by or []]
    table = compare_runs(runs, across=across or [], by=flags)
    if out is not None:
        write(table, out, format=None if format == "table" else format)
        tables.say(f"written: {out}")
    elif format != "table":
        print(FORMATS[format](table), end="")
    else:
        results.print_comparison(table)
        given = join([*map(str, runs), *(f"--across={name}" for name in across or [])])
        columns = "".join(f" --by={name}" for name in flags)
        tables.next_step(
            f"longtail report {given}{columns} --out comparison.html",
            f"longtail compare {given}{columns} --out comparison.tex",
        )
