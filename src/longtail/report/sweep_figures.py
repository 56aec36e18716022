"""The figures that named sweeps draw: numbers of finished runs over a keyword or over epochs."""

from __future__ import annotations

import statistics
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from longtail.errors import LongtailError
from longtail.records.row import Row, Summary
from longtail.report import curves
from longtail.report.agreement import check_headline
from longtail.report.charts import Line, chart
from longtail.report.folders import read_folder
from longtail.report.rows import read_rows


def write(plot: Mapping[str, str], folders: Sequence[Path], path: Path) -> list[Path]:
    """Draw finished runs into `path` with the suffix .svg: {"x": KEYWORD}, or {"x": "epoch", "lines": KEYWORD}.

    Over a keyword, test accuracy and, in a second picture, its calibration; over epochs, the headline on validation, where there are
    validation images, and the training loss.
    """
    rows = read_rows(folders)
    if plot["x"] == "epoch":
        headline = check_headline(rows)["name"]
        shown = rows[0]["labels"][headline]
        percent = shown["format"] == "percent"
        accuracy, beside = (
            over_epochs(rows, plot["lines"], f"val/{headline}", scale=100 if percent else 1),
            over_epochs(rows, plot["lines"], "loss"),
        )
        y = (
            "balanced validation accuracy"
            if headline == "balanced"
            else f"validation {shown['title']}"
        )
        drawn = {
            "": (accuracy, f"{y}{', %' if percent else ''}"),
            "-loss": (beside, "training loss"),
        }
    else:
        drawn = {
            "": (over_keyword(rows, plot["x"]), "test accuracy, %"),
            "-ece": (calibration(rows, plot["x"]), "ECE on test images"),
        }
    path.parent.mkdir(parents=True, exist_ok=True)
    written = []
    for suffix, (lines, y) in drawn.items():
        if lines:
            written.append(path.with_name(f"{path.name}{suffix}.svg"))
            written[-1].write_text(chart(lines, x=plot["x"], y=y), encoding="utf-8")
    return written


def over_keyword(rows: Sequence[Row], keyword: str) -> dict[str, Line]:
    """Test accuracy, overall and of each group, in percent over the values of a keyword: the mean over all runs with a value."""
    points = [
        (name, float(row["keywords"][keyword]), 100 * value)
        for row in rows
        for name, value in {"overall": _test(row)["top1"], **_test(row)["groups"]}.items()
        if value is not None
    ]
    return _means(points)


def calibration(rows: Sequence[Row], keyword: str) -> dict[str, Line]:
    """The expected calibration error on test images over the values of a keyword, by the confidence that the rows name."""
    return _means(
        [
            (_test(row)["confidence"], float(row["keywords"][keyword]), _test(row)["ece"])
            for row in rows
        ]
    )


def over_epochs(
    rows: Sequence[Row], keyword: str, key: str, *, scale: float = 1.0
) -> dict[str, Line]:
    """A number over the epochs of the last stage (see `curves.over_epochs`), a line for each value of a keyword: the mean over its runs."""
    points = [
        (str(row["keywords"][keyword]), epoch, scale * value)
        for row in rows
        for epoch, value in curves.over_epochs(read_folder(Path(row["folder"])), key).items()
    ]
    return _means(points)


def _test(row: Row) -> Summary:
    if row["test"] is None:
        raise LongtailError(f"expected runs with test images, got none in {row.get('folder')}")
    return row["test"]


def _means(points: Iterable[tuple[str, float, float]]) -> dict[str, Line]:
    """The mean of all values at each place of each line, from left to right."""
    found: dict[str, dict[float, list[float]]] = defaultdict(lambda: defaultdict(list))
    for name, x, value in points:
        found[name][x].append(value)
    return {
        name: [(x, statistics.fmean(values)) for x, values in sorted(own.items())]
        for name, own in found.items()
    }
