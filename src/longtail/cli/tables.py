"""What the terminal shows: tables, bars, and the next thing to do."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.measure import Measurement
from rich.table import Table
from rich.text import Text

if TYPE_CHECKING:
    from longtail.metrics.row import Row, Summary
    from longtail.recipes.signatures import Recipe

HISTOGRAM = 30  # bars; beyond that, the head and the tail of the classes are shown
BAR = 36  # characters


def _console() -> Console:
    """Made anew each time, so that it follows a redirected stdout; silent in all processes but the first."""
    console = Console(highlight=False, soft_wrap=False, quiet=os.environ.get("RANK", "0") != "0")
    return console if console.is_terminal else Console(highlight=False, width=200, quiet=console.quiet)


def say(text: str) -> None:
    """Print a line."""
    _console().print(text, markup=False, soft_wrap=True)


def warn(text: str) -> None:
    """Print a warning."""
    _console().print(f"warning: {text}", style="yellow", markup=False, soft_wrap=True)


def next_step(*commands: str) -> None:
    """End with what to do next."""
    for position, command in enumerate(commands):
        line = Text.assemble(("next: " if position == 0 else "  or: ", "dim"), (command, "bold cyan"))
        _console().print(line, soft_wrap=True)


def pairs(title: str, rows: Mapping[str, str]) -> None:
    """Print names and what they mean."""
    table = Table(box=None, show_header=False, padding=(0, 2, 0, 2))
    table.add_column(no_wrap=True, style="bold")
    table.add_column()
    for name, meaning in rows.items():
        table.add_row(Text(name), Text(meaning))
    console = _console()
    console.print(Text(title, style="underline"))
    console.print(table)
    console.print()


def _table(columns: Sequence[str], rows: Sequence[Sequence[str]], *, left: int = 1, title: str | None = None) -> Table:
    table = Table(
        box=SIMPLE_HEAD, title=title, title_justify="left", padding=(0, 1), collapse_padding=True, pad_edge=False, show_edge=False
    )
    for position, column in enumerate(columns):
        words = position < left or len(column) > 12  # may be broken where the terminal is narrow; numbers may not
        heading = Text(column, style="bold" if column == "balanced" else "")
        table.add_column(heading, justify="left" if position < left else "right", no_wrap=not words, overflow="fold")
    for row in rows:
        table.add_row(*map(Text, row))
    return table


def _percent(value: float | None) -> str:
    return "-" if value is None else f"{100 * value:.1f}"


def scores(found: Mapping[str, Summary | None], *, title: str | None = None) -> None:
    """Print summaries side by side: overall, balanced, the groups."""
    present = {name: own for name, own in found.items() if own is not None}
    if not present:
        say("There are no images to evaluate on.")
        return
    groups = list(next(iter(present.values()))["groups"])
    rows = [
        [name, _percent(own["top1"]), _percent(own["balanced"]), *(_percent(own["groups"].get(group)) for group in groups)]
        for name, own in present.items()
    ]
    console = _console()
    console.print()
    console.print(_table(["", "overall", "balanced", *groups], rows, title=title))
    console.print()


def summaries(found: Mapping[str, Summary | None]) -> None:
    """Print what was found on validation and test, for each part of a head that has several, with what the numbers mean."""
    whole: dict[str, Summary | None] = {}
    for name, own in found.items():
        whole[name] = own
        whole |= {f"{name}, {head} alone": part for head, part in (own.get("heads", {}) if own else {}).items()}
    scores(whole, title="accuracy in percent")
    for name, own in found.items():
        if own is None:
            say(f"{name}: no images")
            continue
        without = own["classes_without_test"]["count"]
        top5 = "" if own["top5"] is None else f", top-5 {_percent(own['top5'])}"
        missing = f", {without} classes without images are not in `balanced`" if without else ""
        say(f"{name}: {own['images']:,} images, groups by {own['group_rule']}{top5}, ECE {own['ece']:.3f}, MCE {own['mce']:.3f}{missing}")


def row(finished: Row) -> None:
    """Print a finished run's numbers."""
    summaries({"val": finished["val"], "test": finished["test"]})
    best = finished["best_validation"]
    beside = f"; best on validation: epoch {best['epoch']} with balanced {_percent(best['balanced'])}" if best else ""
    marks = f"; {'; '.join(finished['data']['marks'])}" if finished["data"]["marks"] else ""
    say(
        f"weights: {finished['selection']}{beside}; test-time averaging: {finished['tta']}; {finished['parameters']:,} parameters; "
        f"{finished['minutes']:.1f} minutes; split {finished['data']['hash'][:12]}{marks}"
    )


def recipe(own: Recipe) -> None:
    """Print a recipe: docstring, keywords, source."""
    from rich.syntax import Syntax

    console = _console()
    console.print(Text(own.name, style="bold"), Text(f"({own.target})", style="dim"))
    console.print(Text(own.doc + "\n"))
    rows = [
        [f"--{name.replace('_', '-')}", one.kind, "required" if one.required else str(one.default)] for name, one in own.parameters.items()
    ]
    console.print(_table(["keyword", "type", "default"], rows, left=3))
    console.print()
    console.print(Syntax(own.source, "python", background_color="default", word_wrap=True))


def facts(found: Mapping[str, Any]) -> None:
    """Print what is to know about data: histogram, imbalance, groups, what cannot be evaluated."""
    images = found["images"]
    console = _console()
    console.print(
        Text(found["name"], style="bold"), Text(f"{len(found['classes'])} classes, {found['size']} px, split {found['hash'][:12]}")
    )
    say(f"images: {images['train']:,} train, {images['val']:,} validation, {images['test']:,} test ({found['protocol']} protocol)")
    say(f"largest class {found['largest']:,}, smallest {found['smallest']:,}: imbalance {found['imbalance']:.1f}, Gini {found['gini']:.2f}")
    groups = ", ".join(f"{name} {own['classes']} classes ({own['images']:,} images)" for name, own in found["groups"]["members"].items())
    say(f"groups by {found['groups']['rule']}: {groups}\n")
    console.print(_histogram(found["classes"], largest=found["largest"]))
    for kind, names in (("validation", found["not_validated"]), ("test", found["not_tested"])):
        if names and images["val" if kind == "validation" else "test"]:
            shown = ", ".join(names[:10]) + (f" and {len(names) - 10} more" if len(names) > 10 else "")
            warn(f"too small to evaluate, no {kind} image: {len(names)} of {len(found['classes'])} classes ({shown})")
        elif names:
            warn(f"there are no {kind} images")
    for mark in found["marks"]:
        say(f"note: {mark}")
    for warning in found["warnings"]:
        warn(warning)
    console.print()


def _histogram(classes: Sequence[Mapping[str, Any]], *, largest: int) -> Table:
    ordered = sorted(classes, key=lambda own: -own["source"])
    half = HISTOGRAM // 2
    shown = ordered if len(ordered) <= HISTOGRAM else [*ordered[:half], None, *ordered[-half:]]
    table = Table(box=None, padding=(0, 1), header_style="dim")
    for name, justify in (
        ("class", "left"),
        ("", "left"),
        ("all", "right"),
        ("train", "right"),
        ("val", "right"),
        ("test", "right"),
        ("group", "left"),
    ):
        table.add_column(name, justify=justify, no_wrap=True)  # type: ignore[arg-type]
    colours = {"many": "green", "medium": "yellow", "few": "red"}
    for own in shown:
        if own is None:
            table.add_row(Text(f"... {len(ordered) - 2 * half} more", style="dim"))
            continue
        bar = Text("█" * max(round(BAR * own["source"] / largest), 1), style=colours.get(own["group"], ""))
        numbers = (f"{own[name]:,}" for name in ("source", "train", "val", "test"))
        table.add_row(Text(own["name"], overflow="ellipsis"), bar, *numbers, own["group"])
    return table


def compared(folders: Sequence[Path], *, across: Sequence[str], format: str, out: Path | None) -> None:
    """Compare runs and print the table, or write it to a file."""
    from longtail.report.comparison import compare, to_csv, to_markdown
    from longtail.report.rows import read_row

    found = compare([read_row(folder) for folder in folders], across=across)
    if out is not None or format != "table":
        text = to_csv(found) if format == "csv" else to_markdown(found)
        if out is None:
            print(text, end="")
            return
        out.parent.mkdir(parents=True, exist_ok=True)
        out.write_text(text, encoding="utf-8")
        say(f"written: {out}")
        return
    console, columns, cells = _console(), found.columns(), found.cells()
    left = 1 + len(found.lines[0].across)
    whole = _table(columns, cells, left=left)
    console.print()
    if Measurement.get(console, console.options.update(max_width=10_000), whole).maximum <= console.width:
        console.print(whole)
    else:  # a narrow terminal: the scores, then the rest
        cut = left + 6
        console.print(_table(columns[:cut], [own[:cut] for own in cells], left=left))
        console.print()
        console.print(_table([columns[0], *columns[cut:]], [[own[0], *own[cut:]] for own in cells]))
    console.print()
    say("percent; mean ± sample standard deviation over seeds")
    say("the same for all: " + "; ".join(f"{name}: {value}" for name, value in found.agreed.items()))
    for note in found.notes:
        say(f"note: {note}")
