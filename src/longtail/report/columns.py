"""Compare runs on several versions of the data: one column per value of a data flag."""

from __future__ import annotations

import json
import math
import re
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from longtail.errors import LongtailError
from longtail.naming import unknown
from longtail.records.kinds import read_recipe
from longtail.records.layout import RunFolder
from longtail.records.row import Row
from longtail.records.scores import Headline, Label
from longtail.report.agreement import check_across, check_headline, check_unique_seeds, tested
from longtail.report.comparison import (
    Comparison,
    Score,
    compare,
    keywords_of,
    labels_of,
    score_of,
    text_of,
)

MEAN = "mean"
_NOT_FLAGS = (
    "source",
    "hash",
    "groups",
    "classes",
    "train_images",
    "counts_before",
    "counts_after",
)


@dataclass(frozen=True, slots=True)
class ColumnLine:
    """A method: its headline score per column, over seeds, and the mean over columns."""

    label: str
    scores: Mapping[str, Score | None]  # None: no run of this method in that column
    seeds: tuple[int, ...]
    folders: tuple[str, ...]
    across: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class ColumnTable:
    """A table of methods, the best mean over columns first.

    Numbers are fractions; `cells` shows percent.
    """

    lines: tuple[ColumnLine, ...]
    agreed: Mapping[str, str]  # fields that are equal in all rows
    notes: tuple[str, ...]
    headline: Headline  # the column that the table is sorted by
    labels: Mapping[str, Label]  # of the columns, in order

    def columns(self) -> tuple[str, ...]:
        """The headings of `cells`."""
        return ("method", *(label["title"] for label in self.labels.values()), "seeds")

    def cells(self) -> tuple[tuple[str, ...], ...]:
        """The table as text, one tuple per line."""
        return tuple(
            (
                line.label,
                *(text_of(line.scores[name], label) for name, label in self.labels.items()),
                ", ".join(map(str, line.seeds)),
            )
            for line in self.lines
        )


def compare_by(
    rows: Sequence[Row], by: Sequence[str], *, across: Sequence[str] = ()
) -> ColumnTable:
    """Compare methods over the values of data flags, such as every `imbalance`.

    Runs of one column must be comparable, as in `compare`. The mean over columns is taken per seed,
    and its deviation is over seeds.
    """
    if not rows:
        raise LongtailError("no runs to compare: pass at least one folder of a finished run")
    check_across(across)
    headline = check_headline(rows)
    columns: dict[tuple[Any, ...], list[Row]] = {}
    for row in rows:
        columns.setdefault(_value(row, by), []).append(row)
    order = sorted(columns, key=_order)
    tables = [compare(columns[value], across=across) for value in order]
    methods: dict[str, list[Row]] = {}
    for row in rows:
        identity = json.dumps([row["recipe"], _keywords(row, by)], sort_keys=True)
        methods.setdefault(identity, []).append(row)
    firsts = [members[0] for members in methods.values()]
    names = labels_of(firsts, [_keywords(row, by) for row in firsts])
    notes = list(dict.fromkeys(note for table in tables for note in table.notes))
    lines = []
    for label, members in zip(names, methods.values(), strict=True):
        groups = [[row for row in members if _value(row, by) == value] for value in order]
        for group in groups:
            check_unique_seeds(group)
        cells = [{row["seed"]: _headline(row) for row in group} for group in groups]
        scores = {
            _label(value): score_of(list(cell.values())) if cell else None
            for value, cell in zip(order, cells, strict=True)
        }
        if len(order) > 1:
            scores[MEAN] = _mean(cells)
            if len({tuple(sorted(cell)) for cell in cells}) > 1:
                notes.append(f"{label}: the columns have different seeds or runs are missing.")
        lines.append(
            ColumnLine(
                label=label,
                scores=scores,
                seeds=tuple(sorted({seed for cell in cells for seed in cell})),
                folders=tuple(str(row.get("folder", "")) for row in members),
            )
        )
    shown = tables[0].labels[headline["name"]]
    name = ", ".join(by)
    labels: dict[str, Label] = {
        _label(value): {**shown, "title": f"{name} {_label(value)}"} for value in order
    }
    if len(order) > 1:
        labels[MEAN] = {**shown, "title": MEAN}
    sign = -1 if shown["higher_is_better"] else 1
    lines.sort(key=lambda line: (sign * _rank(line), line.label))
    return ColumnTable(
        lines=tuple(lines),
        agreed={"score": shown["description"], **_agreed(tables)},
        notes=tuple(notes),
        headline={"name": [*labels][-1], "higher_is_better": shown["higher_is_better"]},
        labels=labels,
    )


def _headline(row: Row) -> float | None:
    return tested(row)["scores"].get(row["headline"]["name"])


def _keywords(row: Row, by: Sequence[str]) -> dict[str, Any]:
    """The keywords of a run, without the flags in the folder name of a prerequisite."""
    flags = re.compile(rf"({'|'.join(by)})=[^/\\\\]+?(?=-[a-z_]+=|$)")
    return {
        name: flags.sub(r"\1=*", value) if isinstance(value, str) else value
        for name, value in keywords_of(row).items()
        if name not in by
    }


def _value(row: Row, by: Sequence[str]) -> tuple[Any, ...]:
    """The data flags of a run; rows have some of them, recipe.json has all."""
    known: dict[str, Any] = {**row["data"], "split_seed": row["split_seed"]}
    if "folder" in row and RunFolder(Path(row["folder"])).recipe.exists():
        known = {**read_recipe(Path(row["folder"]))["data"], **known}
    flags = {name: value for name, value in known.items() if name not in _NOT_FLAGS}
    for name in by:
        if name not in flags:
            raise unknown("data flag", name, flags)
    return tuple(flags[name] for name in by)


def _order(value: tuple[Any, ...]) -> list[tuple[int, float, str]]:
    """Numbers before texts, both ascending."""
    return [
        (0, float(part), "") if isinstance(part, int | float) else (1, 0.0, str(part))
        for part in value
    ]


def _label(value: tuple[Any, ...]) -> str:
    return ", ".join(
        f"{part:g}" if isinstance(part, float) else "none" if part is None else str(part)
        for part in value
    )


def _mean(cells: Sequence[Mapping[int, float | None]]) -> Score | None:
    """The mean over columns, with a deviation if all columns have the same seeds."""
    columns = [score_of(list(cell.values())) if cell else None for cell in cells]
    means = [score.mean for score in columns if score is not None]
    if len(means) < len(cells):
        return None
    seeds = [tuple(sorted(cell)) for cell in cells]
    if len({*seeds}) > 1:
        return Score(statistics.fmean(means), None)
    return score_of([statistics.fmean(cell[seed] or 0.0 for cell in cells) for seed in seeds[0]])


def _rank(line: ColumnLine) -> float:
    """The mean over the columns that a line has."""
    means = [score.mean for name, score in line.scores.items() if score and name != MEAN]
    return statistics.fmean(means) if means else math.nan


def _agreed(tables: Sequence[Comparison]) -> dict[str, str]:
    first = tables[0].agreed
    return {
        name: value
        for name, value in first.items()
        if all(table.agreed.get(name) == value for table in tables)
    }
