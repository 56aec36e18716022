"""Reproducing: what is run, what it is called, what is said about it, and the exit code."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from longtail.cli import reproduce as verb
from longtail.experiments.published import PUBLISHED, SMOKES

MACHINE = {"device": "cpu", "threads": 1}


def planned(
    name: str, *, smoke: bool = False, seeds: str | None = None, given: tuple[str, ...] = ()
) -> Any:
    return verb.plan(
        PUBLISHED[name],
        Path("out"),
        smoke=smoke,
        seeds=seeds,
        given=given,
        root=Path("images"),
        machine=MACHINE,
    )


def test_without_a_name_all_are_listed(longtail: Any) -> None:
    said = longtail("reproduce")
    assert said.code == 0
    assert all(name in said.out for name in PUBLISHED)
    assert "next: longtail reproduce" in said.out


def test_listing_needs_no_torch() -> None:
    code = """
import sys
from longtail.cli.main import app
app(["reproduce"], standalone_mode=False)
assert not {"torch", "numpy", "timm"} & set(sys.modules)
"""
    subprocess.run([sys.executable, "-c", code], check=True, capture_output=True)


def test_a_row_runs_with_its_own_settings_and_seeds() -> None:
    jobs, small = planned("cifar100-lt-200-balanced-softmax-batchformer")
    assert small is None
    assert [job.seed for job in jobs] == [0, 1, 2]
    assert jobs[0].folder == Path("out/seed=0")
    call = jobs[0].call()
    assert (call["data"], call["imbalance"], call["protocol"], call["root"]) == (
        "cifar100-lt",
        200.0,
        "paper",
        Path("images"),
    )
    assert (call["network"], call["epochs"], call["batch"], call["batchformer"], call["plain"]) == (
        "resnet32",
        685,
        512,
        "on",
        1.5,
    )
    assert (
        verb.described(PUBLISHED["cifar100-lt-200-balanced-softmax-batchformer"], jobs[0], None)[0]
        == "reproduction"
    )


def test_fewer_epochs_are_a_smoke_and_other_settings_no_reproduction() -> None:
    row = PUBLISHED["cifar100-lt-paco"]
    for given, kind in ((("epochs=10",), "smoke"), (("lr=0.1",), "with other settings")):
        (job, *_), small = planned(row.name, given=given)
        found, remarks = verb.described(row, job, small)
        assert found == kind
        assert remarks[0].startswith("This is no reproduction: ")
    (job,), small = planned(row.name, smoke=True)
    kind, remarks = verb.described(row, job, small)
    assert (kind, job.data, job.seed) == ("smoke", "digits-lt", 0)
    assert "says nothing about the published number" in remarks[0]
    assert len(remarks) == 1
    (job,), small = planned(row.name, smoke=True, given=("lr=0.123",))
    kind, remarks = verb.described(row, job, small)
    assert kind == "smoke"
    assert (
        remarks[1]
        == f"This is not the smoke that the band is of: lr is 0.123 instead of {planned(row.name, smoke=True)[0][0].keywords['lr']}."
    )


def test_what_only_the_user_has_is_asked_for() -> None:
    with pytest.raises(
        ValueError,
        match=r"cifar10-lt-livt needs pretrained: an encoder of ViT-B/16.*Pass --set pretrained=PATH",
    ):
        planned("cifar10-lt-livt")
    jobs, _ = planned("cifar10-lt-livt", given=("pretrained=mae.pth",), seeds="5")
    assert [(job.seed, job.keywords["pretrained"]) for job in jobs] == [(5, "mae.pth")]
    assert verb.described(PUBLISHED["cifar10-lt-livt"], jobs[0], None)[0] == "reproduction"


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("cifar10-lt-livd",), "did you mean cifar10-lt-livt"),
        (("digits-lt-balanced-softmax", "--smoke"), "leave it out"),
        (("cifar100-lt-paco", "--set", "rate=1"), "unknown keyword of paco 'rate'"),
        (("cifar100-lt-paco", "--seeds", "x"), "expected seeds such as 0,1,2"),
        (("cifar100-lt-paco", "--jobs", 0), "expected --jobs of at least 1"),
    ],
)
def test_mistakes_are_named(longtail: Any, words: tuple[Any, ...], message: str) -> None:
    said = longtail("reproduce", *words)
    assert said.code == 2
    assert message in said.err


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
    said = longtail(*words)
    assert said.code == 0, said.out + said.err
    found = json.loads((tmp_path / "reproduce.json").read_text())
    row = json.loads((tmp_path / "seed=0" / "row.json").read_text())
    assert (found["kind"], found["verdict"]) == ("smoke", "inside")
    assert found["measured"]["mean"] == row["test"]["top1"] == found["measured"]["seeds"]["0"]
    assert found["expected"]["low"] == SMOKES["balanced"].low
    assert "inside" in said.out
    assert "reproduction" not in said.out
    assert "next: longtail report" in said.out
    monkeypatch.setitem(SMOKES, "balanced", replace(SMOKES["balanced"], low=0.999, high=1.0))
    again = longtail(*words)
    assert again.code == 1
    assert "finished before" in again.out
    assert "below" in again.out


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
    said = longtail(*words, "--out", tmp_path / "out")
    assert said.code == 0, said.err
    assert not (tmp_path / "out").exists()
