"""`longtail report` as a person types it."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

SMALL = (
    "--data",
    "digits-lt",
    "--epochs",
    1,
    "--threads",
    1,
    "--network",
    "fast_cnn",
    "--device",
    "cpu",
)


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    from longtail.runs import train

    folder = tmp_path_factory.mktemp("runs")
    for recipe in ("cross_entropy", "balanced_softmax"):
        train(recipe, "digits-lt", folder / recipe, epochs=1, threads=1, device="cpu")
    return folder


def test_training_leaves_a_report_and_says_where(longtail: Any, runs: Path) -> None:
    result = longtail(
        "train",
        "cross_entropy",
        "--data",
        "digits-lt",
        "--epochs",
        1,
        "--out",
        runs / "cross_entropy",
        "--device",
        "cpu",
    )
    assert result.code == 0, result.err
    assert f"report: {runs / 'cross_entropy' / 'report.html'}" in result.out
    text = (runs / "cross_entropy" / "report.html").read_text(encoding="utf-8")
    assert "cross_entropy on digits-lt" in text
    assert "Missing files" not in text


def test_one_run_several_runs_and_a_folder_of_runs(
    longtail: Any, runs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    copy = shutil.copytree(runs / "cross_entropy", tmp_path / "one")
    (copy / "report.html").unlink()
    result = longtail("report", copy)
    assert result.code == 0, result.err
    assert (copy / "report.html").exists()
    assert "next: open" in result.out
    assert longtail("report", runs).code == 0
    assert "2 runs on digits-lt" in (tmp_path / "report.html").read_text(encoding="utf-8")
    result = longtail(
        "report",
        runs / "cross_entropy",
        runs / "balanced_softmax",
        "--out",
        tmp_path / "deep" / "r.html",
    )
    assert result.code == 0, result.err
    assert (tmp_path / "deep" / "r.html").exists()


def test_runs_of_different_data_are_shown_and_not_ranked(
    longtail: Any, runs: Path, tmp_path: Path
) -> None:
    other = shutil.copytree(runs / "balanced_softmax", tmp_path / "other")
    row = json.loads((other / "row.json").read_text())
    row["data"] |= {"name": "moths", "hash": "f" * 64}
    (other / "row.json").write_text(json.dumps(row))
    result = longtail("report", runs / "cross_entropy", other, "--out", tmp_path / "r.html")
    assert result.code == 0
    assert "split (the images and labels of train, validation and test)" in result.err
    assert "These runs are not ranked" in (tmp_path / "r.html").read_text(encoding="utf-8")
    both = ("--across", "split", "--across", "test")
    assert (
        "warning"
        not in longtail(
            "report", runs / "cross_entropy", other, *both, "--out", tmp_path / "r.html"
        ).out
    )
    assert "These runs are not ranked" not in (tmp_path / "r.html").read_text(encoding="utf-8")


@pytest.mark.parametrize("verb", ["report", "compare"])
def test_what_is_no_finished_run_is_refused_in_a_sentence(
    longtail: Any, runs: Path, tmp_path: Path, verb: str
) -> None:
    (tmp_path / "empty").mkdir()
    unfinished = shutil.copytree(runs / "cross_entropy", tmp_path / "unfinished")
    (unfinished / "row.json").unlink()
    newer = shutil.copytree(runs / "cross_entropy", tmp_path / "newer")
    (newer / "row.json").write_text(
        json.dumps(json.loads((newer / "row.json").read_text()) | {"format": 99})
    )
    for folder, words in (
        (tmp_path / "empty", "got an empty folder"),
        (unfinished, "got an unfinished one"),
        (newer, "a newer longtail wrote it"),
        (tmp_path / "nowhere", "got nothing"),
    ):
        result = longtail(verb, folder)
        assert result.code == 2
        assert words in result.err
        assert "Traceback" not in result.err


def test_the_command_needs_no_torch(runs: Path, tmp_path: Path) -> None:
    code = f"""
import sys
from longtail.cli.main import app
try:
    app(["report", {str(runs)!r}, "--out", {str(tmp_path / "r.html")!r}])
except SystemExit as end:
    assert not end.code, end.code
assert not {{"torch", "timm", "torchvision", "matplotlib"}} & set(sys.modules)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
