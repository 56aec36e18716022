"""Only `records` spells the names of a run folder's files."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path
from typing import get_args

import pytest

import longtail
from longtail.errors import LongtailError
from longtail.records import layout
from longtail.records.layout import (
    AnalysisFolder,
    ArraysName,
    ExportFolder,
    File,
    ModelFolder,
    RunFolder,
    SearchFolder,
    StageFolder,
    is_part,
    is_trial,
    part_of,
)

SOURCE = Path(longtail.__file__).parent
FOLDERS = (
    "analysis",
    "encoder",
    "export",
    "final",
    "model",
    "predictions",
    "tensorboard",
    "trials",
)
ENDINGS = (".jsonl", ".log", ".npz", ".part", ".pt", "eval-")
ALLOWED = {
    ("data/open.py", ".npz"): "a file of features to train on",
    ("data/words.py", ".npz"): "a file of word vectors",
    ("cli/predict.py", ".npz"): "a file of features to classify",
    ("runs/embedding.py", ".npz"): "a file of features to write",
    ("runs/new_classes.py", ".npz"): "a file of class attributes or word vectors",
    ("cli/export.py", "predict.py agrees from file to logits on "): "a sentence",
    ("runs/export_program.py", "the exported program predict.py failed ("): "a sentence",
    ("data/label_cache.py", ".part"): "a cache outside of run folders",
    ("nn/pretrained.py", "model.safetensors"): "the hub's name for weights",
}


def paths(folder: object) -> Iterator[Path]:
    """Every path that a folder's attributes give."""
    for name, member in vars(type(folder)).items():
        if isinstance(member, property | File):
            value = getattr(folder, name)
            yield from [value] if isinstance(value, Path) else []


NAMES = {
    path.name
    for kind in (RunFolder, StageFolder, ModelFolder, AnalysisFolder, ExportFolder, SearchFolder)
    for path in paths(kind(Path("x")))
    if path.suffix not in ("", ".log")
}
NAMES |= {AnalysisFolder(Path()).arrays(name).name for name in get_args(ArraysName)}
NAMES |= {RunFolder(Path()).predictions(split).name for split in ("val", "test")}


def spelled(source: str) -> Iterator[str]:
    """The string literals of a module that name a file or a folder of a run."""
    tree = ast.parse(source)
    skipped = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
            skipped.add(node.value)  # a docstring
        if isinstance(node, ast.keyword) and node.arg == "help":
            skipped |= {part for part in ast.walk(node.value) if isinstance(part, ast.Constant)}
        if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Div):
            right = node.right
            if isinstance(right, ast.Constant) and right.value in FOLDERS:
                yield right.value
    pattern = "|".join(re.escape(name) for name in sorted(NAMES))
    for node in ast.walk(tree):
        if not isinstance(node, ast.Constant) or not isinstance(node.value, str):
            continue
        text = node.value
        if node in skipped or "\n" in text:  # several lines are a text for people
            continue
        if (
            text in ENDINGS
            or text == "done"
            or re.search(rf"(?<![\w.-])({pattern})(?![\w-])", text)
        ):
            yield text


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ('path = folder / "row.json"', ["row.json"]),
        ('path = folder / "model" / name', ["model"]),
        ('folder.glob("*/last.pt")', ["*/last.pt"]),
        ('f"{split}.npz"', [".npz"]),
        ('raise ValueError("no model/spec.json here")', ["no model/spec.json here"]),
        ('"""row.json says it."""\nx = Option(help="Writes row.json.")', []),
        ('kind = "model"; other = "arrow.json"', []),
    ],
)
def test_a_spelled_name_is_found(source: str, expected: list[str]) -> None:
    assert list(spelled(source)) == expected


def test_no_other_module_spells_a_file_of_a_run_folder() -> None:
    assert {"row.json", "recipe.json", "last.pt", "spec.json", "journal.jsonl"} <= NAMES
    names = [
        (module, text)
        for path in sorted(SOURCE.rglob("*.py"))
        if (module := path.relative_to(SOURCE).as_posix()).partition("/")[0] != "records"
        for text in spelled(path.read_text(encoding="utf-8"))
    ]
    assert set(names) - ALLOWED.keys() == set(), "use longtail.records.layout"
    assert ALLOWED.keys() <= set(names), "no longer needed"


def progress(run: RunFolder) -> tuple[bool, bool, bool]:
    return run.has_started(), run.has_checkpoint(), run.is_finished


def test_a_run_has_a_state(tmp_path: Path) -> None:
    run = RunFolder(tmp_path / "run")
    assert not run.other_files()
    run.stage("train").path.mkdir(parents=True)
    assert progress(run) == (False, False, False)
    run.stage("train").checkpoint.touch()
    assert progress(run) == (True, True, False)
    run.stage("train").checkpoint.unlink()
    run.row.touch()
    assert progress(run) == (False, True, True)
    assert [inside.path for inside in RunFolder(tmp_path).finished_inside()] == [run.path]
    for path in (run.choice, run.recipe_source, part_of(run.recipe)):
        path.touch()
    assert [is_part(path) for path in (part_of(run.recipe), run.recipe)] == [True, False]
    assert run.other_files() == ["row.json", "train"]


def test_trials_of_a_search_are_separated_from_runs_of_the_same_name(tmp_path: Path) -> None:
    run = SearchFolder(tmp_path).trial(7)
    assert run.path == tmp_path / "trials" / "007"
    assert not is_trial(run)
    SearchFolder(tmp_path).request.touch()
    assert is_trial(run)
    assert not is_trial(RunFolder(tmp_path / "final" / "007"))


def test_analyses_are_listed_without_the_examples(tmp_path: Path) -> None:
    analysis = AnalysisFolder(tmp_path)
    for path in (analysis.arrays("examples"), analysis.arrays("rank"), analysis.figure("ranks")):
        path.touch()
    assert analysis.stored() == {
        "examples": tmp_path / "examples.npz",
        "rank": tmp_path / "rank.npz",
    }
    assert analysis.files() == [tmp_path / "rank.npz", tmp_path / "ranks.svg"]


def test_a_disk_is_not_searched_for_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("a/run", "b/c/run", ".hidden/run"):
        (tmp_path / name).mkdir(parents=True)
        (tmp_path / name / "recipe.json").write_text("{}")
    (tmp_path / "up").symlink_to(tmp_path)
    inside = RunFolder(tmp_path).runs_inside()
    assert [run.path.relative_to(tmp_path).as_posix() for run in inside] == ["a/run", "b/c/run"]
    monkeypatch.setattr(layout, "MOST_FOLDERS", 4)
    with pytest.raises(LongtailError, match="has more than 4 folders: name a run folder"):
        RunFolder(tmp_path).runs_inside()
