"""The row: what a finished run says about itself in `row.json`. Its writer and its readers agree here."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, NotRequired, TypedDict, cast

FORMAT = 1
"""Raised when a reader of the old row would misread the new one."""


class Without(TypedDict):
    """Classes that have no images in a split, so that no accuracy speaks of them."""

    count: int
    indices: list[int]


class Summary(TypedDict):
    """One split's numbers. Accuracies are fractions in [0, 1]; None where there is nothing to measure."""

    top1: float
    top5: float | None  # None with five classes or fewer
    balanced: float
    groups: dict[str, float | None]  # many, medium, few
    group_rule: str
    recall: list[float | None]  # one for each class
    classes_without_test: Without
    ece: float
    mce: float
    bins: int
    confidence: str  # "softmax" | "sigmoid"
    images: int
    heads: NotRequired[dict[str, Summary]]  # the same numbers for each part of a head that has several, such as cls and dist


class Data(TypedDict):
    """What was learnt from."""

    name: str
    hash: str  # of all (image content, label) pairs
    protocol: str  # "holdout" | "paper"
    imbalance: NotRequired[float | None]
    classes: int
    train_images: int
    counts_before: list[int]  # training images per class before validation was held out
    counts_after: list[int]  # and after: what priors are made of
    marks: list[str]  # such as "counts conventional, images not"


class Best(TypedDict):
    """The epoch that was best on validation, which the headline does not use."""

    epoch: int
    balanced: float


class Row(TypedDict):
    """A finished run in one line of a table."""

    format: int
    recipe: str
    keywords: dict[str, Any]
    data: Data
    seed: int
    view_seed: int
    split_seed: int
    selection: str  # "last epoch" | "last epoch, ema" | "best val/balanced"
    tta: str  # "none" | "flip"
    size: int  # pixels
    pretraining: str | None
    parameters: int
    epochs: dict[str, int]  # by stage
    minutes: float
    test: Summary | None
    val: Summary | None
    best_validation: Best | None
    versions: dict[str, str]
    hardware: dict[str, Any]
    folder: NotRequired[str]  # where it was read from; not in the file


def read_row(folder: Path) -> Row:
    """Read what a finished run says about itself; `folder` is added, so that the row knows its predictions."""
    path = folder / "row.json"
    if not folder.is_dir():
        got = "a file" if folder.exists() else "nothing"
        raise ValueError(f"expected a run folder, got {got} at {folder}: pass the folder that `longtail train` was given as --out")
    if not path.exists():
        raise ValueError(_why_no_row(folder))
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise ValueError(
            f"expected JSON, got something else in {path} ({error}): delete it and run the same `longtail train` command again"
        ) from error
    if not isinstance(content, dict) or not isinstance(content.get("format"), int):
        raise ValueError(f"expected a row with its format version, got none in {path}: this file was not written by longtail")
    if content["format"] > FORMAT:
        got = content["format"]
        raise ValueError(f"expected a row of format {FORMAT} or older, got {got} in {path}: a newer longtail wrote it, upgrade this one")
    missing = [name for name in Row.__annotations__ if name not in content and name != "folder"]
    if missing:
        raise ValueError(
            f"expected a whole row, missing {', '.join(missing)} in {path}: delete it and run the same `longtail train` command again"
        )
    return cast(Row, content | {"folder": str(folder)})


def _why_no_row(folder: Path) -> str:
    """Tell an unfinished run, an empty folder, a folder of runs and a folder of other things apart."""
    if not any(folder.iterdir()):
        return f"expected a finished run, got an empty folder at {folder}: start one with `longtail train RECIPE --out {folder}`"
    if (folder / "recipe.json").exists():
        return f"expected a finished run, got an unfinished one at {folder}: run the same `longtail train` command again to continue it"
    runs = sorted(inner.parent for inner in folder.glob("*/row.json"))
    if runs:
        return f"expected a run folder, got a folder of runs at {folder}: name the runs themselves, such as {' '.join(map(str, runs[:3]))}"
    return f"expected a run folder, got other files at {folder}: a run has recipe.json and, when finished, row.json"
