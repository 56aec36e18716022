"""What the terminal shows: tables, bars, and the next thing to do."""

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

from longtail.recipes.keywords import meanings

if TYPE_CHECKING:
    from longtail.recipes.signatures import Recipe
    from longtail.records.row import Evaluation, Row, Summary
    from longtail.records.scores import Label
    from longtail.report.columns import ColumnTable
    from longtail.report.comparison import Comparison


def _console(*, stderr: bool = False) -> Console:
    """Made anew each time, so that it follows a redirected stdout; silent in all processes but the
    first.
    """
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
    _console().print(text, markup=False, soft_wrap=True)


def warn(text: str) -> None:
    """Print a warning, beside what may be piped."""
    _console(stderr=True).print(f"warning: {text}", style="yellow", markup=False, soft_wrap=True)


def next_step(*commands: str) -> None:
    """End with what to do next."""
    for position, command in enumerate(commands):
        line = Text.assemble(
            ("next: " if position == 0 else "  or: ", "dim"), (command, "bold cyan")
        )
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
        title=title,
        title_justify="left",
        padding=(0, 1),
        collapse_padding=True,
        pad_edge=False,
        show_edge=False,
    )
    for position, column in enumerate(columns):
        # May be broken where the terminal is narrow; numbers may not
        words = position < left or len(column) > 12
        heading = Text(column, style="bold" if column == bold else "")
        table.add_column(
            heading,
            justify="left" if position < left else "right",
            no_wrap=not words,
            overflow="fold",
        )
    for row in rows:
        table.add_row(*map(Text, row))
    return table


def grid(
    columns: Sequence[str],
    rows: Sequence[Sequence[str]],
    *,
    left: int = 1,
    title: str | None = None,
) -> None:
    """Print rows of text under their headings; the first `left` columns are words, the others
    numbers.
    """
    console = _console()
    console.print()
    console.print(_table(columns, rows, left=left, title=title))
    console.print()


def _percent(value: float | None) -> str:
    return "-" if value is None else f"{100 * value:.1f}"


def scores(
    found: Mapping[str, Summary | None],
    labels: Mapping[str, Label],
    *,
    headline: str,
    title: str | None = None,
) -> None:
    """Print the scores of summaries side by side, such as overall, balanced and the groups."""
    from longtail.records.scores import columns, format_score

    present = {name: own for name, own in found.items() if own is not None}
    if not present:
        say("There are no images to evaluate on.")
        return
    shown = columns(labels, [score for own in present.values() for score in own["scores"]])
    rows = [
        [name, *(format_score(own["scores"].get(score), labels[score]) for score in shown)]
        for name, own in present.items()
    ]
    titles = [labels[score]["title"] for score in shown]
    console = _console()
    console.print()
    console.print(_table(["", *titles], rows, title=title, bold=labels[headline]["title"]))
    console.print()


def summaries(evaluation: Evaluation | Row) -> None:
    """Print the scores on validation and test, for each part of a head that has several, with what
    the numbers mean.
    """
    found = {"val": evaluation["val"], "test": evaluation["test"]}
    whole: dict[str, Summary | None] = {}
    for name, own in found.items():
        whole[name] = own
        whole |= {
            f"{name}, {head} alone": part
            for head, part in (own.get("heads", {}) if own else {}).items()
        }
    scores(
        whole,
        evaluation["labels"],
        headline=evaluation["headline"]["name"],
        title="accuracy in percent",
    )
    for name, own in found.items():
        if own is None:
            say(f"{name}: no images")
            continue
        without = own["classes_without_images"]["count"]
        top5 = "" if own["top5"] is None else f", top-5 {_percent(own['top5'])}"
        missing = f", {without} classes without images are not in `balanced`" if without else ""
        means = ""
        if "h_mean" in own:  # not in rows of earlier versions
            never = (
                f" ({own['zero_recall']} of its classes never recognised)"
                if own["zero_recall"]
                else ""
            )
            means = (
                f", macro F1 {_percent(own['macro_f1'])}, G-mean {_percent(own['g_mean'])}, H-mean"
                f" {_percent(own['h_mean'])}{never}"
            )
        say(
            f"{name}: {own['images']:,} images, groups by {own['group_rule']}{top5}{means}, ECE"
            f" {own['ece']:.3f}, MCE {own['mce']:.3f} ({own['confidence']}, {own['bins']}"
            f" bins){missing}"
        )


def details(own: Summary, names: Sequence[str]) -> None:
    """Print what stands behind the headline: the worst classes, calibration, other priors,
    prediction sets; `names` are the classes'.
    """
    if "worst" not in own:
        say("The row has the headline only: it was written by an earlier version.")
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
        for one in own["worst"]
        if one["confused_with"] is not None
    ]
    columns = [
        "class",
        "group",
        "trained",
        "tested",
        "recall",
        "95% interval",
        "most often taken for",
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
            *_by_group(own), title="by group: whose images go where, in percent, and calibration"
        )
    )
    console.print()
    priors = own["priors"]
    ratios = {"forward": "{}:1", "uniform": "even", "backward": "1:{}"}
    headings = [ratios[prior["direction"]].format(prior["k"]) for prior in priors]
    lines = [
        ["accuracy", *(_percent(prior["accuracy"]) for prior in priors)],
        ["told the prior", *(_percent(prior["known_prior"]) for prior in priors)],
    ]
    most = max(prior["k"] for prior in priors)
    title = (
        f"accuracy in percent where the most frequent class of training is {most} times as frequent"
        " as the rarest, to the reverse"
    )
    console.print(_table(["", *headings], lines, title=title))
    console.print()
    _conformal(own, names)


def _by_group(own: Summary) -> tuple[list[str], list[list[str]]]:
    """Columns and rows: right, taken by each group, mean confidence, calibration errors."""
    confusions, rows = own["confusions"], []
    for position, name in enumerate(confusions["groups"]):
        taken, right, found = (
            confusions["matrix"][position],
            confusions["correct"][position],
            own["reliability"][name],
        )
        images = sum(taken)
        if not images or found is None:
            continue
        lost = [number - right * (to == position) for to, number in enumerate(taken)]
        sure = (
            sum(
                (mean or 0.0) * number
                for mean, number in zip(found["confidence"], found["images"], strict=True)
            )
            / images
        )
        by_class = own["classwise_ece"]["groups"][name]
        errors = [f"{found['ece']:.3f}", "-" if by_class is None else f"{by_class:.4f}"]
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
        "right",
        *(f"to {name}" for name in confusions["groups"]),
        "confidence",
        "ECE",
        "class-wise",
    ], rows


def _conformal(own: Summary, names: Sequence[str]) -> None:
    if "conformal" not in own:
        say("Prediction sets: none, because there are no validation images to calibrate them on.")
        return
    found = own["conformal"]
    groups = ", ".join(
        f"{name} {_percent(value)}" for name, value in found["groups"].items() if value is not None
    )
    sizes = ", ".join(
        f"{name} {value:.1f}" for name, value in found["size_groups"].items() if value is not None
    )
    words = {"class": "their own", "group": "their group's", "all": "all", "nothing": "no"}
    sources = [
        f"{number:,} by {words[name]} images"
        for name, number in found["calibrated_on"].items()
        if number
    ]
    say(
        f"Prediction sets promise {_percent(found['level'])}% and hold the class of"
        f" {_percent(found['coverage'])}% of the images ({groups}; worst class"
        f" {names[found['worst']['index']]} {_percent(found['worst']['coverage'])}), calibrated on"
        f" {found['images']:,} validation images ({', '.join(sources)})."
    )
    single = (
        f"; single classes are right in {_percent(found['single_correct'])}%"
        if found["single_correct"] is not None
        else ""
    )
    say(
        f"They have {found['size']:.1f} classes on average ({sizes}):"
        f" {_percent(found['multiple'])}% of the images have more than one,"
        f" {_percent(found['empty'])}% none, and there the network should abstain{single}."
    )


def row(finished: Row) -> None:
    """Print a finished run's numbers."""
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
        f"weights: {finished['selection']}{beside}; test-time averaging: {finished['tta']};"
        f" {finished['parameters']:,} parameters; {finished['minutes']:.1f} minutes{before}; split"
        f" {finished['data']['hash'][:12]}{caveats}"
    )


def unwrapped(doc: str) -> str:
    """A docstring for a terminal of any width: one line for each paragraph, indented line, or note
    such as `Cost: ...`.
    """
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


def recipe(own: Recipe) -> None:
    """Print a recipe: docstring, keywords, source."""
    from rich.syntax import Syntax

    console = _console()
    console.print(Text(own.name, style="bold"), Text(f"({own.target})", style="dim"))
    console.print(Text(unwrapped(own.doc) + "\n"))
    rows = [
        [
            f"--{name.replace('_', '-')}",
            one.kind,
            "required" if one.required else str(one.default),
            meanings(own.name).get(name, ""),
        ]
        for name, one in own.parameters.items()
    ]
    console.print(_table(["keyword", "type", "default", "meaning"], rows, left=4))
    console.print()
    console.print(Syntax(own.source, "python", background_color="default", word_wrap=True))


def draw(drawing: Table) -> None:
    """Print a table that a verb made itself."""
    _console().print(drawing)


def print_comparison(found: Comparison | ColumnTable) -> None:
    """Print a comparison: in two parts where the terminal is too narrow for one."""
    console, columns, cells = _console(), found.columns(), found.cells()
    left = 1 + len(found.lines[0].across)
    ranked = found.labels[found.headline["name"]]["title"]
    table = _table(columns, cells, left=left, bold=ranked)
    console.print()
    width = Measurement.get(console, console.options.update(max_width=10_000), table).maximum
    if width <= console.width:
        console.print(table)
    else:  # the scores, then the rest
        cut = left + len(found.labels)
        scores = [line[:cut] for line in cells]
        console.print(_table(columns[:cut], scores, left=left, bold=ranked))
        console.print()
        rest = [[line[0], *line[cut:]] for line in cells]
        console.print(_table([columns[0], *columns[cut:]], rest))
    console.print()
    say("percent; mean ± sample standard deviation over seeds")
    say(
        "the same for all: " + "; ".join(f"{name}: {value}" for name, value in found.agreed.items())
    )
    for note in found.notes:
        say(f"note: {note}")
