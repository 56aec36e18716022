"""The kinds of JSON files of a run folder, and how format 1 of each becomes the current format.

The row is in `longtail.records.row`.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, NotRequired, TypedDict

from longtail.deprecated import current_keywords, run_keywords
from longtail.records.documents import NUMBER, Document, Kind, read_document, renamed, upgrade_file
from longtail.records.layout import RunFolder


class _Fit(TypedDict):
    geometry: NotRequired[str]
    stored: NotRequired[int]
    crop: NotRequired[float]
    kept: NotRequired[int | None]


class _Model(TypedDict):
    network: dict[str, Any]
    classes: list[str]
    size: int
    fit: NotRequired[_Fit]


class _Groups(TypedDict):
    rule: str
    members: dict[str, list[int]]


class _Data(TypedDict):
    source: str
    name: str
    protocol: str
    hash: str
    groups: NotRequired[_Groups]


class _Recipe(TypedDict):
    command: str
    recipe: str
    keywords: dict[str, Any]
    data: _Data
    seed: int
    view_seed: int
    tta: str


AGAIN = "choose another --out and train again"


def upgrade_recipe(document: Document) -> Document:
    """Format 1 had `data.asked` for `data.source`, and other names for some keywords."""
    return document | {
        "keywords": current_keywords(document["recipe"], document["keywords"]),
        "data": renamed(document["data"], {"asked": "source"}),
    }


RECIPE = Kind(
    "record of a run",
    {
        "command": str,
        "recipe": str,
        "keywords": dict,
        "data": dict,
        "seed": int,
        "view_seed": int,
        "tta": str,
    },
    repair=AGAIN,
    upgrade=upgrade_recipe,
    fields=_Recipe,
)


def upgrade_choice(document: Document) -> Document:
    """Format 1 had `why` and `asked_minutes`."""
    return renamed(document, {"why": "reason", "asked_minutes": "requested_minutes"})


CHOICE = Kind(
    "choice of `longtail train auto`",
    {
        "command": str,
        "recipe": str,
        "keywords": dict,
        "adjust": str,
        "reason": str,
        "minutes": NUMBER,
    },
    repair="delete it to choose again",
    upgrade=upgrade_choice,
)

MODEL = Kind(
    "description of a network",
    {"network": dict, "classes": list, "size": int},
    repair="bring it back, or train again into another folder",
    fields=_Model,
)
ENCODER = Kind(
    "description of an encoder",
    {"network": dict},
    repair="bring it back, or train again into another folder",
)
THRESHOLDS = Kind(
    "file of thresholds",
    {"level": NUMBER, "score": str, "thresholds": list},
    repair="delete it, or calibrate again with `longtail eval RUN --rewrite`",
)
STAGE = Kind(
    "record of a finished stage",
    {"name": str, "epochs": int, "minutes": NUMBER, "keep": str},
    repair="delete the stage's folder to train it again",
    versioned=False,
)
TEACHER = Kind(
    "record of the teacher", {"teacher": str, "weights": str}, repair=AGAIN, versioned=False
)
SEARCH = Kind(
    "record of a search", {"recipe": str, "data": str, "metric": str}, repair="choose another --out"
)
REPRODUCTION = Kind(
    "record of a reproduction",
    {"name": str, "kind": str, "expected": dict, "measured": dict, "verdict": str},
    repair="delete it and run `longtail reproduce` again",
)


def read_recipe(folder: Path) -> Document:
    """Read what was requested of a run."""
    record = read_document(RunFolder(folder).recipe, RECIPE)
    return record | {"keywords": run_keywords(record["recipe"], record["keywords"])}


def upgrade_folder(folder: Path) -> None:
    """Write the files of an unfinished run of an earlier format again in the current one."""
    run = RunFolder(folder)
    upgrade_file(run.recipe, RECIPE)
    upgrade_file(run.choice, CHOICE)
    upgrade_file(run.teacher_record, TEACHER)
    upgrade_file(run.encoder.spec, ENCODER)
    for stage in run.stages():
        upgrade_file(stage.record, STAGE)
        upgrade_file(stage.model.spec, MODEL)
