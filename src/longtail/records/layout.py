"""Where each file of a run folder lies. No other module spells these names.

RUN/
  recipe.json recipe.py        what was requested, and the recipe's source at that time
  auto.json teacher.json       why `train auto` chose it; which weights teach in it
  sessions.jsonl               when and on which machine it was worked on
  STAGE/                       last.pt kept.pt journal.jsonl, and done once it is finished
  teacher/model/ encoder/      networks that the last stage starts from, like model/
  predictions/                 val.npz test.npz
  model/                       model.safetensors spec.json README.md conformal.json
  analysis/                    arrays (*.npz), their figures, reconstructions.png
  row.json report.html         the results; a folder with a row is finished
  eval-DATA-TTA.json           results of `longtail eval`
  tensorboard/STAGE/ export/TO/
RUN.log                        the output of a run that a sweep started as a process
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, get_args

from longtail.errors import LongtailError

MOST_FOLDERS = 10_000
"""Folders that are searched for runs; more are a disk, not an experiment."""

ArraysName = Literal[
    "attention_distance",
    "entropy",
    "examples",
    "gradcam",
    "rank",
    "relations",
    "rollout",
    "training",
]
"""The arrays that analyses write: `analysis/NAME.npz`."""


class File:
    """A file of this name in a folder, and what it is for."""

    def __init__(self, name: str, doc: str) -> None:
        self.name, self.__doc__ = name, doc

    def __get__(self, folder: Any, owner: type) -> Path:
        return Path(folder.path, self.name)


@dataclass(frozen=True)
class ModelFolder:
    """The folder of a network: `model/`, `encoder/`, or `model/` in the folder of a stage."""

    path: Path

    weights = File("model.safetensors", "The tensors.")
    spec = File(
        "spec.json",
        "How the network is built. Written last: a folder that has it is complete.",
    )
    card = File("README.md", "The model card, for people.")
    thresholds = File(
        "conformal.json",
        "The thresholds of prediction sets; runs without validation images have none.",
    )
    pairs = File(
        "pairs.npz",
        "What new pairs of attribute and object are made from; other runs have none.",
    )

    @property
    def is_complete(self) -> bool:
        """Whether the network can be read."""
        return self.spec.exists()


@dataclass(frozen=True)
class StageFolder:
    """The folder of one stage of a run."""

    path: Path

    checkpoint = File("last.pt", "The state that training continues from.")
    kept = File(
        "kept.pt",
        "The weights that the stage returns, where they are not those of its last step.",
    )
    record = File("done", "Epochs, minutes and selection of a finished stage. Written last.")
    journal = File(
        "journal.jsonl",
        "A line of JSON for each epoch, and for some of the steps between.",
    )

    @property
    def model(self) -> ModelFolder:
        """The stage's network, where other runs may start from it."""
        return ModelFolder(self.path / "model")

    @property
    def is_finished(self) -> bool:
        """Whether the stage was trained to its end."""
        return self.record.exists()


@dataclass(frozen=True)
class AnalysisFolder:
    """Arrays that analyses of a trained network wrote, and figures of them."""

    path: Path

    def arrays(self, name: ArraysName) -> Path:
        """The arrays of one analysis."""
        return self.path / f"{name}.npz"

    def figure(self, name: str) -> Path:
        """A figure of such arrays."""
        return self.path / f"{name}.svg"

    reconstructions = File(
        "reconstructions.png",
        "The reconstructions of a masked autoencoder, as an image.",
    )

    def stored(self) -> dict[ArraysName, Path]:
        """The arrays that there are, by name."""
        paths = {name: self.arrays(name) for name in get_args(ArraysName)}
        return {name: path for name, path in paths.items() if path.exists()}

    def files(self) -> list[Path]:
        """Every file but the examples, which the report shows by themselves; sorted."""
        examples = self.arrays("examples")
        return sorted(path for path in self.path.glob("*") if path.is_file() and path != examples)


@dataclass(frozen=True)
class ExportFolder:
    """A network for use without longtail; it holds the files of one of three kinds of export."""

    path: Path

    onnx = File("model.onnx", "The ONNX program.")
    onnx_data = File("model.onnx.data", "Its weights, where they are too large for that file.")
    program = File("model.pt2", "The program of `torch.export`.")
    weights = File("model.safetensors", "The weights, as timm reads them.")
    config = File("config.json", "The model's configuration, as timm reads it.")
    description = File("model.json", "Classes, size and the check against our predictions.")
    readme = File("README.md", "How to use it, for people.")
    script = File("predict.py", "The program that classifies image files with it.")

    @property
    def models(self) -> tuple[Path, ...]:
        """The files that depend on the kind of export."""
        return (self.onnx, self.onnx_data, self.program, self.weights, self.config)


@dataclass(frozen=True)
class RunFolder:
    """The folder of a run: where each of its files lies.

    >>> run = RunFolder(Path("runs/plain"))
    >>> run.stage("train").checkpoint.as_posix()
    'runs/plain/train/last.pt'
    """

    path: Path

    recipe = File("recipe.json", "What was requested. A folder without it is no run.")
    recipe_source = File("recipe.py", "The source of the recipe when the run started.")
    choice = File("auto.json", "What `longtail train auto` chose, and why.")
    teacher_record = File(
        "teacher.json",
        "Which weights teach in this run, where they come from outside.",
    )
    sessions = File(
        "sessions.jsonl",
        "A line of JSON for each time that a process worked on the run.",
    )
    row = File("row.json", "The results. Written last: a folder with it is finished.")
    report = File("report.html", "The report of this run alone.")

    @property
    def log(self) -> Path:
        """The output of a run that was started as a process; next to the run folder."""
        return self.path.with_name(f"{self.path.name}.log")

    @property
    def model(self) -> ModelFolder:
        """The trained network."""
        return ModelFolder(self.path / "model")

    @property
    def encoder(self) -> ModelFolder:
        """The encoder before fine-tuning, of runs that have one."""
        return ModelFolder(self.path / "encoder")

    @property
    def analysis(self) -> AnalysisFolder:
        """The results of analyses."""
        return AnalysisFolder(self.path / "analysis")

    def stage(self, name: str) -> StageFolder:
        """The folder of a stage."""
        return StageFolder(self.path / name)

    def predictions(self, split: str) -> Path:
        """The logits of a split: "val" or "test"."""
        return self.path / "predictions" / f"{split}.npz"

    def tensorboard(self, stage: str) -> Path:
        """The folder of a stage's TensorBoard files."""
        return self.path / "tensorboard" / stage

    def evaluation(self, data: str, tta: str) -> Path:
        """The results of an evaluation that is not the run's row."""
        return self.path / f"eval-{data}-{tta}.json"

    def evaluations(self) -> list[Path]:
        """The results of all such evaluations."""
        return sorted(self.path.glob("eval-*.json"))

    def export(self, to: str) -> ExportFolder:
        """Where an export goes unless another folder is given."""
        return ExportFolder(self.path / "export" / to)

    @property
    def is_finished(self) -> bool:
        """Whether the run has its row."""
        return self.row.exists()

    def has_checkpoint(self) -> bool:
        """Whether a stage has saved something, or the run is finished: then it must not be started
        anew.
        """
        return self.is_finished or self.has_started()

    def has_started(self) -> bool:
        """Whether a stage has saved something."""
        return bool(self.stages())

    def stages(self) -> list[StageFolder]:
        """The stages that have saved something, by name."""
        checkpoints = self.path.glob(f"*/{self.stage('*').checkpoint.name}")
        return [StageFolder(path.parent) for path in sorted(checkpoints)]

    def other_files(self) -> list[str]:
        """The names of the files in a folder without recipe.json.

        Files of a run that was killed before it wrote recipe.json are left out.
        """
        early = {self.choice.name, self.recipe_source.name}
        paths = self.path.iterdir() if self.path.exists() else ()
        return sorted(path.name for path in paths if path.name not in early and not is_part(path))

    def runs_inside(self) -> list[RunFolder]:
        """The runs in this folder and the folders in it, sorted.

        Links are not followed, and of a disk with more than `MOST_FOLDERS` folders nothing is read.
        """
        runs = []
        for number, (place, folders, files) in enumerate(os.walk(self.path)):
            if number >= MOST_FOLDERS:
                raise LongtailError(
                    f"{self.path} has more than {MOST_FOLDERS:,} folders: name a run folder, or a"
                    " folder of runs"
                )
            folders[:] = [name for name in folders if not name.startswith(".")]
            if self.recipe.name in files:
                runs.append(RunFolder(Path(place)))
        return sorted(runs, key=lambda run: run.path)

    def finished_inside(self) -> list[RunFolder]:
        """The finished runs directly in this folder, sorted."""
        return [RunFolder(path.parent) for path in sorted(self.path.glob(f"*/{self.row.name}"))]


@dataclass(frozen=True)
class SearchFolder:
    """The folder of a search or of a published row's runs: files beside the folders of the runs."""

    path: Path

    request = File("search.json", "What is searched, and by which metric.")
    journal = File("search.jsonl", "Optuna's journal.")
    figure = File("search.svg", "The metric of every trial, by keyword.")
    reproduction = File("reproduce.json", "How the runs compare with a published number.")

    def trial(self, number: int) -> RunFolder:
        """The run of a trial."""
        return RunFolder(self.path / "trials" / f"{number:03d}")

    final = File(
        "final",
        "The runs of the table at the end; the winner with the first seed is a trial.",
    )


def is_trial(run: RunFolder) -> bool:
    """Whether a run is a trial of a search, which must not be chosen by its test scores."""
    inside = SearchFolder(run.path.parent.parent)
    return run.path.parent == inside.trial(0).path.parent and inside.request.exists()


def features_parts(path: Path, identity: str) -> Path:
    """The folder of features that are computed but not yet written to the file `path`."""
    return path.with_name(f"{path.name}.{identity[:12]}.parts")


def features_part(folder: Path, split: str, batch: int) -> Path:
    """The features of a split from a batch on."""
    return folder / f"{split}-{batch:07d}.npy"


def part_of(path: Path) -> Path:
    """Where a file is written before it is moved to `path`."""
    return path.with_name(f"{path.name}.part")


def is_part(path: Path) -> bool:
    """Whether a file is the unfinished part of an atomic write."""
    return path.suffix == ".part"
