"""`longtail report`: one run, or several beside each other, in one file that needs nothing else."""

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
from longtail.report.comparison import Comparison, compare
from longtail.report.figures import metric_by_epoch
from longtail.report.folders import Finished, read_folder
from longtail.report.sections import Cell, section
from longtail.report.svg import Bar, bar_chart, line_plot, series

TEMPLATES = Path(__file__).parent / "templates"


def write(folders: Sequence[Path], out: Path, *, across: Sequence[str] = ()) -> list[str]:
    """Write the report of finished runs to `out`; gives what the reader should be warned of, such
    as runs that cannot be ranked.
    """
    page, warnings = build(folders, across=across)
    with atomic_write(out) as part:
        part.write_text(page, encoding="utf-8", errors="backslashreplace")
    return warnings


def build(folders: Sequence[Path], *, across: Sequence[str] = ()) -> tuple[str, list[str]]:
    """The report of finished runs as HTML, with warnings. Runs that cannot be ranked still have
    their sections.
    """
    if not folders:
        raise LongtailError("expected at least one run to report on, got none")
    runs, problems = [], []
    for folder in dict.fromkeys(folders):
        try:
            runs.append(read_folder(folder))
        except LongtailError as error:
            problems.append(str(error))
    if problems:
        raise LongtailError("\n".join(problems))
    sections = [section(run) for run in runs]
    missing = [f"{run.folder}: {own}" for run in runs for own in run.missing]
    if len(runs) == 1:
        return (
            render(
                "runs.html",
                runs=sections,
                title=sections[0]["title"],
                comparison=None,
                refused=None,
            ),
            missing,
        )
    try:
        found = compare([run.row for run in runs], across=across)
    except LongtailError as error:
        page = render(
            "runs.html", runs=sections, title=_title(runs), comparison=None, refused=str(error)
        )
        return page, [*missing, str(error)]
    letters = {
        folder: letter
        for line, letter in zip(found.lines, _letters(), strict=False)
        for folder in line.folders
    }
    for run, own in zip(runs, sections, strict=True):
        own["letter"] = letters[str(run.folder)]
    order = sorted(range(len(runs)), key=lambda own: [*letters].index(str(runs[own].folder)))
    page = render(
        "runs.html",
        runs=[sections[own] for own in order],
        title=_title(runs),
        comparison=_comparison(found, {str(run.folder): run for run in runs}),
        refused=None,
    )
    return page, missing


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


def _comparison(found: Comparison, runs: Mapping[str, Finished]) -> dict[str, Any]:
    styles = [series(number) for number in range(len(found.lines))]
    letters = _letters()[: len(found.lines)]
    bars: list[Markup] = []
    headline = found.headline["name"]
    for name in dict.fromkeys([headline, *found.labels]):
        if name in {"top1", "ece"} - {headline} or found.labels[name]["format"] != "percent":
            continue  # they are in the table; bars are for accuracies of classes and groups
        own = []
        for letter, style, line in zip(letters, styles, found.lines, strict=True):
            score = line.scores[name]
            if score is None:
                own.append(Bar(letter, None, "no images"))
                continue
            mean, spread = 100 * score.mean, 100 * (score.deviation or 0.0)
            text = f"{mean:.1f}" + (f" ± {spread:.1f}" if score.deviation is not None else "")
            own.append(
                Bar(
                    letter,
                    mean,
                    text,
                    mean - spread if spread else None,
                    mean + spread if spread else None,
                    style,
                )
            )
        title = f"{found.labels[name]['title']}, % of test images"
        bars.append(bar_chart(own, title=title, unit="percent", width=240))
    return {
        "sentence": _sentence(found),
        "tables": _tables(found, letters),
        "agreed": list(found.agreed.items()),
        "notes": found.notes,
        "bars": bars,
        "legend": list(zip(letters, styles, _labels(found), strict=True)),
        "full": [
            (letter, line.label)
            for letter, line in zip(letters, found.lines, strict=True)
            if " " in line.label
        ],
        "curves": _overlaid(found, runs, dict(zip(letters, styles, strict=True))),
    }


def _methods(found: Comparison) -> list[str]:
    """What the lines are called on the page: the recipe alone where no other line has it, for
    keywords are many and pages narrow.
    """
    recipes = [line.label.partition(" ")[0] for line in found.lines]
    return [
        recipe if recipes.count(recipe) == 1 else line.label
        for recipe, line in zip(recipes, found.lines, strict=True)
    ]


def _labels(found: Comparison) -> list[str]:
    return [
        ", ".join([method, *line.across.values()])
        for method, line in zip(_methods(found), found.lines, strict=True)
    ]


def _reference(found: Comparison) -> int:
    """The line that differences are over."""
    return [", ".join([line.label, *line.across.values()]) for line in found.lines].index(
        found.reference
    )


def _sentence(found: Comparison) -> str:
    best, labels, reference = found.lines[0], _labels(found), _reference(found)
    score, shown = best.scores[found.headline["name"]], found.labels[found.headline["name"]]
    name = shown["description"]
    if score is None:
        return f"There is nothing to measure {name} on."
    value = with_unit(score.mean, shown)
    if len(found.lines) == 1:
        return f"{labels[0]} has a {name} of {value} over {len(best.seeds)} seeds."
    most = "highest" if found.headline["higher_is_better"] else "lowest"
    words = f"{labels[0]} has the {most} {name}, {value}"
    interval = best.difference if reference else found.lines[1].difference
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


def _tables(found: Comparison, letters: Sequence[str]) -> list[dict[str, Any]]:
    """The comparison as two tables, for a page is not as wide as all its columns: what was reached,
    and what it cost.
    """
    across, reached = len(found.lines[0].across), len(found.labels) + (len(found.lines) > 1)
    columns = [
        name.replace(found.reference, _labels(found)[_reference(found)]) for name in found.columns()
    ]
    first: list[list[Cell]] = []
    second: list[list[Cell]] = []
    for letter, method, line, cells in zip(
        letters, _methods(found), found.lines, found.cells(), strict=True
    ):
        values: list[float | None] = [
            score.mean if score else None for score in map(line.scores.get, found.labels)
        ]
        values += (
            [line.difference.value if line.difference else None] if len(found.lines) > 1 else []
        )
        values += [
            line.parameters[0],
            float(sum(int(own) for own in line.epochs[0].split(" + ") if own)),
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
            "ascending": not found.headline["higher_is_better"],
            "sorted": columns.index(found.labels[found.headline["name"]]["title"]),
        },
        {
            "columns": [columns[0], *columns[cut:]],
            "rows": second,
            "numbers": [*range(1, 1 + len(columns) - cut)],
        },
    ]


def _overlaid(
    found: Comparison, runs: Mapping[str, Finished], styles: Mapping[str, str]
) -> list[Markup]:
    """Validation accuracy and training loss over the epochs of the last stage: a line for each
    method, the mean over its seeds.
    """
    shown = []
    headline = found.labels[found.headline["name"]]
    name, percent = headline["description"], headline["format"] == "percent"
    for key, title, y, scale in (
        (
            f"val/{found.headline['name']}",
            f"Validation: {name}",
            f"{name} on validation{', %' if percent else ''}",
            100.0 if percent else 1.0,
        ),
        ("val/few", "Validation: the rarest classes", "accuracy on few, validation, %", 100.0),
        ("loss", "Training loss", "training loss", 1.0),
    ):
        curves = {}
        for letter, line in zip(styles, found.lines, strict=True):
            curves[letter] = _mean([metric_by_epoch(runs[folder], key) for folder in line.folders])
        drawn = {
            letter: [(x, scale * value) for x, value in line]
            for letter, line in curves.items()
            if line
        }
        if drawn:
            shown.append(
                line_plot(drawn, title=title, x="epoch of the last stage", y=y, styles=styles)
            )
    return shown


def _mean(curves: Sequence[Mapping[float, float]]) -> list[tuple[float, float]]:
    shared = set.intersection(*(set(own) for own in curves))
    return [(epoch, float(np.mean([own[epoch] for own in curves]))) for epoch in sorted(shared)]


# ------------------------------------------------------------------------------------- templates


def render(template: str, **values: Any) -> str:
    """Fill a template that extends `page.html`. Text is escaped; only `Markup`, such as a drawing
    of
    ours, is taken as it is.

    The page's policy lets a browser load nothing and run nothing but the script of the shell.
    """
    script = _read("page.js")
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    # An import would stand for all that the package offers, torch included
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
