"""`longtail report`: one run, or several compared, as one self-contained HTML file."""

from __future__ import annotations

import base64
import hashlib
import string
import sys
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

from longtail.errors import LongtailError
from longtail.records.files import atomic_write
from longtail.records.scores import with_unit
from longtail.report.cells import Cell
from longtail.report.columns import ColumnTable, compare_by
from longtail.report.comparison import Comparison, Score, compare
from longtail.report.curves import metric_by_epoch
from longtail.report.folders import Finished, read_folder
from longtail.report.rows import read_all
from longtail.report.sections import section
from longtail.report.side_by_side import side_by_side
from longtail.report.svg import Bar, bar_chart, line_plot, series

TEMPLATES = Path(__file__).parent / "templates"


def write(
    folders: Sequence[Path], out: Path, *, across: Sequence[str] = (), by: Sequence[str] = ()
) -> list[str]:
    """Write the report of finished runs to `out`; returns warnings, such as runs that cannot be
    ranked.
    """
    page, warnings = build(folders, across=across, by=by)
    with atomic_write(out) as part:
        part.write_text(page, encoding="utf-8", errors="backslashreplace")
    return warnings


def build(
    folders: Sequence[Path], *, across: Sequence[str] = (), by: Sequence[str] = ()
) -> tuple[str, list[str]]:
    """The report of finished runs as HTML, with warnings. Runs that cannot be ranked still get
    their sections. With data flags in `by`, the headline score has one column for each value.
    """
    if not folders:
        raise LongtailError("expected at least one run to report on, got none")
    if by and len({*folders}) == 1:
        raise LongtailError("--by has no effect on the report of one run: remove it")
    runs = read_all(read_folder, dict.fromkeys(folders))
    sections = [section(run) for run in runs]
    missing = [f"{run.folder}: {message}" for run in runs for message in run.missing]
    values: dict[str, Any] = {"runs": sections, "title": _title(runs), "refused": None}
    if len(runs) == 1:
        values |= {"title": sections[0]["title"], "comparison": None}
        return render("runs.html", **values), missing
    rows = [run.row for run in runs]
    if by:
        values["columns"] = _columns(compare_by(rows, by, across=across))
        return render("runs.html", **values), missing
    try:
        comparison = compare(rows, across=across)
    except LongtailError as error:
        values |= {"comparison": None, "refused": str(error)}
        return render("runs.html", **values), [*missing, str(error)]
    letters = {
        folder: letter
        for line, letter in zip(comparison.lines, _letters(), strict=False)
        for folder in line.folders
    }
    for run, shown in zip(runs, sections, strict=True):
        shown["letter"] = letters[str(run.folder)]
    order = sorted(range(len(runs)), key=lambda index: [*letters].index(str(runs[index].folder)))
    values["runs"] = [sections[index] for index in order]
    values["comparison"] = _comparison(comparison, {str(run.folder): run for run in runs})
    return render("runs.html", **values), missing


def _title(runs: Sequence[Finished]) -> str:
    data = " and ".join(dict.fromkeys(run.row["data"]["name"] for run in runs))
    return f"{len(runs)} runs on {data}"


def _letters() -> list[str]:
    return [
        *string.ascii_uppercase,
        *(
            f"{first}{second}"
            for first in string.ascii_uppercase
            for second in string.ascii_uppercase
        ),
    ]


def _comparison(comparison: Comparison, runs: Mapping[str, Finished]) -> dict[str, Any]:
    styles = [series(number) for number in range(len(comparison.lines))]
    letters = _letters()[: len(comparison.lines)]
    bars: list[Markup] = []
    headline = comparison.headline["name"]
    for name in dict.fromkeys([headline, *comparison.labels]):
        if name in {"top1", "ece"} - {headline} or comparison.labels[name]["format"] != "percent":
            continue  # they are in the table; bars are for accuracies of classes and groups
        score_bars = _bars(letters, styles, [line.scores[name] for line in comparison.lines])
        title = f"{comparison.labels[name]['title']}, % of test images"
        bars.append(bar_chart(score_bars, title=title, unit="percent", width=240))
    return {
        "sentence": _sentence(comparison),
        "tables": _tables(comparison, letters),
        "agreed": list(comparison.agreed.items()),
        "notes": comparison.notes,
        "bars": bars,
        "legend": list(zip(letters, styles, _labels(comparison), strict=True)),
        "full": [
            (letter, line.label)
            for letter, line in zip(letters, comparison.lines, strict=True)
            if " " in line.label
        ],
        "curves": _curves(comparison, runs, dict(zip(letters, styles, strict=True))),
        "analyses": side_by_side(
            {
                letter: runs[line.folders[0]].analyses
                for letter, line in zip(letters, comparison.lines, strict=True)
            }
        ),
    }


def _bars(
    letters: Sequence[str], styles: Sequence[str], scores: Sequence[Score | None]
) -> list[Bar]:
    """A bar in percent for each line of a table, with its deviation over seeds."""
    bars = []
    for letter, style, score in zip(letters, styles, scores, strict=True):
        if score is None:
            bars.append(Bar(letter, None, "no images"))
            continue
        mean, spread = 100 * score.mean, 100 * (score.deviation or 0.0)
        text = f"{mean:.1f}" + (f" ± {spread:.1f}" if score.deviation is not None else "")
        low, high = (mean - spread, mean + spread) if spread else (None, None)
        bars.append(Bar(letter, mean, text, low, high, style))
    return bars


def _columns(table: ColumnTable) -> dict[str, Any]:
    """The headline score of each method, with a column and a figure for each value of a flag."""
    styles = [series(number) for number in range(len(table.lines))]
    letters = _letters()[: len(table.lines)]
    figures = [
        bar_chart(
            _bars(letters, styles, [line.scores[name] for line in table.lines]),
            title=f"{label['title']}, % of test images",
            unit="percent",
            width=240,
        )
        for name, label in table.labels.items()
        if label["format"] == "percent"
    ]
    rows = []
    for letter, line, (method, *texts, seeds) in zip(
        letters, table.lines, table.cells(), strict=True
    ):
        means = [None if score is None else score.mean for score in line.scores.values()]
        rows.append([letter, method, *zip(texts, means, strict=True), seeds])
    return {
        "headings": ["", *table.columns()],
        "rows": rows,
        "numbers": range(2, 2 + len(table.labels)),
        "agreed": list(table.agreed.items()),
        "notes": table.notes,
        "bars": figures,
        "legend": list(zip(letters, styles, [line.label for line in table.lines], strict=True)),
    }


def _methods(comparison: Comparison) -> list[str]:
    """The label of each line on the page: the recipe alone if no other line uses it, because
    keywords take much space.
    """
    recipes = [line.label.partition(" ")[0] for line in comparison.lines]
    return [
        recipe if recipes.count(recipe) == 1 else line.label
        for recipe, line in zip(recipes, comparison.lines, strict=True)
    ]


def _labels(comparison: Comparison) -> list[str]:
    return [
        ", ".join([method, *line.across.values()])
        for method, line in zip(_methods(comparison), comparison.lines, strict=True)
    ]


def _reference(comparison: Comparison) -> int:
    """The index of the line that differences are measured against."""
    return [", ".join([line.label, *line.across.values()]) for line in comparison.lines].index(
        comparison.reference
    )


def _sentence(comparison: Comparison) -> str:
    best, labels, reference = comparison.lines[0], _labels(comparison), _reference(comparison)
    score, shown = (
        best.scores[comparison.headline["name"]],
        comparison.labels[comparison.headline["name"]],
    )
    name = shown["description"]
    if score is None:
        return f"There is nothing to measure {name} on."
    value = with_unit(score.mean, shown)
    if len(comparison.lines) == 1:
        return f"{labels[0]} has a {name} of {value} over {len(best.seeds)} seeds."
    most = "highest" if comparison.headline["higher_is_better"] else "lowest"
    words = f"{labels[0]} has the {most} {name}, {value}"
    interval = best.difference if reference else comparison.lines[1].difference
    if interval is None:
        return f"{words}."
    points, low, high = (
        (interval.value, interval.low, interval.high)
        if reference
        else (-interval.value, -interval.high, -interval.low)
    )
    sure = (
        "more than other test images of these classes would change"
        if low > 0
        else "no more than other test images could change"
    )
    over = labels[reference or 1]
    return (
        f"{words}: {100 * points:+.1f} points over {over} (95% interval {100 * low:+.1f} to"
        f" {100 * high:+.1f}), {sure}."
    )


def _tables(comparison: Comparison, letters: Sequence[str]) -> list[dict[str, Any]]:
    """The comparison as two tables, because one would be too wide for the page: scores, and
    training cost.
    """
    across, reached = (
        len(comparison.lines[0].across),
        len(comparison.labels) + (len(comparison.lines) > 1),
    )
    columns = [
        name.replace(comparison.reference, _labels(comparison)[_reference(comparison)])
        for name in comparison.columns()
    ]
    first: list[list[Cell]] = []
    second: list[list[Cell]] = []
    for letter, method, line, cells in zip(
        letters, _methods(comparison), comparison.lines, comparison.cells(), strict=True
    ):
        values: list[float | None] = [
            score.mean if score else None for score in map(line.scores.get, comparison.labels)
        ]
        values += (
            [line.difference.value if line.difference else None]
            if len(comparison.lines) > 1
            else []
        )
        values += [
            line.parameters[0],
            float(sum(int(count) for count in line.epochs[0].split(" + ") if count)),
        ]
        values += [line.minutes + line.minutes_before, len(line.seeds)]
        numbers = list(zip(cells[1 + across :], values, strict=True))
        named = f"{letter}\u00a0 {method}"
        first.append([named, *cells[1 : 1 + across], *numbers[:reached]])
        second.append([named, *numbers[reached:]])
    cut = 1 + across + reached
    return [
        {
            "columns": columns[:cut],
            "rows": first,
            "numbers": [*range(1 + across, cut)],
            "ascending": not comparison.headline["higher_is_better"],
            "sorted": columns.index(comparison.labels[comparison.headline["name"]]["title"]),
        },
        {
            "columns": [columns[0], *columns[cut:]],
            "rows": second,
            "numbers": [*range(1, 1 + len(columns) - cut)],
        },
    ]


def _curves(
    comparison: Comparison, runs: Mapping[str, Finished], styles: Mapping[str, str]
) -> list[Markup]:
    """Validation accuracy and training loss over the epochs of the last stage: one line for
    each method, the mean over its seeds.
    """
    shown = []
    headline = comparison.labels[comparison.headline["name"]]
    name, percent = headline["description"], headline["format"] == "percent"
    for key, title, y, scale in (
        (
            f"val/{comparison.headline['name']}",
            f"Validation: {name}",
            f"{name} on validation{', %' if percent else ''}",
            100.0 if percent else 1.0,
        ),
        ("val/few", "Validation: the rarest classes", "accuracy on few, validation, %", 100.0),
        ("loss", "Training loss", "training loss", 1.0),
    ):
        curves = {}
        for letter, line in zip(styles, comparison.lines, strict=True):
            curves[letter] = _mean([metric_by_epoch(runs[folder], key) for folder in line.folders])
        plotted = {
            letter: [(x, scale * value) for x, value in line]
            for letter, line in curves.items()
            if line
        }
        if plotted:
            shown.append(
                line_plot(plotted, title=title, x="epoch of the last stage", y=y, styles=styles)
            )
    return shown


def _mean(curves: Sequence[Mapping[float, float]]) -> list[tuple[float, float]]:
    shared = set.intersection(*(set(curve) for curve in curves))
    return [(epoch, float(np.mean([curve[epoch] for curve in curves]))) for epoch in sorted(shared)]


# ------------------------------------------------------------------------------------- templates


def render(template: str, **values: Any) -> str:
    """Fill a template that extends `page.html`. Text is escaped; only `Markup`, such as one of
    our charts, is inserted unchanged.

    The page's content security policy blocks all loading and every script but `page.js`.
    """
    script = _read("page.js")
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    # `import longtail` here would import torch too
    shell = {
        "style": Markup(_read("svg.css") + _read("page.css")),
        "script": Markup(script),
        "script_hash": Markup(f"sha256-{digest}"),
        "version": sys.modules["longtail"].__version__,
    }
    return _templates().get_template(template).render(**shell, **values)


@cache
def _templates() -> Environment:
    return Environment(
        loader=FileSystemLoader(TEMPLATES),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )


def _read(name: str) -> str:
    return (TEMPLATES / name).read_text(encoding="utf-8")
