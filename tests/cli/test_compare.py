"""`longtail compare` as a person types it."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    from longtail.runs import train

    folder = tmp_path_factory.mktemp("runs")
    for recipe in ("cross_entropy", "balanced_softmax"):
        train(recipe, "digits-lt", folder / recipe, epochs=1, threads=1, device="cpu")
    return folder


def test_the_table_is_printed_or_written(longtail: Any, runs: Path, tmp_path: Path) -> None:
    shown = longtail("compare", runs)
    assert shown.code == 0, shown.err
    assert "next: longtail report" in shown.out
    printed = longtail("compare", runs, "--format", "latex")
    assert printed.code == 0
    assert r"\toprule" in printed.out
    assert longtail("compare", runs, "--out", tmp_path / "t.tex").code == 0
    assert (tmp_path / "t.tex").read_text(encoding="utf-8") == printed.out


def test_columns_by_a_flag_of_the_data(longtail: Any, runs: Path) -> None:
    shown = longtail("compare", runs, "--by", "split-seed")
    assert shown.code == 0, shown.err
    assert "split_seed 0" in shown.out
    assert f"longtail compare {runs} --by=split_seed --out comparison.tex" in shown.out
    wrong = longtail("compare", runs, "--by", "imbalanse")
    assert wrong.code == 2
    assert "unknown data flag 'imbalanse': did you mean imbalance" in wrong.err


def test_unfinished_runs_are_named(longtail: Any, runs: Path, tmp_path: Path) -> None:
    copy = shutil.copytree(runs, tmp_path / "runs")
    (copy / "cross_entropy" / "row.json").unlink()
    shown = longtail("compare", copy)
    assert shown.code == 0
    assert f"{copy / 'cross_entropy'} is unfinished and not in the table" in shown.err
