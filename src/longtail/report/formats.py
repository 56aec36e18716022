"""A comparison as text for other programs: Markdown, CSV, LaTeX."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from longtail.errors import LongtailError
from longtail.records.files import write_text
from longtail.records.scores import format_score
from longtail.report.columns import ColumnLine, ColumnTable
from longtail.report.comparison import Comparison, Line

Table = Comparison | ColumnTable
CSV_COSTS = (
    *("difference", "difference_low", "difference_high", "reference"),
    *("parameters", "epochs", "minutes", "minutes_before"),
)


def to_markdown(comparison: Table) -> str:
    """Write the table as Markdown, followed by what all rows share and the notes."""
    ranked = comparison.labels[comparison.headline["name"]]["title"]
    columns = [f"**{name}**" if name == ranked else name for name in comparison.columns()]
    left = 1 + len(comparison.lines[0].across)
    rule = [":--" if position < left else "--:" for position in range(len(columns))]
    table = [_markdown(cells) for cells in (columns, rule, *comparison.cells())]
    agreed = "; ".join(f"{name}: {value}" for name, value in comparison.agreed.items())
    notes = [
        "Percent; mean ± sample standard deviation over seeds.",
        f"Equal in all runs: {agreed or 'nothing'}.",
        *comparison.notes,
    ]
    return "\n".join([*table, "", *(f"- {note}" for note in notes)]) + "\n"


def cell(value: object) -> str:
    """The text of a CSV cell; one that a spreadsheet would run as a formula begins with a quote.

    >>> [cell(value) for value in ("=1+1", "@x", "-0.5", "plain", None)]
    ["'=1+1", "'@x", '-0.5', 'plain', '']
    """
    text = "" if value is None else str(value)
    if not text.startswith(("=", "+", "-", "@", "\t", "\r")):
        return text
    try:
        float(text)
    except ValueError:
        return f"'{text}"
    return text


def to_csv(comparison: Table) -> str:
    """Write the table as CSV: fractions at full precision, deviations and bounds as columns."""
    text = io.StringIO()
    lines = csv.writer(text, lineterminator="\n")

    def write(cells: Iterable[object]) -> None:
        lines.writerow(map(cell, cells))

    titles = [shown["title"] for shown in comparison.labels.values()]
    scores = [heading for title in titles for heading in (title, f"{title}_deviation")]
    costs = CSV_COSTS if isinstance(comparison, Comparison) else ()
    write(["method", *comparison.lines[0].across, *scores, *costs, "seeds", "n", "runs"])
    for line in comparison.lines:
        measured: list[Any] = [
            value
            for score in map(line.scores.get, comparison.labels)
            for value in ((score.mean, score.deviation) if score else (None, None))
        ]
        if isinstance(comparison, Comparison) and isinstance(line, Line):
            measured += _costs(comparison, line)
        seeds, folders = " ".join(map(str, line.seeds)), " ".join(line.folders)
        write([line.label, *line.across.values(), *measured, seeds, len(line.seeds), folders])
    return text.getvalue()


def _costs(comparison: Comparison, line: Line) -> list[Any]:
    difference = line.difference
    return [
        *(
            (difference.value, difference.low, difference.high)
            if difference
            else (None, None, None)
        ),
        comparison.reference,
        " ".join(map(str, line.parameters)),
        " / ".join(line.epochs),
        line.minutes,
        line.minutes_before,
    ]


def to_latex(comparison: Table) -> str:
    """Write the table as a LaTeX tabular with booktabs and the best scores in bold.

    Comments above it list what all rows share.
    """
    columns, best = comparison.columns(), _best(comparison)
    first = 1 + len(comparison.lines[0].across)
    body = []
    lines: Sequence[Line | ColumnLine] = comparison.lines
    for line, cells in zip(lines, comparison.cells(), strict=True):
        shown = [_latex(cell) for cell in cells]
        for position, (name, label) in enumerate(comparison.labels.items(), start=first):
            score = line.scores[name]
            if score is not None and format_score(score.mean, label) == best[name]:
                shown[position] = rf"\textbf{{{shown[position]}}}"
        body.append(shown)
    agreed = "; ".join(f"{name}: {value}" for name, value in comparison.agreed.items())
    notes = [
        "Percent; mean and sample standard deviation over seeds.",
        f"Equal in all runs: {agreed or 'nothing'}.",
        *comparison.notes,
    ]
    return "\n".join(
        [
            r"% \usepackage{booktabs}",
            *(f"% {' '.join(note.split())}" for note in notes),
            rf"\begin{{tabular}}{{{'l' * first}{'r' * (len(columns) - first)}}}",
            r"\toprule",
            " & ".join(map(_latex, columns)) + r" \\",
            r"\midrule",
            *(" & ".join(cells) + r" \\" for cells in body),
            r"\bottomrule",
            r"\end{tabular}",
            "",
        ]
    )


FORMATS: Mapping[str, Callable[[Table], str]] = {
    "markdown": to_markdown,
    "csv": to_csv,
    "latex": to_latex,
}
SUFFIXES = {".md": "markdown", ".csv": "csv", ".tex": "latex", ".txt": "markdown"}


def write(comparison: Table, path: Path, *, format: str | None = None) -> None:
    """Write a comparison to a file; by default its suffix sets the format, or Markdown."""
    suffix = path.suffix.lower()
    if format is None and suffix and suffix not in SUFFIXES:
        raise LongtailError(
            f"unknown suffix of {path}: use one of {', '.join(SUFFIXES)}, or pass --format"
        )
    write_text(path, FORMATS[format or SUFFIXES.get(suffix, "markdown")](comparison))


def _best(comparison: Table) -> dict[str, str]:
    """The best of every score as formatted, so that equal texts are all bold."""
    best = {}
    for name, label in comparison.labels.items():
        means = [
            score.mean for line in comparison.lines if (score := line.scores[name]) is not None
        ]
        better = max if label["higher_is_better"] else min
        best[name] = format_score(better(means), label) if len(means) > 1 else ""
    return best


def _markdown(cells: Sequence[str]) -> str:
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"


def _latex(text: str) -> str:
    """Escape text for LaTeX."""
    special = {
        "\\": r"\textbackslash{}",
        "~": r"\textasciitilde{}",
        "^": r"\textasciicircum{}",
        "±": r"$\pm$",
    }
    special |= {sign: rf"\{sign}" for sign in "&%$#_{}"}
    escaped = re.sub(r"[\\~^±&%$#_{}]", lambda match: special[match[0]], text)
    return re.sub(r"(?<![\w.])-(?=\d)", "$-$", escaped)  # a minus, not a hyphen
