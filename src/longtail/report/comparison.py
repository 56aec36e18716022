"""Comparison of runs that agree on everything that would make a ranking unfair."""

from __future__ import annotations

import json
import math
import re
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np

from longtail.errors import LongtailError
from longtail.metrics.intervals import Interval, paired
from longtail.recipes import RECIPES
from longtail.recipes.signatures import read
from longtail.records.row import Row, mirrored
from longtail.records.scores import Headline, Label, columns, format_score
from longtail.records.scores import label as label_of
from longtail.report.agreement import (
    MUST_AGREE,
    TestPredictions,
    check_across,
    check_comparable,
    check_headline,
    check_unique_seeds,
    fields_of,
    read_test_predictions,
    tested,
    where,
)

ECE: Label = label_of("ece", higher_is_better=False)
"""The calibration error, which every classifier has: the last of the measured columns."""


@dataclass(frozen=True, slots=True)
class Score:
    """A number over seeds: its mean and the sample standard deviation (None for a single seed)."""

    mean: float
    deviation: float | None


@dataclass(frozen=True, slots=True)
class Line:
    """One method in the table: all its seeds."""

    label: str
    across: Mapping[str, str]  # the columns requested with `across`
    scores: Mapping[str, Score | None]  # None: nothing to measure, such as an empty group
    # Of the headline from the reference; None for the reference and without paired predictions
    difference: Interval | None
    parameters: tuple[int, ...]  # distinct values; normally one
    epochs: tuple[str, ...]  # distinct values; normally one
    minutes: float  # the mean
    minutes_before: float  # the mean of the runs that these started from, such as a teacher's
    seeds: tuple[int, ...]
    folders: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Comparison:
    """A table, best headline first. Numbers are fractions; `cells`, Markdown and terminal show
    percent.
    """

    lines: tuple[Line, ...]
    reference: str  # the line of the first row, which differences are measured against
    agreed: Mapping[str, str]  # what all rows share, shown under the table
    notes: tuple[str, ...]
    headline: Headline  # the score that the table is sorted by
    labels: Mapping[str, Label]  # of the measured columns, in their order

    def columns(self) -> tuple[str, ...]:
        """The headings of `cells`."""
        ranked = self.labels[self.headline["name"]]["title"]
        difference = (f"{ranked} over {self.reference} [95%]",) if len(self.lines) > 1 else ()
        return (
            "method",
            *self.lines[0].across,
            *(shown["title"] for shown in self.labels.values()),
            *difference,
            "parameters",
            "epochs",
            "minutes",
            "seeds",
        )

    def cells(self) -> tuple[tuple[str, ...], ...]:
        """The table as text, one tuple for each line."""
        return tuple(
            (
                line.label,
                *line.across.values(),
                *(text_of(line.scores[name], shown) for name, shown in self.labels.items()),
                *((_interval(line.difference),) if len(self.lines) > 1 else ()),
                " / ".join(f"{count:,}" for count in line.parameters),
                " / ".join(line.epochs),
                f"{line.minutes:.1f}"
                + (f" + {line.minutes_before:.1f}" if line.minutes_before else ""),
                ", ".join(map(str, line.seeds)),
            )
            for line in self.lines
        )


def compare(rows: Sequence[Row], *, across: Sequence[str] = ()) -> Comparison:
    """Rank finished runs, or raise an error that names how they differ.

    Rows that differ only in their seeds become one line: mean and standard deviation. Each line is
    also compared with the line of the first row on the same test images
    (`metrics.intervals.paired`). A field in `across` may differ, and becomes a column.
    """
    if not rows:
        raise LongtailError("expected at least one run to compare, got none")
    check_across(across)
    untested = [where(row) for row in rows if row["test"] is None]
    if untested:
        raise LongtailError(
            f"expected runs with test results, got none in {', '.join(untested)}: leave them out"
        )
    predictions = [read_test_predictions(row) for row in rows]
    fields = fields_of(rows, predictions)
    check_comparable(rows, fields, across)
    headline = check_headline(rows)
    measured = [{**tested(row)["scores"], "ece": tested(row)["ece"]} for row in rows]
    known = {name: shown for row in rows for name, shown in row["labels"].items()} | {"ece": ECE}
    scores = columns(known, [name for scores in measured for name in scores])

    members: dict[str, list[int]] = {}
    for position, row in enumerate(rows):
        identity = [
            row["recipe"],
            keywords_of(row),
            [values[position][0] for values in fields.values()],
        ]
        members.setdefault(json.dumps(identity, sort_keys=True), []).append(position)
    groups = list(members.values())
    for group in groups:
        check_unique_seeds([rows[position] for position in group])

    firsts = [rows[group[0]] for group in groups]
    labels = labels_of(firsts, [keywords_of(row) for row in firsts])
    shown = [name for name in MUST_AGREE if name in across]
    lines = []
    for label, group in zip(labels, groups, strict=True):
        group_rows = [rows[position] for position in group]
        lines.append(
            Line(
                label=label,
                across={name: fields[name][group[0]][1] for name in shown},
                scores={
                    name: score_of([measured[position].get(name) for position in group])
                    for name in scores
                },
                difference=(
                    None
                    if group is groups[0]
                    else _difference(groups[0], group, rows=rows, predictions=predictions)
                ),
                parameters=tuple(sorted({row["parameters"] for row in group_rows})),
                epochs=tuple(sorted({_epochs(row["epochs"]) for row in group_rows})),
                minutes=statistics.fmean(row["minutes"] for row in group_rows),
                minutes_before=statistics.fmean(
                    row.get("minutes_before", 0.0) for row in group_rows
                ),
                seeds=tuple(sorted(row["seed"] for row in group_rows)),
                folders=tuple(where(row) for row in group_rows),
            )
        )
    lines.sort(key=lambda line: (_rank(line, headline), line.label, tuple(line.across.values())))
    return Comparison(
        lines=tuple(lines),
        reference=", ".join([labels[0], *(fields[name][0][1] for name in shown)]),
        agreed={name: values[0][1] for name, values in fields.items() if name not in across},
        notes=tuple(_notes(rows, groups, predictions)),
        headline=headline,
        labels={name: known[name] for name in scores},
    )


def differing_fields(rows: Sequence[Row]) -> list[str]:
    """The fields that keywords can change and that differ between the rows: pass them as `across`
    to compare the rows.
    """
    fields = {"selection": "selection", "resolution": "size", "pretraining": "pretraining"}
    return [name for name, field in fields.items() if len({str(row[field]) for row in rows}) > 1]  # type: ignore[literal-required]


def _rank(line: Line, headline: Headline) -> float:
    """A sort key, lower is better; a line without a headline comes last."""
    score = line.scores[headline["name"]]
    return (
        math.inf if score is None else -score.mean if headline["higher_is_better"] else score.mean
    )


def _epochs(epochs: Mapping[str, int]) -> str:
    return " + ".join(map(str, epochs.values()))


def keywords_of(row: Row) -> dict[str, Any]:
    """A run's keywords, with the run's seed masked in the paths of other runs, such as
    `flat-seed=0` or `mgp-seed0`: every seed starts from the run of the same seed.

    Keywords newer than the run get their defaults, and those that had no effect are left out;
    whether images were mirrored counts as a keyword.
    """
    seed_part = re.compile(rf"(?<![a-z])(seed[=_-]?){row['seed']}(?=[/\\]|$)")
    defaults = {
        name: value
        for name, value in _defaults(row["recipe"]).items()
        if name not in row.get("unused", ())
    }
    keywords = {**defaults, **row["keywords"], "mirror": mirrored(row)}
    return {
        name: seed_part.sub(r"\1*", value) if isinstance(value, str) else value
        for name, value in keywords.items()
    }


@cache
def _defaults(recipe: str) -> Mapping[str, Any]:
    """The default of each keyword of a recipe of longtail; empty for others."""
    if recipe not in RECIPES:  # the folder may be a stranger's: no module that it names is searched
        return {}
    try:
        return {
            name: known.default
            for name, known in read(recipe).parameters.items()
            if not known.required
        }
    except LongtailError:
        return {}


def labels_of(rows: Sequence[Row], keywords: Sequence[Mapping[str, Any]]) -> list[str]:
    """The recipe of each row, and those of its keywords that distinguish the lines."""
    texts = [{name: _word(value) for name, value in values.items()} for values in keywords]
    distinguishing = []
    for name in dict.fromkeys(name for text in texts for name in text):
        recipes = {row["recipe"] for row, text in zip(rows, texts, strict=True) if name in text}
        # A keyword that another recipe does not have, or that had no effect, does not distinguish
        # lines; one that was not given has its default.
        used = [
            (row, text)
            for row, text in zip(rows, texts, strict=True)
            if name not in row.get("unused", ())
        ]
        values = {text.get(name) for row, text in used if row["recipe"] in recipes}
        if len(values) > 1:
            distinguishing.append(name)
    words = [[f"{name}={text[name]}" for name in distinguishing if name in text] for text in texts]
    return [" ".join([row["recipe"], *parts]) for row, parts in zip(rows, words, strict=True)]


def _word(value: Any) -> str:
    return (
        value
        if isinstance(value, str)
        else "none"
        if value is None
        else json.dumps(value, sort_keys=True)
    )


def score_of(values: Sequence[float | None]) -> Score | None:
    """Mean and deviation over seeds; None if a value is missing."""
    numbers = [value for value in values if value is not None]
    if len(numbers) < len(values):
        return None
    return Score(statistics.fmean(numbers), statistics.stdev(numbers) if len(numbers) > 1 else None)


def _pairs(
    first: Sequence[int], second: Sequence[int], rows: Sequence[Row]
) -> tuple[list[int], list[int]]:
    """The runs of two lines that share their seeds; all of them when none do."""
    seeds = [
        {(rows[position]["seed"], rows[position]["view_seed"]): position for position in group}
        for group in (first, second)
    ]
    shared = sorted(seeds[0].keys() & seeds[1].keys())
    return (
        ([seeds[0][seed] for seed in shared], [seeds[1][seed] for seed in shared])
        if shared
        else (list(first), list(second))
    )


def _difference(
    first: Sequence[int],
    second: Sequence[int],
    *,
    rows: Sequence[Row],
    predictions: Sequence[TestPredictions | None],
) -> Interval | None:
    mean = _paired_mean(rows)
    if mean is None:
        return None
    before, after = (
        [predictions[position] for position in group] for group in _pairs(first, second, rows)
    )
    left, right = (
        [run for run in before if run is not None],
        [run for run in after if run is not None],
    )
    complete = len(left) == len(before) and len(right) == len(after)
    if not complete or len({run.digest() for run in (*left, *right)}) > 1:
        return None
    return paired(
        np.mean([run.correct for run in left], axis=0),
        np.mean([run.correct for run in right], axis=0),
        left[0].target if mean == "balanced" else np.zeros_like(left[0].target),
    )


def _paired_mean(rows: Sequence[Row]) -> str | None:
    """Whether the headline is the mean over images ("top1") or over classes ("balanced").

    Only such a score can be paired image by image. A score of another name counts if it has the
    same value in all rows, such as the mean over the domains of a test set with one domain.
    """
    name = rows[0]["headline"]["name"]
    for mean in sorted(("top1", "balanced"), key=lambda mean: mean != name):
        if all(tested(row)["scores"][name] == tested(row)[mean] for row in rows):  # type: ignore[literal-required]
            return mean
    return None


def _notes(
    rows: Sequence[Row],
    groups: Sequence[Sequence[int]],
    predictions: Sequence[TestPredictions | None],
) -> list[str]:
    notes = []
    for mark in dict.fromkeys(mark for row in rows for mark in row["data"]["caveats"]):
        marked = [where(row) for row in rows if mark in row["data"]["caveats"]]
        notes.append(f"{mark}: {'all runs' if len(marked) == len(rows) else ', '.join(marked)}.")
    without = sorted({tested(row)["classes_without_images"]["count"] for row in rows} - {0})
    if without:
        notes.append(
            f"Classes without test images, which no score covers: {' / '.join(map(str, without))}."
        )
    single = sorted(
        {int((np.bincount(run.target) == 1).sum()) for run in predictions if run is not None} - {0}
    )
    if len(groups) > 1 and single:
        notes.append(
            "Classes with a single test image, for which intervals are unreliable:"
            f" {' / '.join(map(str, single))}."
        )
    calibrations = sorted(
        {f"{tested(row)['confidence']}, {tested(row)['bins']} bins" for row in rows}
    )
    if len(calibrations) > 1:
        notes.append(f"ece is not comparable between {' and '.join(calibrations)}.")
    missing = [where(row) for row, run in zip(rows, predictions, strict=True) if run is None]
    if len(groups) > 1 and missing:
        notes.append(
            "No paired difference and no check of the test images, because their predictions are"
            f" missing: {', '.join(missing)}."
        )
    seeds = {
        tuple(sorted((rows[position]["seed"], rows[position]["view_seed"]) for position in group))
        for group in groups
    }
    if len(seeds) > 1:
        notes.append(
            "Lines have different seeds; differences pair the seeds that two lines share, or all"
            " when they share none."
        )
    return notes


def text_of(score: Score | None, shown: Label) -> str:
    """Mean ± deviation, in the format of the label."""
    if score is None:
        return "-"
    deviation = "" if score.deviation is None else f" ± {format_score(score.deviation, shown)}"
    return format_score(score.mean, shown) + deviation


def _interval(difference: Interval | None) -> str:
    if difference is None:
        return "-"
    return (
        f"{100 * difference.value:+.1f} [{100 * difference.low:+.1f}, {100 * difference.high:+.1f}]"
    )
