"""Terminal output: tables, messages, recipes and the next command to try."""

from __future__ import annotations

import os
import re
import textwrap
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from rich.box import SIMPLE_HEAD
from rich.cells import cell_len
from rich.console import Console
from rich.table import Table
from rich.text import Text

from longtail.errors import printable
from longtail.recipes.keywords import meanings

if TYPE_CHECKING:
    from longtail.recipes.signatures import Recipe


def terminal(*, stderr: bool = False) -> Console:
    """Created on every call to follow a redirected stdout; silent except in the first process."""
    console = Console(
        highlight=False, soft_wrap=False, quiet=os.environ.get("RANK", "0") != "0", stderr=stderr
    )
    return (
        console
        if console.is_terminal
        else Console(highlight=False, width=200, quiet=console.quiet, stderr=stderr)
    )


def say(text: str) -> None:
    """Print a line."""
    terminal().print(printable(text), markup=False, soft_wrap=True)


def warn(text: str) -> None:
    """Print a warning to stderr."""
    line = f"warning: {printable(text)}"
    terminal(stderr=True).print(line, style="yellow", markup=False, soft_wrap=True)


def next_step(*commands: str) -> None:
    """Print the next commands to try."""
    for position, command in enumerate(commands):
        line = Text.assemble(
            ("next: " if position == 0 else "  or: ", "dim"), (printable(command), "bold cyan")
        )
        terminal().print(line, soft_wrap=True)


def pairs(title: str, rows: Mapping[str, str]) -> None:
    """Print names with their descriptions."""
    table = Table(box=None, show_header=False, padding=(0, 2, 0, 2))
    table.add_column(no_wrap=True, style="bold")
    table.add_column()
    for name, meaning in rows.items():
        table.add_row(Text(printable(name)), Text(printable(meaning)))
    console = terminal()
    console.print(Text(printable(title), style="underline"))
    console.print(table)
    console.print()


def build_table(
    columns: Sequence[str],
    rows: Sequence[Sequence[str]],
    *,
    left: int = 1,
    title: str | None = None,
    bold: str | None = None,
) -> Table:
    """Build a table; the first `left` columns are text, and the column `bold` stands out."""
    table = Table(
        box=SIMPLE_HEAD,
        title=None if title is None else Text(printable(title)),
        title_justify="left",
        padding=(0, 1),
        collapse_padding=True,
        pad_edge=False,
        show_edge=False,
    )
    for position, column in enumerate(columns):
        # Text may wrap on a narrow terminal; numbers may not
        wraps = position < left or len(column) > 12
        heading = Text(printable(column), style="bold" if column == bold else "")
        table.add_column(
            heading,
            justify="left" if position < left else "right",
            no_wrap=not wraps,
            overflow="fold",
        )
    for row in rows:
        table.add_row(*(Text(printable(cell)) for cell in row))
    return table


def name(text: str) -> Text:
    """A name of the data for a table that is not a `grid`: plain, with its controls escaped."""
    return Text(printable(text), overflow="ellipsis")


def grid(
    columns: Sequence[str],
    rows: Sequence[Sequence[str]],
    *,
    left: int = 1,
    title: str | None = None,
) -> None:
    """Print a table; the first `left` columns are text, the others numbers."""
    console = terminal()
    console.print()
    console.print(build_table(columns, rows, left=left, title=title))
    console.print()


def wide_grid(columns: Sequence[str], rows: Sequence[Sequence[str]], *, left: int = 1) -> None:
    """Print a table, in parts that begin with the first column if the terminal is too narrow."""
    width, part = terminal().width, [0]
    wide = [2 + max(map(cell_len, cells)) for cells in zip(columns, *rows, strict=True)]
    parts = [part]
    for position in range(1, len(columns)):
        if len(part) > 1 and sum(wide[own] for own in part) + wide[position] - 2 > width:
            part = [0]
            parts.append(part)
        part.append(position)
    for part in parts:
        cells = [[row[own] for own in part] for row in rows]
        text = sum(own < left for own in part)
        grid([columns[own] for own in part], cells, left=text)


def unwrapped(doc: str) -> str:
    """Unwrap a docstring: one line per paragraph, indented line, or note such as `Cost: ...`."""
    paragraphs = []
    for paragraph in doc.split("\n\n"):
        lines: list[str] = []
        for line in textwrap.dedent(paragraph).splitlines():
            if lines and not re.match(r"\s|[A-Z][a-z]+: |longtail ", line):
                lines[-1] += f" {line}"
            else:
                lines.append(line)
        paragraphs.append("\n".join(lines))
    return "\n\n".join(paragraphs)


def recipe(shown: Recipe) -> None:
    """Print the docstring, keywords and source of a recipe."""
    from rich.syntax import Syntax

    console = terminal()
    console.print(Text(shown.name, style="bold"), Text(f"({shown.target})", style="dim"))
    console.print(Text(unwrapped(shown.doc) + "\n"))
    rows = [
        [
            f"--{name.replace('_', '-')}",
            parameter.kind,
            "required" if parameter.required else str(parameter.default),
            meanings(shown.name).get(name, ""),
        ]
        for name, parameter in shown.parameters.items()
    ]
    console.print(build_table(["keyword", "type", "default", "meaning"], rows, left=4))
    console.print()
    console.print(Syntax(shown.source, "python", background_color="default", word_wrap=True))


def print_table(table: Table) -> None:
    """Print a table of rich."""
    terminal().print(table)
