"""Teachers: trained in this run, read from a finished run, or from timm."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import torch

from longtail.core import B, Method, Stage
from longtail.data import label_cache
from longtail.data.dataset import Dataset
from longtail.engine.run import Run
from longtail.errors import LongtailError
from longtail.nn import Classifier, Teacher, files
from longtail.nn.zoo import timm_classifier
from longtail.records.documents import read_document, write_document
from longtail.records.kinds import STAGE, TEACHER, read_recipe
from longtail.records.layout import RunFolder, StageFolder
from longtail.records.row import read_row


class _OneStage(Run):
    """A run in which the one stage of another recipe has this name."""

    def __init__(self, run: Run, name: str) -> None:
        self.__dict__.update(run.__dict__)  # the same folder, seeds, machine and history
        self.name = name

    def fit(self, stage: Stage[B]) -> Method[B]:
        return super().fit(replace(stage, name=self.name))


def find_teacher(
    run: Run, data: Dataset, teacher: str | None, train: Callable[[Run, Dataset], Method[Any]]
) -> Teacher:
    """Read the teacher, or train one as stage `teacher` and leave it in `teacher/model`."""
    if teacher is not None:
        result = read_teacher(teacher, data, trust=run.trust)
        record_origin(run, teacher, data)
        weights = {"teacher": teacher, "weights": label_cache.digest(result)}
        run.write(run.files.teacher_record, partial(_check_unchanged, run, weights), replace=True)
    else:
        stage = _OneStage(run, "teacher")
        network = train(stage, data.at_native_resolution()).deploy()
        run.pretraining = stage.pretraining
        assert isinstance(network, Classifier)
        size = int(network.network.spec["size"])
        model = run.files.stage("teacher").model
        run.write(
            model.spec, lambda _: files.write(model.path, network, classes=data.classes, size=size)
        )
        result = Teacher(network, size=size)
    run.machine.place_module(result)
    return result


def _check_unchanged(run: Run, teacher: dict[str, str], path: Path) -> None:
    """Record which weights teach in this run, and refuse others once it has a checkpoint."""
    if not path.exists() or not run.files.has_started():
        write_document(path, teacher)
    before = read_document(path, TEACHER)
    if any(before[name] != value for name, value in teacher.items()):
        raise LongtailError(
            f"expected the teacher that this run started with, {before['teacher']} with weights "
            f"{before['weights'][:12]}, got {teacher['teacher']} with weights "
            f"{teacher['weights'][:12]}: restore it, or start another run with --out"
        )


def read_teacher(source: str, data: Dataset, *, trust: bool = False) -> Teacher:
    """Read a teacher with the classes of the data from a finished run or `timm:NAME`."""
    if source.startswith("timm:"):
        network, names, size = timm_classifier(source.removeprefix("timm:"))
        check_classes(source, names, data)
        teacher = Teacher(network, size=size)  # from here on in evaluation mode
        outputs = teacher(torch.zeros(1, 3, size, size)).shape[1]
        if outputs != len(data.classes):
            raise LongtailError(
                f"expected a teacher of the {len(data.classes)} classes of {data.name}, got one of "
                f"{outputs}: {source}. Train one on it"
            )
        return teacher
    folder, run = Path(source), RunFolder(Path(source))
    if not folder.is_dir() or run.recipe.exists():
        read_row(folder)  # refuses a run that is not finished
    elif not run.model.is_complete:
        raise LongtailError(
            f"expected a finished teacher, got an unfinished one or none at {folder}: finish the "
            "run that trains it"
        )
    saved = files.read(run.model.path, trust=trust)
    check_classes(source, saved.classes, data)
    return Teacher(saved.network, size=saved.size)


def record_origin(run: Run, earlier: str, data: Dataset, *, role: str = "teacher") -> None:
    """Record that a run starts from the weights of another: their data and training time."""
    run.pretraining = (
        "; ".join(filter(None, (run.pretraining, training_data(earlier, data, role=role)))) or None
    )
    run.minutes_before[str(Path(earlier).resolve())] = minutes_of(earlier)


def minutes_of(earlier: str) -> float:
    """The training time of a finished run and of those it started from; 0 where it is unknown.

    Of a stage within a run, it is that of the stage alone.
    """
    place = Path(earlier).resolve()
    stage = StageFolder(place)
    if stage.is_finished:
        return float(read_document(stage.record, STAGE)["minutes"])
    rows = [read_row(folder) for folder in (place, place.parent) if RunFolder(folder).is_finished]
    return rows[0]["minutes"] + rows[0].get("minutes_before", 0.0) if rows else 0.0


def training_data(teacher: str, data: Dataset, *, role: str = "teacher") -> str | None:
    """Other data that a teacher was trained on, or other splits of the same data; None for none.

    A student of such a teacher is not comparable with others.
    """
    if teacher.startswith("timm:"):
        return f"{teacher} ({role})"
    place = Path(teacher).resolve()  # of "." the parent is elsewhere
    runs = [run for run in map(RunFolder, (place, place.parent)) if run.recipe.exists()]
    if not runs:
        return f"unknown data ({role})"
    learnt = read_recipe(runs[0].path)["data"]
    if learnt["hash"] != data.hash:
        return f"{learnt['name']}, {learnt['hash'][:12]} ({role})"
    before = read_row(runs[0].path)["pretraining"] if runs[0].is_finished else None
    return f"{before} ({role})" if before else None


def check_classes(teacher: str, names: Sequence[str] | None, data: Dataset) -> None:
    """Refuse a teacher of other classes, or of the same classes in another order."""
    if names is None or tuple(names) == data.classes:
        return
    if sorted(names) == sorted(data.classes):
        first = next(
            i
            for i, (name, expected) in enumerate(zip(names, data.classes, strict=True))
            if name != expected
        )
        raise LongtailError(
            f"expected a teacher with the classes of {data.name} in their order, got another "
            f"order: class {first} is {data.classes[first]!r} in the data and {names[first]!r} for "
            f"{teacher}. Train it on this data"
        )
    raise LongtailError(
        f"expected a teacher with the classes of {data.name}, got {teacher}. Of the data's "
        f"{len(data.classes)} it lacks {_first(set(data.classes) - set(names))}; of its "
        f"{len(names)} the data lacks {_first(set(names) - set(data.classes))}. "
        "Train it on this data"
    )


def _first(names: set[str]) -> str:
    return ", ".join(sorted(names)[:5]) + (", ..." if len(names) > 5 else "") if names else "none"
