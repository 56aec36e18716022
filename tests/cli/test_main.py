"""Verbs: what they print, what they refuse, and that help needs no torch."""

from __future__ import annotations

import json
import shlex
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from longtail.cli import main, tables
from longtail.recipes import RECIPES
from longtail.recipes.signatures import read

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


@pytest.mark.parametrize(
    "verb",
    [
        ["--help"],
        ["list"],
        ["show", "balanced_softmax"],
        ["reproduce"],
        *(
            [*words, "--help"]
            for words in (["train"], ["train", "cross_entropy"], ["train", "auto"])
        ),
        *([verb, "--help"] for verb in main.VERBS),
    ],
)
def test_help_needs_no_torch(verb: list[str]) -> None:
    code = f"""
import sys
from longtail.cli.main import app
try:
    app({verb!r})
except SystemExit as end:
    assert not end.code, end.code
heavy = set("torch torchvision timm numpy".split())
assert heavy.isdisjoint(name.partition(".")[0] for name in sys.modules)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_list_knows_what_there_is(longtail: Any) -> None:
    from longtail.data.names import KNOWN
    from longtail.nn.networks import NETWORKS

    result = longtail("list")
    assert result.code == 0
    assert all(name in result.out for name in (*RECIPES, *KNOWN, *NETWORKS))
    assert main.networks() == list(NETWORKS)
    assert "next: longtail" in result.out


def test_show_prints_source_flags_and_next_command(longtail: Any) -> None:
    result = longtail("show", "logit_adjustment")
    assert "def balanced_softmax(" in result.out
    assert "--tau" in result.out
    assert "next: longtail train balanced_softmax" in result.out
    assert "ren2020balanced" in longtail("show", "balanced_softmax", "--cite").out


def test_text_breaks_where_the_terminal_does_and_not_where_the_source_does() -> None:
    doc = (
        "Train.\n\n    longtail train a\n    longtail train b\n\nOne sentence that\ngoes"
        " on.\n\nCost: some\nminutes.\nOurs: 5%."
    )
    assert (
        tables.unwrapped(doc)
        == "Train.\n\nlongtail train a\nlongtail train b\n\nOne sentence that goes on.\n\nCost:"
        " some minutes.\nOurs: 5%."
    )
    for name in RECIPES:
        assert tables.unwrapped(read(name).doc).split() == read(name).doc.split()


def test_recipe_help_lists_its_keywords(longtail: Any) -> None:
    result = longtail("train", "balanced_softmax", "--help")
    assert all(flag in result.out for flag in ("--tau", "--epochs", "--data", "--seed"))
    assert "--tau" not in longtail("train", "cross_entropy", "--help").out


def test_a_run_from_train_to_compare(longtail: Any, tmp_path: Path) -> None:
    for recipe in ("cross_entropy", "balanced_softmax"):
        result = longtail("train", recipe, *SMALL, "--out", tmp_path / recipe)
        assert result.code == 0, result.err
        assert "balanced" in result.out
        assert "next: longtail" in result.out
    assert (
        f"next: longtail compare {tmp_path / 'cross_entropy'} {tmp_path / 'balanced_softmax'}"
        in result.out
    )
    # Neither the same run twice, nor runs of other images, can be ranked.
    apart = longtail(
        "train", "cross_entropy", *SMALL, "--imbalance", 10, "--out", tmp_path / "apart"
    )
    assert f"next: longtail predict {tmp_path / 'apart'} IMAGES" in apart.out
    shutil.rmtree(tmp_path / "apart")
    assert (
        "finished before"
        in longtail("train", "balanced_softmax", *SMALL, "--out", tmp_path / "balanced_softmax").out
    )
    other = longtail(
        "train",
        "balanced_softmax",
        *SMALL,
        "--tau",
        2,
        "--seed",
        1,
        "--out",
        tmp_path / "balanced_softmax",
    )
    assert other.code == 2
    assert "tau: 1.0 in the folder, 2.0 requested" in other.err
    assert "seed: 0 in the folder, 1 requested" in other.err
    table = longtail("compare", tmp_path)
    assert table.code == 0, table.err
    assert "cross_entropy" in table.out
    assert "balanced_softmax" in table.out
    written = longtail("compare", tmp_path, "--format", "csv", "--out", tmp_path / "table.csv")
    assert written.code == 0
    assert len((tmp_path / "table.csv").read_text().splitlines()) == 3
    (tmp_path / "unfinished").mkdir()
    (tmp_path / "unfinished" / "recipe.json").write_text("{}")
    assert "unfinished is unfinished" in longtail("compare", tmp_path).err


def test_dry_run_writes_nothing(longtail: Any, tmp_path: Path) -> None:
    result = longtail("train", "cross_entropy", *SMALL, "--dry-run", "--out", tmp_path / "run")
    assert result.code == 0
    assert "ms a step" in result.err
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("train", "cros_entropy", "--data", "digits-lt"), "did you mean cross_entropy"),
        (("train", "--data", "digits-lt"), "expected a recipe before the flags"),
        (("train", "cross_entropy", "--data", "digits"), "digits-lt"),
        (
            ("train", "cross_entropy", "--data", "digits-lt", "--epochs", "many"),
            "expected epochs to be int, got 'many'",
        ),
        (("train", "cross_entropy", "--data", "digits-lt", "--epoch", "3"), "--epochs"),
        (
            ("train", "cross_entropy", "--data", "digits-lt", "--augment", "weka"),
            "did you mean weak",
        ),
        (("train", "cross_entropy", "--data", "digits-lt", "--seed", "x"), "--seed"),
        (("train", "cross_entropy"), "--data"),
        (("train", "cross_entropy", "--data", "digits-lt", "--device", "tpu"), "tpu"),
        (("show", "nothing"), "unknown recipe"),
        (("eval", "nowhere"), "expected a run folder"),
        (("compare", "nowhere"), "expected a run folder"),
        (("sweep", "cross_entropy"), "a sweep needs data"),
        (("sweep", "--name", "nothing"), "unknown sweep"),
        (
            ("sweep", "cross_entropy", "--data", "digits-lt", "--epochs", "3"),
            "write --set epochs=VALUE",
        ),
        (("sweep", "cross_entropy", "--data", "digits-lt", "--sets", "epochs=3"), "--set"),
        (
            ("train", "auto", "--data", "digits-lt", "--epochs", "3"),
            "run the command that --dry-run prints",
        ),
        (
            ("sweep", "cross_entropy", "--data", "digits-lt", "--seeds", "0,0"),
            "seeds must be different",
        ),
        (
            ("sweep", "cross_entropy", "--data", "digits-lt", "--set", "epoch=1"),
            "did you mean epochs",
        ),
        (("sweep", "cross_entropy", "--data", "digits-lt", "--set", "epochs"), "KEYWORD=VALUE"),
        (
            (
                "sweep",
                "cross_entropy",
                "--data",
                "digits-lt",
                "--set",
                "epochs=1",
                "--set",
                "epochs=2",
            ),
            "write all its values in one",
        ),
        (
            ("sweep", "cross_entropy", "--data", "digits-lt", "--set", "epochs=1,x"),
            "expected epochs to be int",
        ),
    ],
)
def test_mistakes_are_refused_with_a_message(
    longtail: Any,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    words: tuple[str, ...],
    message: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    result = longtail(*words)
    assert result.code == 2
    assert message in result.err
    assert "Traceback" not in result.err
    assert not list(tmp_path.iterdir())


def test_an_unknown_network_leaves_a_folder_that_can_be_used(longtail: Any, tmp_path: Path) -> None:
    words = (
        "train",
        "cross_entropy",
        "--data",
        "digits-lt",
        "--epochs",
        1,
        "--threads",
        1,
        "--out",
        tmp_path / "run",
    )
    wrong = longtail(*words, "--network", "fastcnn")
    assert wrong.code == 2
    assert "fast_cnn" in wrong.err
    assert longtail(*words, "--network", "fast_cnn").code == 0
    assert (
        json.loads((tmp_path / "run" / "recipe.json").read_text())["keywords"]["network"]
        == "fast_cnn"
    )


def test_debug_shows_where(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "argv", ["longtail", "show", "nothing", "--debug"])
    with pytest.raises(ValueError, match="unknown recipe"):
        main.run()


def test_sweep_is_a_grid_that_resumes(longtail: Any, tmp_path: Path) -> None:
    words = (
        "sweep",
        "cross_entropy,balanced_softmax",
        "--data",
        "digits-lt",
        "--seeds",
        "0,1",
        "--set",
        "epochs=1",
    )
    result = longtail(*words, "--threads", 1, "--out", tmp_path)
    assert result.code == 0, result.err
    expected = [
        f"{recipe}-seed={seed}"
        for recipe in ("balanced_softmax", "cross_entropy")
        for seed in (0, 1)
    ]
    assert sorted(path.parent.name for path in tmp_path.glob("*/row.json")) == expected
    before = {path: path.stat().st_mtime_ns for path in tmp_path.glob("*/row.json")}
    # The first of the recipes is what the others are compared with, also by the command that it
    # ends with.
    assert "balanced over cross_entropy" in result.out
    *_, last = result.out.strip().splitlines()
    compared = longtail(*shlex.split(last.removeprefix("next: longtail ").partition(" --out")[0]))
    assert "balanced over cross_entropy" in compared.out
    repeated = longtail(*words, "--threads", 1, "--out", tmp_path)
    assert repeated.out.count("finished before") == 4
    assert before == {path: path.stat().st_mtime_ns for path in tmp_path.glob("*/row.json")}


def test_eval_shows_what_stands_behind_the_headline_or_all_of_it_as_json(
    longtail: Any, tmp_path: Path
) -> None:
    run = tmp_path / "run"
    assert longtail("train", "cross_entropy", *SMALL, "--out", run).code == 0
    result = longtail("eval", run, "--device", "cpu", "--threads", 1)
    assert result.code == 0
    for words in (
        "macro F1",
        "worst classes",
        "by group",
        "1:50",
        "Prediction sets: nominal coverage 90.0%",
        "next: longtail",
    ):
        assert words in result.out
    printed = json.loads(longtail("eval", run, "--device", "cpu", "--threads", 1, "--json").out)
    assert printed["test"] == json.loads((run / "row.json").read_text())["test"]


@pytest.mark.parametrize("broken", ['{"format": 2, "data": null}', "[]", "{", None])
def test_a_broken_neighbour_does_not_fail_a_training(
    broken: str | None, longtail: Any, tmp_path: Path
) -> None:
    neighbour = tmp_path / "neighbour"
    neighbour.mkdir()
    if broken is None:
        (neighbour / "row.json").mkdir()
    else:
        (neighbour / "row.json").write_text(broken)
    printed = longtail("train", "cross_entropy", *SMALL, "--out", tmp_path / "run")
    assert printed.code == 0, printed.err
    assert "next: longtail predict" in printed.out
