"""Curves of a training: what the journals of a run show by epoch."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import chain
from typing import Any

import numpy as np
from markupsafe import Markup

from longtail.report import svg
from longtail.report.folders import Finished
from longtail.report.svg import Line

GROUPS = {"balanced": "s6", "many": "s0 d3", "medium": "s0 d2", "few": "s1"}
"""Line styles of groups, with different dashes; the tail has the accent colour."""


def training_curves(run: Finished, stage: str) -> list[Markup]:
    """Plots of a stage: terms of the loss, validation by group and head, learning rate, notes."""
    journal = run.journals[stage]
    epochs = [line for line in journal if line.get("kind") == "epoch"]
    steps = epochs[-1]["step"] / epochs[-1]["epoch"] if epochs else 1
    dense = epochs if len(epochs) > 2 else journal
    validation = f"{metric_prefix(run, stage)}val/"
    headline, labels = run.row["headline"]["name"], run.row["labels"]
    shares = [name for name, label in labels.items() if label["format"] == "percent"]
    scale, unit = (100.0, ", %") if headline in shares else (1.0, "")
    shown = []

    def curve(key: str, lines: Sequence[Mapping[str, Any]], scale: float = 1.0) -> Line:
        return [
            (line["step"] / steps, scale * line[key])
            for line in lines
            if key in line and np.isfinite(line[key])
        ]

    def keys(start: str) -> list[str]:
        return [key for key in dict.fromkeys(chain(*dense)) if key.startswith(start)]

    def plot(
        lines: Mapping[str, Line], title: str, y: str, styles: Mapping[str, str] | None = None
    ) -> None:
        known = {name: points for name, points in lines.items() if points}
        if known:
            shown.append(svg.line_plot(known, title=title, x="epoch", y=y, styles=styles))

    terms = {key.removeprefix("terms/"): curve(key, dense) for key in keys("terms/")}
    title = "Training loss" if len(terms) == 1 else "Training loss by term"
    plot(terms, title, title.lower())
    if headline not in shares:
        title = labels[headline]["title"]
        plot({title: curve(f"{validation}{headline}", epochs)}, f"Validation: {title}", title)
    groups = {
        labels[name]["title"]: curve(f"{validation}{name}", epochs, 100.0)
        for name in sorted(shares, key=lambda name: name != headline)
        if name == headline or name != "top1"
    }
    plot(groups, "Validation accuracy by group", "validation accuracy, %", GROUPS)
    heads = {
        key.split("/")[-2]: curve(key, epochs, scale)
        for key in keys(validation)
        if key.endswith(f"/{headline}") and key != f"{validation}{headline}"
    }
    plot(heads, "Validation accuracy by head", labels[headline]["description"] + unit)
    plot({"rate": curve("rate", journal)}, "Learning rate", "learning rate", {"rate": "s0"})
    for key in keys("notes/"):
        name = key.removeprefix("notes/")
        plot({name: curve(key, dense)}, f"Note: {name}", name, {name: "s0"})
    return shown


def metric_prefix(run: Finished, stage: str) -> str:
    """The prefix of "val/..." in the journal for the selected weights."""
    headline, (first, *more) = run.row["headline"]["name"], run.row["selection"].split(", ")
    for average in (first.removeprefix("best ").partition("/")[0], *more):
        if any(f"{average}/val/{headline}" in line for line in run.journals[stage]):
            return f"{average}/"
    return ""


def metric_by_epoch(run: Finished, key: str) -> dict[float, float]:
    """A number by epoch of the last stage.

    Of the weights that were selected, such as "val/balanced", or "loss", the sum of its terms.
    """
    if not run.journals:
        return {}
    stage = [*run.journals][-1]
    prefix, values = metric_prefix(run, stage), {}
    for line in run.journals[stage]:
        if line.get("kind") == "epoch":
            terms = [value for name, value in line.items() if name.startswith("terms/")]
            value = sum(terms) if key == "loss" and terms else line.get(f"{prefix}{key}")
            if value is not None and np.isfinite(value):
                values[float(line["epoch"])] = float(value)
    return values
