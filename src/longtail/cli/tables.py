"""Terminal output: tables, messages and the next command to try."""

from __future__ import annotations

import os
import re
import textwrap
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.measure import Measurement
from rich.table import Table
from rich.text import Text

from longtail.errors import printable
from longtail.recipes.keywords import meanings

if TYPE_CHECKING:
    from longtail.recipes.signatures import Recipe
    from longtail.records.row import Evaluation, Row, Summary
    from longtail.records.scores import Label
    from longtail.report.columns import ColumnTable
    from longtail.report.comparison import Comparison


def _console(*, stderr: bool = False) -> Console:
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
    _console().print(printable(text), markup=False, soft_wrap=True)


def warn(text: str) -> None:
    """Print a warning to stderr."""
    line = f"warning: {printable(text)}"
    _console(stderr=True).print(line, style="yellow", markup=False, soft_wrap=True)


def next_step(*commands: str) -> None:
    """Print the next commands to try."""
    for position, command in enumerate(commands):
        line = Text.assemble(
            ("next: " if position == 0 else "  or: ", "dim"), (printable(command), "bold cyan")
        )
        _console().print(line, soft_wrap=True)


def pairs(title: str, rows: Mapping[str, str]) -> None:
    """Print names with their descriptions."""
    table = Table(box=None, show_header=False, padding=(0, 2, 0, 2))
    table.add_column(no_wrap=True, style="bold")
    table.add_column()
    for name, meaning in rows.items():
        table.add_row(Text(printable(name)), Text(printable(meaning)))
    console = _console()
    console.print(Text(printable(title), style="underline"))
    console.print(table)
    console.print()


def _table(
    columns: Sequence[str],
    rows: Sequence[Sequence[str]],
    *,
    left: int = 1,
    title: str | None = None,
    bold: str | None = None,
) -> Table:
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
    console = _console()
    console.print()
    console.print(_table(columns, rows, left=left, title=title))
    console.print()


def _percent(value: float | None) -> str:
    return "-" if value is None else f"{100 * value:.1f}"


def scores(
    summaries: Mapping[str, Summary | None],
    labels: Mapping[str, Label],
    *,
    headline: str,
    title: str | None = None,
) -> None:
    """Print the scores of several summaries, such as overall, balanced and per group."""
    from longtail.records.scores import columns, format_score

    present = {name: summary for name, summary in summaries.items() if summary is not None}
    if not present:
        say("There are no images for evaluation.")
        return
    shown = columns(labels, [score for one in present.values() for score in one["scores"]])
    rows = [
        [name, *(format_score(summary["scores"].get(score), labels[score]) for score in shown)]
        for name, summary in present.items()
    ]
    titles = [labels[score]["title"] for score in shown]
    console = _console()
    console.print()
    console.print(_table(["", *titles], rows, title=title, bold=labels[headline]["title"]))
    console.print()


def summaries(evaluation: Evaluation | Row) -> None:
    """Print the scores on validation and test, also per head if there are several, with notes."""
    splits = {"val": evaluation["val"], "test": evaluation["test"]}
    lines: dict[str, Summary | None] = {}
    for name, summary in splits.items():
        lines[name] = summary
        lines |= {
            f"{name}, {head} alone": part
            for head, part in (summary.get("heads", {}) if summary else {}).items()
        }
    scores(
        lines,
        evaluation["labels"],
        headline=evaluation["headline"]["name"],
        title="accuracy in percent",
    )
    for name, summary in splits.items():
        if summary is None:
            say(f"{name}: no images")
            continue
        without = summary["classes_without_images"]["count"]
        top5 = "" if summary["top5"] is None else f", top-5 {_percent(summary['top5'])}"
        missing = (
            f", {without} classes without images are excluded from `balanced`" if without else ""
        )
        means = ""
        if "h_mean" in summary:  # absent in rows of earlier versions
            never = (
                f" ({summary['zero_recall']} classes have recall 0)"
                if summary["zero_recall"]
                else ""
            )
            means = (
                f", macro F1 {_percent(summary['macro_f1'])}, G-mean {_percent(summary['g_mean'])},"
                " H-mean"
                f" {_percent(summary['h_mean'])}{never}"
            )
        say(
            f"{name}: {summary['images']:,} images, groups by {summary['group_rule']}{top5}{means},"
            " ECE"
            f" {summary['ece']:.3f}, MCE {summary['mce']:.3f} ({summary['confidence']},"
            f" {summary['bins']}"
            f" bins){missing}"
        )


def details(summary: Summary, names: Sequence[str]) -> None:
    """Print the worst classes, confusion by group, calibration, other priors and prediction sets.

    `names` are the class names.
    """
    if "worst" not in summary:
        say("The run has only the main scores: it was written by an earlier version.")
        return
    console = _console()
    worst = [
        [
            names[one["index"]],
            one["group"],
            f"{one['train_images']:,}",
            f"{one['images']:,}",
            _percent(one["recall"]),
            f"{_percent(one['low'])} to {_percent(one['high'])}",
            (
                f"{names[one['confused_with']]} ({one['confused_with_group']}):"
                f" {_percent(one['confused_share'])}"
            ),
        ]
        for one in summary["worst"]
        if one["confused_with"] is not None
    ]
    columns = [
        "class",
        "group",
        "train",
        "test",
        "recall",
        "95% interval",
        "most confused with",
    ]
    console.print()
    if worst:
        console.print(
            _table(
                columns,
                worst,
                left=2,
                title=f"the {len(worst)} worst classes, in percent of their images",
            )
        )
        console.print()
    console.print(
        _table(
            *_by_group(summary),
            title="by group: predicted group in percent of images, and calibration",
        )
    )
    console.print()
    priors = summary["priors"]
    ratios = {"forward": "{}:1", "uniform": "even", "backward": "1:{}"}
    headings = [ratios[prior["direction"]].format(prior["k"]) for prior in priors]
    lines = [
        ["accuracy", *(_percent(prior["accuracy"]) for prior in priors)],
        ["known prior", *(_percent(prior["known_prior"]) for prior in priors)],
    ]
    most = max(prior["k"] for prior in priors)
    title = (
        f"accuracy in percent under test priors from {most}:1 (most frequent training class :"
        " rarest)"
        f" to 1:{most}"
    )
    console.print(_table(["", *headings], lines, title=title))
    console.print()
    _conformal(summary, names)


def _by_group(summary: Summary) -> tuple[list[str], list[list[str]]]:
    """Columns and rows: correct, errors by predicted group, confidence, calibration errors."""
    confusions, rows = summary["confusions"], []
    for position, name in enumerate(confusions["groups"]):
        taken, right, bins = (
            confusions["matrix"][position],
            confusions["correct"][position],
            summary["reliability"][name],
        )
        images = sum(taken)
        if not images or bins is None:
            continue
        lost = [number - right * (to == position) for to, number in enumerate(taken)]
        sure = (
            sum(
                (mean or 0.0) * number
                for mean, number in zip(bins["confidence"], bins["images"], strict=True)
            )
            / images
        )
        by_class = summary["classwise_ece"]["groups"][name]
        errors = [f"{bins['ece']:.3f}", "-" if by_class is None else f"{by_class:.4f}"]
        rows.append(
            [
                name,
                *(_percent(number / images) for number in (right, *lost)),
                _percent(sure),
                *errors,
            ]
        )
    return [
        "",
        "correct",
        *(f"to {name}" for name in confusions["groups"]),
        "confidence",
        "ECE",
        "class-wise",
    ], rows


def _conformal(summary: Summary, names: Sequence[str]) -> None:
    if "conformal" not in summary:
        say("No prediction sets: there are no validation images to calibrate them on.")
        return
    sets = summary["conformal"]
    groups = ", ".join(
        f"{name} {_percent(value)}" for name, value in sets["groups"].items() if value is not None
    )
    sizes = ", ".join(
        f"{name} {value:.1f}" for name, value in sets["size_groups"].items() if value is not None
    )
    sources = {"class": "class", "group": "group", "all": "all", "nothing": "no"}
    calibrated = [
        f"{number:,} classes by {sources[name]} images"
        for name, number in sets["calibrated_on"].items()
        if number
    ]
    say(
        f"Prediction sets: nominal coverage {_percent(sets['level'])}%, measured"
        f" {_percent(sets['coverage'])}% of the images ({groups}; worst class"
        f" {names[sets['worst']['index']]} {_percent(sets['worst']['coverage'])}), calibrated on"
        f" {sets['images']:,} validation images ({', '.join(calibrated)})."
    )
    single = (
        f"; sets of one class are correct in {_percent(sets['single_correct'])}%"
        if sets["single_correct"] is not None
        else ""
    )
    say(
        f"They contain {sets['size']:.1f} classes on average ({sizes}):"
        f" {_percent(sets['multiple'])}% of the sets have more than one,"
        f" {_percent(sets['empty'])}% are empty, where the network should abstain{single}."
    )


def row(finished: Row) -> None:
    """Print the results of a finished run."""
    from longtail.records.scores import format_score

    summaries(finished)
    best, shown = finished["best_validation"], finished["labels"][finished["headline"]["name"]]
    beside = (
        f"; best on validation: epoch {best['epoch']} with {shown['title']}"
        f" {format_score(best['value'], shown)}"
        if best
        else ""
    )
    before = (
        f" after {finished['minutes_before']:.1f} of other runs"
        if finished.get("minutes_before")
        else ""
    )
    caveats = f"; {'; '.join(finished['data']['caveats'])}" if finished["data"]["caveats"] else ""
    say(
        f"weights: {finished['selection']}{beside}; test-time augmentation: {finished['tta']};"
        f" {finished['parameters']:,} parameters; {finished['minutes']:.1f} minutes{before}; split"
        f" {finished['data']['hash'][:12]}{caveats}"
    )


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

    console = _console()
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
    console.print(_table(["keyword", "type", "default", "meaning"], rows, left=4))
    console.print()
    console.print(Syntax(shown.source, "python", background_color="default", word_wrap=True))


def print_table(table: Table) -> None:
    """Print a table of rich."""
    _console().print(table)


def print_comparison(comparison: Comparison | ColumnTable) -> None:
    """Print a comparison, as two tables if the terminal is too narrow for one."""
    console, columns, cells = _console(), comparison.columns(), comparison.cells()
    left = 1 + len(comparison.lines[0].across)
    ranked = comparison.labels[comparison.headline["name"]]["title"]
    table = _table(columns, cells, left=left, bold=ranked)
    console.print()
    width = Measurement.get(console, console.options.update(max_width=10_000), table).maximum
    if width <= console.width:
        console.print(table)
    else:  # the scores, then the rest
        cut = left + len(comparison.labels)
        scores = [line[:cut] for line in cells]
        console.print(_table(columns[:cut], scores, left=left, bold=ranked))
        console.print()
        rest = [[line[0], *line[cut:]] for line in cells]
        console.print(_table([columns[0], *columns[cut:]], rest))
    console.print()
    say("percent; mean ± sample standard deviation over seeds")
    say(
        "equal in all runs: "
        + "; ".join(f"{name}: {value}" for name, value in comparison.agreed.items())
    )
    for note in comparison.notes:
        say(f"note: {note}")
