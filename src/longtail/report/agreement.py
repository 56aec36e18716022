"""What runs must agree on to be ranked, and the errors that name where they differ."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from longtail.errors import LongtailError
from longtail.naming import unknown
from longtail.records.layout import RunFolder
from longtail.records.predictions import read_predictions
from longtail.records.row import Row, Summary, geometry_of
from longtail.records.scores import Headline

MUST_AGREE: Mapping[str, str] = {
    "split": "the images and labels of train, validation and test",
    "test": "the test images",
    "groups": "the rule that makes the groups of classes, such as many, medium and few",
    "selection": "which epoch's weights were tested",
    "protocol": "whether validation was held out of training",
    "pretraining": "the pretraining data",
    "tta": "averaging at test time",
    "resolution": "the side of the images in pixels, or the length of the vectors",
    "geometry": "how images that are not square become squares",
}
"""What rows have to share to be ranked, unless `across` makes it a column."""


@dataclass(frozen=True, slots=True)
class TestPredictions:
    """A run's test predictions, reduced to what pairing needs and sorted by image."""

    ids: NDArray[np.str_]
    target: NDArray[np.int64]
    correct: NDArray[np.bool_]

    def digest(self) -> str:
        """A short hash of the ids and classes of the images."""
        content = hashlib.sha256(self.target.astype("<i8").tobytes())
        content.update("\0".join(self.ids.tolist()).encode(errors="surrogateescape"))
        return content.hexdigest()[:12]


def read_test_predictions(row: Row) -> TestPredictions | None:
    """A run's predictions on its test images; None if its folder has none."""
    path = RunFolder(Path(row["folder"])).predictions("test") if "folder" in row else None
    if path is None or not path.exists():
        return None
    predictions, ids = read_predictions(path)
    images = tested(row)["images"]
    if len(ids) != images:
        raise LongtailError(
            f"expected {images} test images as in the run's row, got {len(ids)} in {path}: evaluate"
            " the run again"
        )
    order = np.argsort(ids, kind="stable")
    return TestPredictions(
        ids[order],
        predictions.target[order],
        (predictions.logits["logits"].argmax(axis=1) == predictions.target)[order],
    )


def fields_of(
    rows: Sequence[Row], predictions: Sequence[TestPredictions | None]
) -> dict[str, list[tuple[str, str]]]:
    """For every field and row: the value that must be equal, and its text."""
    one_split = len({row["data"]["hash"] for row in rows}) == 1
    known = all(run is not None for run in predictions)

    def test(row: Row, run: TestPredictions | None) -> tuple[str, str]:
        images = tested(row)["images"]
        if run is None or not known:
            return f"{row['data']['name']} {images}", f"{images} images"
        # Two datasets may use the same file names for different images: names identify a test set
        # only within one dataset.
        identity = run.digest() if one_split else f"{row['data']['name']} {run.digest()}"
        return identity, f"{images} images ({run.digest()[:8]})"

    def plain(value: object) -> tuple[str, str]:
        return str(value), str(value)

    def geometry(row: Row) -> tuple[str, str]:
        name, inferred = geometry_of(row)
        return name, f"{name} (inferred)" if inferred else name

    return {
        "split": [(row["data"]["hash"], _split(row)) for row in rows],
        "test": [test(row, run) for row, run in zip(rows, predictions, strict=True)],
        "groups": [plain(tested(row)["group_rule"]) for row in rows],
        "selection": [plain(row["selection"]) for row in rows],
        "protocol": [plain(row["data"]["protocol"]) for row in rows],
        "pretraining": [plain(row["pretraining"] or "no other data") for row in rows],
        "tta": [plain(row["tta"]) for row in rows],
        "resolution": [plain(row["size"]) for row in rows],
        "geometry": [geometry(row) for row in rows],
    }


def check_comparable(
    rows: Sequence[Row], fields: Mapping[str, Sequence[tuple[str, str]]], across: Sequence[str]
) -> None:
    """Raise an error that names every field in which rows differ but must not, with the values."""
    problems = []
    for name, values in fields.items():
        if name in across or len({identity for identity, _ in values}) == 1:
            continue
        holders: dict[str, tuple[str, list[str]]] = {}
        for row, (identity, text) in zip(rows, values, strict=True):
            holders.setdefault(identity, (text, []))[1].append(where(row))
        values_by_run = "; ".join(
            f"{text!r} in {', '.join(folders)}" for text, folders in holders.values()
        )
        problems.append(
            f"  {name} ({MUST_AGREE[name]}): {values_by_run}\n"
            f"    show it as a column with --across {name}"
        )
    if problems:
        raise LongtailError(
            "expected runs that can be ranked, got runs that differ in more than the method:\n"
            + "\n".join(problems)
        )


def check_headline(rows: Sequence[Row]) -> Headline:
    """The score that ranks all rows, with its direction; an error if there are several."""
    headlines = {(row["headline"]["name"], row["headline"]["higher_is_better"]) for row in rows}
    if len(headlines) > 1:
        names = " and ".join(
            f"{name} ({'higher' if higher else 'lower'} is better)"
            for name, higher in sorted(headlines)
        )
        raise LongtailError(
            f"the runs are ranked by different scores, {names}: compare them separately"
        )
    return rows[0]["headline"]


def check_unique_seeds(rows: Sequence[Row]) -> None:
    """Refuse repeated seeds: they would count one training twice and shrink the deviation."""
    by_seed: dict[tuple[int, int], Row] = {}
    for row in rows:
        duplicate = by_seed.setdefault((row["seed"], row["view_seed"]), row)
        if duplicate is not row:
            raise LongtailError(
                f"{where(duplicate)} and {where(row)} have the same recipe, keywords and seed "
                f"{row['seed']}: remove one of them"
            )


def check_across(across: Sequence[str]) -> None:
    """Refuse fields that do not exist."""
    for name in across:
        if name not in MUST_AGREE:
            raise unknown("field", name, MUST_AGREE)


def where(row: Row) -> str:
    """The folder of a run, or its recipe and seed."""
    return row.get("folder", f"{row['recipe']} seed {row['seed']}")


def tested(row: Row) -> Summary:
    """A run's numbers on its test images; `compare` refuses rows without."""
    assert row["test"] is not None, "compare() refuses rows without test results first"
    return row["test"]


def _split(row: Row) -> str:
    imbalance = row["data"].get("imbalance")
    return (
        f"{row['data']['name']}{'' if imbalance is None else f' (imbalance {imbalance:g})'}"
        f" {row['data']['hash'][:8]}"
    )
