"""Comparable by construction: a table of runs that agree on everything that would make the ranking unfair."""

from __future__ import annotations

import csv
import difflib
import hashlib
import io
import json
import re
import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from longtail.metrics.files import read_predictions
from longtail.metrics.intervals import Interval, paired
from longtail.metrics.row import Row, Summary

MUST_AGREE: Mapping[str, str] = {
    "split": "the images and labels of train, validation and test",
    "test": "the test images",
    "groups": "the rule that makes many, medium and few",
    "selection": "which epoch's weights were tested",
    "protocol": "whether validation was held out of training",
    "pretraining": "the data seen before",
    "tta": "averaging at test time",
    "resolution": "the side of the images in pixels",
}
"""What rows have to share to be ranked, unless `across` makes it a column."""

SCORES: Mapping[str, Callable[[Summary], float | None]] = {
    "overall": lambda test: test["top1"],
    "balanced": lambda test: test["balanced"],
    "many": lambda test: test["groups"].get("many"),
    "medium": lambda test: test["groups"].get("medium"),
    "few": lambda test: test["groups"].get("few"),
    "ece": lambda test: test["ece"],
}
"""The measured columns; the table is sorted by `balanced`."""


@dataclass(frozen=True, slots=True)
class Score:
    """A number over seeds: its mean and the sample standard deviation (None for a single seed)."""

    mean: float
    deviation: float | None


@dataclass(frozen=True, slots=True)
class Line:
    """One method in the table: all its seeds."""

    label: str
    across: Mapping[str, str]  # the columns that `across` asked for
    scores: Mapping[str, Score | None]  # None: nothing to measure, such as an empty group
    difference: Interval | None  # in balanced accuracy over the reference; None for itself and where there is nothing to pair
    parameters: tuple[int, ...]  # distinct values; normally one
    epochs: tuple[str, ...]  # distinct values; normally one
    minutes: float  # the mean
    seeds: tuple[int, ...]
    folders: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Comparison:
    """A table, best balanced accuracy first. Numbers are fractions; `cells`, Markdown and terminal show percent."""

    lines: tuple[Line, ...]
    reference: str  # the line of the first row given: differences are over it
    agreed: Mapping[str, str]  # what all rows share, and so belongs under the table
    notes: tuple[str, ...]

    def columns(self) -> tuple[str, ...]:
        """The headings of `cells`."""
        difference = (f"balanced over {self.reference} [95%]",) if len(self.lines) > 1 else ()
        return ("method", *self.lines[0].across, *SCORES, *difference, "parameters", "epochs", "minutes", "seeds")

    def cells(self) -> tuple[tuple[str, ...], ...]:
        """The table as text, one tuple for each line."""
        return tuple(
            (
                line.label,
                *line.across.values(),
                *(_percent(score) for score in line.scores.values()),
                *((_interval(line.difference),) if len(self.lines) > 1 else ()),
                " / ".join(f"{count:,}" for count in line.parameters),
                " / ".join(line.epochs),
                f"{line.minutes:.1f}",
                ", ".join(map(str, line.seeds)),
            )
            for line in self.lines
        )


def compare(rows: Sequence[Row], *, across: Sequence[str] = ()) -> Comparison:
    """Rank finished runs, or refuse and name what is unlike between them.

    Rows that differ only in their seeds are one line: mean and deviation. Each line is also tested against the line of the first
    row on the same test images (`metrics.intervals.paired`). A field in `across` may differ, and becomes a column.
    """
    if not rows:
        raise ValueError("expected at least one run to compare, got none")
    for name in across:
        if name not in MUST_AGREE:
            close = difflib.get_close_matches(name, MUST_AGREE, n=1)
            hint = f" (did you mean {close[0]}?)" if close else ""
            raise ValueError(f"unknown field {name!r}: use one of {', '.join(MUST_AGREE)}{hint}")
    untested = [_where(row) for row in rows if row["test"] is None]
    if untested:
        raise ValueError(f"expected runs with test results, got none in {', '.join(untested)}: leave them out")
    answers = [_answers(row) for row in rows]
    fields = _fields(rows, answers)
    _refuse_unlike(rows, fields, across)

    members: dict[str, list[int]] = {}
    for position, row in enumerate(rows):
        identity = [row["recipe"], _keywords(row), [values[position][0] for values in fields.values()]]
        members.setdefault(json.dumps(identity, sort_keys=True), []).append(position)
    groups = list(members.values())
    for group in groups:
        _refuse_twins([rows[position] for position in group])

    labels = _labels([rows[group[0]] for group in groups])
    shown = [name for name in MUST_AGREE if name in across]
    lines = []
    for label, group in zip(labels, groups, strict=True):
        own = [rows[position] for position in group]
        lines.append(
            Line(
                label=label,
                across={name: fields[name][group[0]][1] for name in shown},
                scores={name: _score([score(_test(row)) for row in own]) for name, score in SCORES.items()},
                difference=None if group is groups[0] else _difference(groups[0], group, rows=rows, answers=answers),
                parameters=tuple(sorted({row["parameters"] for row in own})),
                epochs=tuple(sorted({_epochs(row["epochs"]) for row in own})),
                minutes=statistics.fmean(row["minutes"] for row in own),
                seeds=tuple(sorted(row["seed"] for row in own)),
                folders=tuple(_where(row) for row in own),
            )
        )
    lines.sort(key=lambda line: (-_test_mean(line), line.label, tuple(line.across.values())))
    return Comparison(
        lines=tuple(lines),
        reference=", ".join([labels[0], *(fields[name][0][1] for name in shown)]),
        agreed={name: values[0][1] for name, values in fields.items() if name not in across},
        notes=tuple(_notes(rows, groups, answers)),
    )


def to_markdown(comparison: Comparison) -> str:
    """Write the table as Markdown, with what all rows share and the notes below it."""
    columns = [f"**{name}**" if name == "balanced" else name for name in comparison.columns()]
    left = 1 + len(comparison.lines[0].across)
    rule = [":--" if position < left else "--:" for position in range(len(columns))]
    table = [_markdown(cells) for cells in (columns, rule, *comparison.cells())]
    agreed = "; ".join(f"{name}: {value}" for name, value in comparison.agreed.items())
    notes = ["Percent; mean ± sample standard deviation over seeds.", f"The same for all: {agreed or 'nothing'}.", *comparison.notes]
    return "\n".join([*table, "", *(f"- {note}" for note in notes)]) + "\n"


def to_csv(comparison: Comparison) -> str:
    """Write the table as CSV: fractions at full precision, each deviation and bound in a column of its own."""
    text = io.StringIO()
    write = csv.writer(text, lineterminator="\n").writerow
    scores = [heading for name in SCORES for heading in (name, f"{name}_deviation")]
    difference = ["difference", "difference_low", "difference_high", "reference"]
    write(["method", *comparison.lines[0].across, *scores, *difference, "parameters", "epochs", "minutes", "seeds", "n", "runs"])
    for line in comparison.lines:
        write(
            [
                line.label,
                *line.across.values(),
                *(value for score in line.scores.values() for value in ((score.mean, score.deviation) if score else (None, None))),
                *((line.difference.value, line.difference.low, line.difference.high) if line.difference else (None, None, None)),
                comparison.reference,
                " ".join(map(str, line.parameters)),
                " / ".join(line.epochs),
                line.minutes,
                " ".join(map(str, line.seeds)),
                len(line.seeds),
                " ".join(line.folders),
            ]
        )
    return text.getvalue()


# ------------------------------------------------------------------------------------- what must agree


@dataclass(frozen=True, slots=True)
class _Answers:
    """A run's test predictions, reduced to what pairing needs and sorted by image."""

    ids: NDArray[np.str_]
    target: NDArray[np.int64]
    correct: NDArray[np.bool_]

    def digest(self) -> str:
        content = hashlib.sha256(self.target.astype("<i8").tobytes())
        content.update("\0".join(self.ids.tolist()).encode())
        return content.hexdigest()[:12]


def _answers(row: Row) -> _Answers | None:
    path = Path(row["folder"]) / "predictions" / "test.npz" if "folder" in row else None
    if path is None or not path.exists():
        return None
    predictions, ids = read_predictions(path)
    images = _test(row)["images"]
    if len(ids) != images:
        raise ValueError(f"expected {images} test images as in row.json, got {len(ids)} in {path}: evaluate the run again")
    order = np.argsort(ids, kind="stable")
    return _Answers(ids[order], predictions.target[order], (predictions.logits["logits"].argmax(axis=1) == predictions.target)[order])


def _fields(rows: Sequence[Row], answers: Sequence[_Answers | None]) -> dict[str, list[tuple[str, str]]]:
    """For every field and row: what must be equal, and how it is shown."""
    one_split = len({row["data"]["hash"] for row in rows}) == 1
    known = all(own is not None for own in answers)

    def test(row: Row, own: _Answers | None) -> tuple[str, str]:
        images = _test(row)["images"]
        if own is None or not known:
            return f"{row['data']['name']} {images}", f"{images} images"
        # Two folders may use the same file names for other images: names alone identify a test set only within one dataset.
        identity = own.digest() if one_split else f"{row['data']['name']} {own.digest()}"
        return identity, f"{images} images ({own.digest()[:8]})"

    def plain(value: object) -> tuple[str, str]:
        return str(value), str(value)

    return {
        "split": [(row["data"]["hash"], _split(row)) for row in rows],
        "test": [test(row, own) for row, own in zip(rows, answers, strict=True)],
        "groups": [plain(_test(row)["group_rule"]) for row in rows],
        "selection": [plain(row["selection"]) for row in rows],
        "protocol": [plain(row["data"]["protocol"]) for row in rows],
        "pretraining": [plain(row["pretraining"] or "none") for row in rows],
        "tta": [plain(row["tta"]) for row in rows],
        "resolution": [plain(row["size"]) for row in rows],
    }


def _refuse_unlike(rows: Sequence[Row], fields: Mapping[str, Sequence[tuple[str, str]]], across: Sequence[str]) -> None:
    problems = []
    for name, values in fields.items():
        if name in across or len({identity for identity, _ in values}) == 1:
            continue
        holders: dict[str, tuple[str, list[str]]] = {}
        for row, (identity, text) in zip(rows, values, strict=True):
            holders.setdefault(identity, (text, []))[1].append(_where(row))
        found = "; ".join(f"{text!r} in {', '.join(folders)}" for text, folders in holders.values())
        problems.append(f"  {name} ({MUST_AGREE[name]}): {found}\n    show it as a column with --across {name}")
    if problems:
        raise ValueError("expected runs that can be ranked, got runs that differ in more than the method:\n" + "\n".join(problems))


def _refuse_twins(rows: Sequence[Row]) -> None:
    """The same seed twice would count one training as two and shrink the deviation."""
    seen: dict[tuple[int, int], Row] = {}
    for row in rows:
        twin = seen.setdefault((row["seed"], row["view_seed"]), row)
        if twin is not row:
            raise ValueError(
                f"expected each run once, got {_where(twin)} and {_where(row)}, "
                f"which have the same recipe, keywords and seed {row['seed']}: leave one out"
            )


# ------------------------------------------------------------------------------------- what is shown


def _test(row: Row) -> Summary:
    assert row["test"] is not None, "compare() refuses rows without test results first"
    return row["test"]


def _test_mean(line: Line) -> float:
    score = line.scores["balanced"]
    assert score is not None, "balanced accuracy is never missing"
    return score.mean


def _where(row: Row) -> str:
    return row.get("folder", f"{row['recipe']} seed {row['seed']}")


def _split(row: Row) -> str:
    imbalance = row["data"].get("imbalance")
    return f"{row['data']['name']}{'' if imbalance is None else f' (imbalance {imbalance:g})'} {row['data']['hash'][:8]}"


def _epochs(epochs: Mapping[str, int]) -> str:
    return " + ".join(map(str, epochs.values()))


def _keywords(row: Row) -> dict[str, Any]:
    """A run's keywords, but for its own seed in the folder of another run, as sweeps name it: each seed begins with its own teacher."""
    own = re.compile(rf"seed={row['seed']}$")
    return {name: own.sub("seed=*", value) if isinstance(value, str) else value for name, value in row["keywords"].items()}


def _labels(rows: Sequence[Row]) -> list[str]:
    """The recipe, and those keywords that tell the lines apart."""
    texts = [{name: _word(value) for name, value in _keywords(row).items()} for row in rows]
    telling = []
    for name in dict.fromkeys(name for text in texts for name in text):
        recipes = {row["recipe"] for row, text in zip(rows, texts, strict=True) if name in text}
        # A keyword that another recipe does not have tells nothing; one that the same recipe was not given was left at its default.
        values = {text.get(name) for row, text in zip(rows, texts, strict=True) if row["recipe"] in recipes}
        if len(values) > 1:
            telling.append(name)
    keywords = [[f"{name}={text[name]}" for name in telling if name in text] for text in texts]
    return [" ".join([row["recipe"], *words]) for row, words in zip(rows, keywords, strict=True)]


def _word(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, sort_keys=True)


def _score(values: Sequence[float | None]) -> Score | None:
    numbers = [value for value in values if value is not None]
    if len(numbers) < len(values):
        return None
    return Score(statistics.fmean(numbers), statistics.stdev(numbers) if len(numbers) > 1 else None)


def _pairs(first: Sequence[int], second: Sequence[int], rows: Sequence[Row]) -> tuple[list[int], list[int]]:
    """The runs of two lines that share their seeds; all of them when none do."""
    seeds = [{(rows[position]["seed"], rows[position]["view_seed"]): position for position in group} for group in (first, second)]
    shared = sorted(seeds[0].keys() & seeds[1].keys())
    return ([seeds[0][seed] for seed in shared], [seeds[1][seed] for seed in shared]) if shared else (list(first), list(second))


def _difference(first: Sequence[int], second: Sequence[int], *, rows: Sequence[Row], answers: Sequence[_Answers | None]) -> Interval | None:
    before, after = ([answers[position] for position in group] for group in _pairs(first, second, rows))
    left, right = [own for own in before if own is not None], [own for own in after if own is not None]
    whole = len(left) == len(before) and len(right) == len(after)
    if not whole or len({own.digest() for own in (*left, *right)}) > 1:
        return None
    return paired(np.mean([own.correct for own in left], axis=0), np.mean([own.correct for own in right], axis=0), left[0].target)


def _notes(rows: Sequence[Row], groups: Sequence[Sequence[int]], answers: Sequence[_Answers | None]) -> list[str]:
    notes = []
    for mark in dict.fromkeys(mark for row in rows for mark in row["data"]["marks"]):
        marked = [_where(row) for row in rows if mark in row["data"]["marks"]]
        notes.append(f"{mark}: {'all runs' if len(marked) == len(rows) else ', '.join(marked)}.")
    without = sorted({_test(row)["classes_without_test"]["count"] for row in rows} - {0})
    if without:
        notes.append(f"Classes without test images, on which no number speaks: {' / '.join(map(str, without))}.")
    lonely = sorted({int((np.bincount(own.target) == 1).sum()) for own in answers if own is not None} - {0})
    if len(groups) > 1 and lonely:
        notes.append(f"Classes with a single test image, which intervals take as certain: {' / '.join(map(str, lonely))}.")
    calibrations = sorted({f"{_test(row)['confidence']}, {_test(row)['bins']} bins" for row in rows})
    if len(calibrations) > 1:
        notes.append(f"ece is not comparable between {' and '.join(calibrations)}.")
    lost = [_where(row) for row, own in zip(rows, answers, strict=True) if own is None]
    if len(groups) > 1 and lost:
        notes.append(f"No paired difference and no check of the test images, for want of predictions/test.npz: {', '.join(lost)}.")
    seeds = {tuple(sorted((rows[position]["seed"], rows[position]["view_seed"]) for position in group)) for group in groups}
    if len(seeds) > 1:
        notes.append("Lines have different seeds; differences pair the seeds that two lines share, or all when they share none.")
    return notes


def _percent(score: Score | None) -> str:
    if score is None:
        return "-"
    return f"{100 * score.mean:.1f}" + ("" if score.deviation is None else f" ± {100 * score.deviation:.1f}")


def _interval(difference: Interval | None) -> str:
    if difference is None:
        return "-"
    return f"{100 * difference.value:+.1f} [{100 * difference.low:+.1f}, {100 * difference.high:+.1f}]"


def _markdown(cells: Sequence[str]) -> str:
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"
