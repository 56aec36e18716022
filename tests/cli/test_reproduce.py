"""Reproducing: what is run, its name, its messages, and the exit code."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from longtail.recipes.published import published, smokes


def test_without_a_name_all_are_listed(longtail: Any) -> None:
    result = longtail("reproduce")
    assert result.code == 0
    assert all(name in result.out for name in published())
    assert "next: longtail reproduce" in result.out


def test_a_table_shows_what_was_published_and_what_is_finished(
    longtail: Any, tmp_path: Path
) -> None:
    result = longtail("reproduce", "--table", "livt-2", "--out", tmp_path)
    assert result.code == 0
    line = next(line for line in result.out.splitlines() if "imagenet-lt-mae" in line)
    assert "not finished" in line
    assert "54.5 / -" in line
    assert "19.4 / -" in line
    assert "next: longtail reproduce --table livt-2 --run" in result.out
    assert re.search(r"all rows with all their seeds: about [1-9][\d,.]* hours", result.out)
    done = {"name": "", "kind": "reproduction", "expected": {}, "verdict": "inside", "format": 2}
    done |= {
        "measured": {"mean": 0.541},
        "columns": {"few": {"published": 0.194, "measured": 0.2}},
    }
    (tmp_path / "imagenet-lt-mae").mkdir()
    (tmp_path / "imagenet-lt-mae" / "reproduce.json").write_text(json.dumps(done))
    result = longtail("reproduce", "--table", "livt-2", "--out", tmp_path)
    line = next(line for line in result.out.splitlines() if "imagenet-lt-mae" in line)
    assert "reproduction: inside" in line
    assert "54.5 / 54.1" in line
    assert "19.4 / 20.0" in line
    assert "53.5 to 55.5" in line
    done |= {"kind": "smoke", "expected": {"value": 0.5, "low": 0.4, "high": 0.6}}
    (tmp_path / "imagenet-lt-mae" / "reproduce.json").write_text(json.dumps(done))
    result = longtail("reproduce", "--table", "livt-2", "--out", tmp_path, "--smoke")
    assert "on digits-lt" in result.out
    line = next(line for line in result.out.splitlines() if "imagenet-lt-mae" in line)
    assert "40.0 to 60.0" in line


def test_a_table_has_its_numbers_of_a_row_and_the_lines_that_it_quotes(
    longtail: Any, tmp_path: Path
) -> None:
    result = longtail("reproduce", "--table", "deit-lt-s.3", "--out", tmp_path)
    lines = result.out.splitlines()
    assert "87.3 / -" in next(line for line in lines if "cifar10-lt-deit-lt-paco" in line)
    result = longtail("reproduce", "--table", "deit-lt-3", "--out", tmp_path)
    quoted = next(line for line in result.out.splitlines() if "DeiT III" in line)
    assert "Xu et al. 2023" in quoted
    assert "imagenet-lt-deit3" in quoted
    assert "12.8" in quoted
    result = longtail("reproduce", "--table", "deit-lt-2", "--out", tmp_path)
    assert re.search(r"cifar10-lt-ldam-drw +quoted from Cao et al. 2019", result.out)


def test_listing_needs_no_torch() -> None:
    code = """
import sys
from longtail.cli.main import app
app(["reproduce"], standalone_mode=False)
assert not {"torch", "numpy", "timm"} & set(sys.modules)
"""
    subprocess.run([sys.executable, "-c", code], check=True, capture_output=True)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("cifar10-lt-livd",), "did you mean cifar10-lt-livt"),
        (("digits-lt-balanced-softmax", "--smoke"), "remove --smoke"),
        (("cifar100-lt-paco", "--set", "rate=1"), "unknown keyword of paco 'rate'"),
        (("cifar100-lt-paco", "--seeds", "x"), "expected seeds such as 0,1,2"),
        (("cifar100-lt-paco", "--jobs", 0), "--jobs must be at least 1"),
        (("--table", "livt-44"), "unknown published table 'livt-44'"),
        (("cifar100-lt-paco", "--run"), "--run needs --table"),
        (("cifar100-lt-paco", "--table", "livt-4"), "--table takes neither the name of a row"),
    ],
)
def test_mistakes_are_named(longtail: Any, words: tuple[Any, ...], message: str) -> None:
    result = longtail("reproduce", *words)
    assert result.code == 2
    assert message in result.err


def test_the_smoke_of_the_cheapest_row_runs_and_is_inside(
    longtail: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    words = (
        "reproduce",
        "cifar100-lt-balanced-softmax",
        "--smoke",
        "--threads",
        1,
        "--device",
        "cpu",
        "--out",
        tmp_path,
    )
    result = longtail(*words)
    assert result.code == 0, result.out + result.err
    outcome = json.loads((tmp_path / "reproduce.json").read_text())
    row = json.loads((tmp_path / "seed=0" / "row.json").read_text())
    assert (outcome["kind"], outcome["verdict"]) == ("smoke", "inside")
    assert outcome["measured"]["mean"] == row["test"]["top1"] == outcome["measured"]["seeds"]["0"]
    assert outcome["expected"]["low"] == smokes()["balanced"].low
    assert "inside" in result.out
    assert "reproduction" not in result.out
    assert "next: longtail report" in result.out
    monkeypatch.setitem(smokes(), "balanced", replace(smokes()["balanced"], low=0.999, high=1.0))
    repeated = longtail(*words)
    assert repeated.code == 1
    assert "finished before" in repeated.out
    assert "below" in repeated.out


def test_a_dry_run_writes_nothing(longtail: Any, tmp_path: Path) -> None:
    words = (
        "reproduce",
        "cifar100-lt-balanced-softmax",
        "--smoke",
        "--dry-run",
        "--threads",
        1,
        "--device",
        "cpu",
    )
    result = longtail(*words, "--out", tmp_path / "out")
    assert result.code == 0, result.err
    assert not (tmp_path / "out").exists()


def test_torchrun_leaves_the_flags_behind_two_hyphens_alone() -> None:
    run = pytest.importorskip("torch.distributed.run")
    command = ["longtail", "reproduce", "--table", "livt-7", "--run"]
    parsed = run.get_args_parser().parse_args(
        ["--nproc-per-node", "2", "--no-python", "--", *command]
    )
    assert [parsed.training_script, *parsed.training_script_args] == command
