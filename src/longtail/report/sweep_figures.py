"""Figures of sweeps and searches: a score over a keyword, over epochs, or of every trial."""

from __future__ import annotations

import statistics
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from markupsafe import Markup

from longtail.errors import LongtailError
from longtail.records.files import write_text
from longtail.records.row import Row, Summary
from longtail.report import svg
from longtail.report.agreement import check_headline
from longtail.report.curves import metric_by_epoch
from longtail.report.folders import read_folder
from longtail.report.rows import read_rows
from longtail.report.svg import Axis, Line


def write_sweep_figures(plot: Mapping[str, str], folders: Sequence[Path], path: Path) -> list[Path]:
    """Plot finished runs into `path` with the suffix .svg.

    With {"x": NAME}, test accuracy and its calibration over a keyword. With {"x": NAME,
    "lines": NAME, "score": SCORE}, a score of the test images, with one line per value of `lines`;
    a NAME is a keyword, a data flag, "recipe" or "parameters". With
    {"x": "epoch", "lines": KEYWORD}, the headline on validation, where there are validation
    images, and the training loss over epochs.
    """
    rows = read_rows(folders)
    if plot["x"] == "epoch":
        headline = check_headline(rows)["name"]
        label = rows[0]["labels"][headline]
        scale, unit = (100, ", %") if label["format"] == "percent" else (1, "")
        score = by_epoch(rows, plot["lines"], f"val/{headline}", scale=scale)
        loss = by_epoch(rows, plot["lines"], "loss")
        plots = {
            "": (score, f"{label['description']} on validation{unit}"),
            "-loss": (loss, "training loss"),
        }
    elif "score" in plot:
        label = rows[0]["labels"][plot["score"]]
        scale, unit = (100, ", %") if label["format"] == "percent" else (1, "")
        lines = score_by(rows, plot["x"], plot["lines"], plot["score"], scale=scale)
        is_group = plot["score"] in _test(rows[0])["groups"]
        of = "accuracy of group " if is_group else ""
        plots = {"": (lines, f"{of}{label['description']} on test images{unit}")}
    else:
        plots = {
            "": (accuracy_by_keyword(rows, plot["x"]), "test accuracy, %"),
            "-ece": (ece_by_keyword(rows, plot["x"]), "ECE on test images"),
        }
    written = []
    for suffix, (lines, y) in plots.items():
        if lines:
            written.append(path.with_name(f"{path.name}{suffix}.svg"))
            x = "parameters, millions" if plot["x"] == "parameters" else plot["x"]
            write_text(written[-1], svg.line_file(lines, x=x, y=y))
    return written


def score_by(
    rows: Sequence[Row], x: str, lines: str, score: str, *, scale: float = 1.0
) -> dict[str, Line]:
    """A score of the test images over a setting, one line per value of another: means over runs.

    Args:
        rows: Of finished runs.
        x: The setting along the bottom.
        lines: The setting with a line for each value.
        score: Its name.
        scale: Factor of the score.
    """
    return _means(
        (_name(row, lines), float(_setting(row, x)), scale * value)
        for row in rows
        if (value := _test(row)["scores"].get(score)) is not None
    )


def _setting(row: Row, name: str) -> Any:
    """A keyword, a data flag, the recipe or the millions of parameters of a run."""
    if name == "parameters":
        return row["parameters"] / 1e6
    places: tuple[Mapping[str, Any], ...] = (row["keywords"], row["data"], row)
    return next((place[name] for place in places if name in place), None)


def _name(row: Row, setting: str) -> str:
    """What the line of a run is called: the recipe, or the setting with its value."""
    value = str(_setting(row, setting))
    return value if setting == "recipe" else f"{setting}={value}"


def accuracy_by_keyword(rows: Sequence[Row], keyword: str) -> dict[str, Line]:
    """Test accuracy in percent, overall and per group, over a keyword: the mean over runs."""
    return _means(
        (name, float(row["keywords"][keyword]), 100 * value)
        for row in rows
        for name, value in {"overall": _test(row)["top1"], **_test(row)["groups"]}.items()
        if value is not None
    )


def ece_by_keyword(rows: Sequence[Row], keyword: str) -> dict[str, Line]:
    """The expected calibration error on test images over a keyword, by the kind of confidence."""
    return _means(
        (_test(row)["confidence"], float(row["keywords"][keyword]), _test(row)["ece"])
        for row in rows
    )


def by_epoch(rows: Sequence[Row], keyword: str, key: str, *, scale: float = 1.0) -> dict[str, Line]:
    """A number over epochs (`metric_by_epoch`), one line per value of a keyword."""
    return _means(
        (_name(row, keyword), epoch, scale * value)
        for row in rows
        for epoch, value in metric_by_epoch(read_folder(Path(row["folder"])), key).items()
    )


def _test(row: Row) -> Summary:
    if row["test"] is None:
        raise LongtailError(f"expected runs with test images, got none in {row.get('folder')}")
    return row["test"]


def _means(points: Iterable[tuple[str, float, float]]) -> dict[str, Line]:
    """The mean of all values per line and position, sorted by position."""
    lines: dict[str, dict[float, list[float]]] = defaultdict(lambda: defaultdict(list))
    for name, x, value in points:
        lines[name][x].append(value)
    return {
        name: [(x, statistics.fmean(values)) for x, values in sorted(line.items())]
        for name, line in lines.items()
    }


@dataclass(frozen=True)
class Panel:
    """A keyword of a search: its value and score in every trial."""

    name: str
    points: Sequence[tuple[Any, float]]
    log: bool = False


def search_plot(panels: Sequence[Panel], *, y: str, higher_is_better: bool = True) -> Markup:
    """Panels side by side with a shared y axis; the best trial is highlighted.

    >>> panels = [Panel("tau", [(0.5, 60.0), (1.5, 70.0)]), Panel("network", [("a", 60.0)])]
    >>> search_plot(panels, y="accuracy, %").count("<circle")
    3
    """
    wide, gap, height = 200, 44, 260
    scores = [score for panel in panels for _, score in panel.points]
    y_ticks = svg.ticks(min(scores), max(scores))
    best = max(scores) if higher_is_better else min(scores)
    first = svg.left_of(y_ticks)
    up = Axis(y_ticks[0], y_ticks[-1], height - svg.BOTTOM, svg.TOP)

    def parts() -> Iterator[Markup]:
        yield svg.text(2, 13, y, anchor="start", style="faint")
        for position, panel in enumerate(panels):
            left = first + position * (wide + gap)
            if position == 0:
                yield from svg.y_grid(up, y_ticks, left=left, right=left + wide)
            else:
                heights = map(up.at, y_ticks)
                yield from (svg.line(left, at, left + wide, at, style="grid") for at in heights)
            yield svg.text(left + wide / 2, height - 6, panel.name)
            places, labels = _across(panel, left, left + wide)
            for at, label in labels.items():
                yield svg.text(at, up.start + 17, svg.cut(label, 12), style="faint")
            for at, (_, score) in zip(places, panel.points, strict=True):
                style = "solid s2" if score == best else "solid s1"
                yield svg.disc(at, up.at(score), 4, style=style)

    names = ", ".join(panel.name for panel in panels)
    words = f"{len(panels[0].points)} trials; the best has {best:g}."
    size = {"width": first + len(panels) * (wide + gap), "height": height}
    return svg.drawing(parts(), title=f"{y} over {names}", words=words, **size)


def _across(panel: Panel, left: float, right: float) -> tuple[list[float], dict[float, str]]:
    """The x positions of the points of a panel, and the labels of the axis."""
    values = [value for value, _ in panel.points]
    if not all(isinstance(value, int | float) and not isinstance(value, bool) for value in values):
        names = sorted(set(map(str, values)))
        axis = Axis(-0.5, len(names) - 0.5, left, right)
        places = {name: axis.at(place) for place, name in enumerate(names)}
        return [places[str(value)] for value in values], {at: text for text, at in places.items()}
    low, high = min(values), max(values)
    spread = (low, high) if low < high else (low / 2, low * 2) if panel.log else (low - 1, low + 1)
    axis = Axis(*spread, left + 12, right - 12, log=panel.log)
    return [axis.at(value) for value in values], {axis.at(end): f"{end:.3g}" for end in (low, high)}
