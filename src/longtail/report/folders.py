"""Everything in a run's folder, in memory: row, request, journals, predictions and analyses."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from longtail.errors import LongtailError
from longtail.records.arrays import read_arrays
from longtail.records.documents import read_document
from longtail.records.files import read_journal
from longtail.records.groups import Groups
from longtail.records.kinds import MODEL, read_recipe
from longtail.records.layout import RunFolder
from longtail.records.predictions import read_predictions
from longtail.records.row import Row, StoredEvaluation, Summary, read_evaluations, read_row
from longtail.scoring.long_tail import detailed

Arrays = Mapping[str, NDArray[Any]]


@dataclass(frozen=True)
class Predictions:
    """The class and the predicted class of each image of a split."""

    target: NDArray[np.int64]
    predicted: NDArray[np.int64]


@dataclass(frozen=True)
class Finished:
    """A finished run, as read from its folder."""

    folder: Path
    row: Row
    request: Mapping[str, Any]  # recipe.json
    classes: tuple[str, ...]
    members: Mapping[str, tuple[int, ...]]  # the classes of many, medium and few
    journals: Mapping[str, list[dict[str, Any]]]  # the lines of each stage
    split: str  # "test", or "val" where there are no test images
    summary: Summary | None  # of that split
    predictions: Predictions | None
    evaluations: Sequence[StoredEvaluation]  # what `longtail eval` wrote besides the row
    examples: Arrays | None
    analyses: tuple[Path, ...]
    missing: tuple[str, ...]  # what is missing, and how to get it

    def group(self, index: int) -> str:
        """The group of a class."""
        return self._groups.get(index, "")

    @cached_property
    def _groups(self) -> dict[int, str]:
        return {index: name for name, members in self.members.items() for index in members}


def read_folder(folder: Path) -> Finished:
    """Read a finished run. What an older version did not write is listed in `missing`; a
    broken file is an error.
    """
    row = read_row(folder)
    split = "test" if row["test"] is not None or row["val"] is None else "val"
    summary, missing = row["test"] or row["val"], []
    files = RunFolder(folder)
    request = read_recipe(folder)
    stored = request["data"].get("groups")
    groups = Groups.from_json(stored) if stored else Groups("unknown", {})
    members = groups.members
    names = read_document(files.model.spec, MODEL)["classes"] if files.model.is_complete else None
    if names is not None and len(names) != row["data"]["classes"]:
        raise LongtailError(
            f"expected the names of {row['data']['classes']} classes, as {files.row} has, got"
            f" {len(names)} in {files.model.spec}: {MODEL.repair}"
        )
    if names is None:
        missing.append(
            f"The names of the classes: {_inside(files, files.model.spec)} is not in the folder, so"
            " classes are numbered."
        )
    command = f"longtail eval {folder} --rewrite"
    predictions = None
    if summary is not None and files.predictions(split).exists():
        stored_predictions, _ = read_predictions(files.predictions(split))
        logits = stored_predictions.logits["logits"]
        predictions = Predictions(stored_predictions.target, logits.argmax(axis=1))
        # A row of an earlier version: the missing scores are computed from the predictions
        if "reliability" not in summary and members:
            counts = np.array(row["data"]["counts_after"])
            fuller = detailed(
                logits,
                stored_predictions.target,
                groups=groups,
                counts=counts,
                confidence=summary["confidence"],
                bins=summary["bins"],
            )
            summary = {**fuller, **summary}
    elif summary is not None:
        missing.append(
            f"Confusions, reliability and intervals: {_inside(files, files.predictions(split))} is"
            f" not in the folder. `{command}` writes it."
        )
    path = files.analysis.arrays("examples")
    examples = (
        read_arrays(path, repair=f"delete it; `{command}` writes it") if path.exists() else None
    )
    if examples is None and predictions is not None and _wrong_in_the_tail(predictions, members):
        missing.append(
            f"Example images and saliency maps: {_inside(files, path)} is not in the"
            f" folder. `{command}` writes it."
        )
    paths = {stage: files.stage(stage).journal for stage in row["epochs"]}
    journals = {stage: read_journal(path) for stage, path in paths.items() if path.exists()}
    missing += [
        f"The curves of stage {stage}: {_inside(files, path)} is not in the folder."
        for stage, path in paths.items()
        if stage not in journals
    ]
    return Finished(
        folder=folder,
        row=row,
        request=request,
        classes=tuple(
            map(str, names or (f"class {number}" for number in range(row["data"]["classes"])))
        ),
        members=members,
        journals=journals,
        split=split,
        summary=summary,
        predictions=predictions,
        evaluations=read_evaluations(folder),
        examples=examples,
        analyses=tuple(files.analysis.files()),
        missing=tuple(missing),
    )


def _inside(run: RunFolder, path: Path) -> str:
    """A file's name within the folder of its run."""
    return path.relative_to(run.path).as_posix()


def _wrong_in_the_tail(predictions: Predictions, members: Mapping[str, Sequence[int]]) -> bool:
    """Whether there is a mistake to show among the rarest classes that have images, or among
    all classes if groups are not known.
    """
    tail = next(
        (
            group
            for group in reversed([*members.values()])
            if np.isin(group, predictions.target).any()
        ),
        predictions.target,
    )
    return bool(
        (predictions.predicted != predictions.target)[np.isin(predictions.target, tail)].any()
    )
