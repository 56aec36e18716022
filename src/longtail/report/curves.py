"""How training went, from the journals of a run: drawings of a stage, and numbers over its epochs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from markupsafe import Markup

from longtail.report import drawings
from longtail.report.drawings import GROUPS
from longtail.report.folders import Finished


def curves(run: Finished, stage: str) -> list[Markup]:
    """The drawings of a stage: terms of the loss, validation by group, the learning rate, and whatever else was noted."""
    lines = run.journals[stage]
    epochs = [line for line in lines if line.get("kind") == "epoch"]
    steps = epochs[-1]["step"] / epochs[-1]["epoch"] if epochs else 1
    dense = epochs if len(epochs) > 2 else lines
    prefix = judged_prefix(run, stage)

    def line(
        name: str, over: Sequence[Mapping[str, Any]], scale: float = 1.0
    ) -> list[tuple[float, float]]:
        return [
            (own["step"] / steps, scale * own[name])
            for own in over
            if name in own and np.isfinite(own[name])
        ]

    def named(start: str, over: Sequence[Mapping[str, Any]]) -> list[str]:
        return [
            name
            for name in dict.fromkeys(key for own in over for key in own)
            if name.startswith(start)
        ]

    shown = []
    terms = {name.removeprefix("terms/"): line(name, dense) for name in named("terms/", dense)}
    if any(terms.values()):
        title = "Training loss" if len(terms) == 1 else "Training loss by term"
        shown.append(
            drawings.lines(
                {own: line for own, line in terms.items() if line},
                title=title,
                x="epoch",
                y=title.lower(),
            )
        )
    headline, labels = run.row["headline"]["name"], run.row["labels"]
    names = [
        name for name in dict.fromkeys([headline, *labels]) if name == headline or name != "top1"
    ]
    plain = {name for name in names if labels[name]["format"] == "plain"}
    judged = {
        name: line(f"{prefix}val/{name}", epochs, 100.0) for name in names if name not in plain
    }
    judged = {labels[name]["title"]: own for name, own in judged.items() if own}
    for name in plain & {headline}:
        if own := line(f"{prefix}val/{name}", epochs):
            title = labels[name]["title"]
            shown.append(
                drawings.lines({title: own}, title=f"Validation: {title}", x="epoch", y=title)
            )
    if judged:
        shown.append(
            drawings.lines(
                judged,
                title="Validation accuracy by group",
                x="epoch",
                y="validation accuracy, %",
                styles=GROUPS,
            )
        )
    heads = {
        name.split("/")[-2]: line(name, epochs, 1.0 if headline in plain else 100.0)
        for name in named(f"{prefix}val/", epochs)
        if name.endswith(f"/{headline}") and name != f"{prefix}val/{headline}"
    }
    if heads:
        shown.append(
            drawings.lines(
                heads,
                title="Validation accuracy by head",
                x="epoch",
                y=labels[headline]["description"] + ("" if headline in plain else ", %"),
            )
        )
    rate = line("rate", lines)
    if rate:
        shown.append(
            drawings.lines(
                {"rate": rate},
                title="Learning rate",
                x="epoch",
                y="learning rate",
                styles={"rate": "s0"},
            )
        )
    for name in named("notes/", dense):
        if own := line(name, dense):
            short = name.removeprefix("notes/")
            shown.append(
                drawings.lines(
                    {short: own}, title=f"Note: {short}", x="epoch", y=short, styles={short: "s0"}
                )
            )
    return shown


def judged_prefix(run: Finished, stage: str) -> str:
    """What stands before "val/..." in the journal for the weights that were kept: those of an average, where one was."""
    first, *more = run.row["selection"].split(", ")
    for kept in (first.removeprefix("best ").partition("/")[0], *more):
        if any(f"{kept}/val/{run.row['headline']['name']}" in line for line in run.journals[stage]):
            return f"{kept}/"
    return ""


def over_epochs(run: Finished, key: str) -> dict[float, float]:
    """A number over the epochs of the last stage: "val/balanced" of the weights that were kept, or "loss", the sum of the terms."""
    if not run.journals:
        return {}
    stage = [*run.journals][-1]
    prefix, found = judged_prefix(run, stage), {}
    for line in run.journals[stage]:
        if line.get("kind") == "epoch":
            terms = [value for name, value in line.items() if name.startswith("terms/")]
            value = sum(terms) if key == "loss" and terms else line.get(f"{prefix}{key}")
            if value is not None and np.isfinite(value):
                found[float(line["epoch"])] = float(value)
    return found
