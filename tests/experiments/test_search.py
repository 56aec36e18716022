"""Search: what it refuses, and that it ends in one comparison."""

from __future__ import annotations

import json
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from longtail.experiments import search as searching
from longtail.experiments.search import search
from longtail.experiments.trials import Search
from longtail.records.scores import label

SPACE = {"tau": "0.5..1.5"}


def run(out: Path, space: dict[str, str] = SPACE, **options: Any) -> Any:
    return search("balanced_softmax", "digits-lt", space, out=out, **options)


def plan(space: dict[str, str] = SPACE, **options: Any) -> Search:
    """The search that would run its trials now."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(searching, "run_trials", lambda requested: None)
        patch.setattr(searching, "_compare", lambda requested, best: requested)
        requested: Any = search("balanced_softmax", "digits-lt", space, **options)
    assert isinstance(requested, Search)
    return requested


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"space": {"rate": "0..1"}}, "unknown keyword of balanced_softmax 'rate'"),
        (
            {"space": {"lr": "0.3..0.1"}},
            "expected lr=LOW..HIGH with LOW below HIGH, got '0.3..0.1'",
        ),
        ({"space": {"lr": "0.1..nan"}}, "LOW below HIGH"),
        ({"space": {"lr": "log:0..0.1"}}, "use LOW..HIGH without log"),
        (
            {"space": {"lr": "log:0.1"}},
            "expected lr=LOW..HIGH with two float numbers, got 'log:0.1'",
        ),
        (
            {"space": {"epochs": "1.5..3"}},
            "expected epochs=LOW..HIGH with two int numbers, got '1.5..3'",
        ),
        (
            {"space": {"network": "log:a..b"}},
            "network is str and has no range, got",
        ),
        ({"space": {"augment": "weak,cutoff"}}, "did you mean cutout"),
        ({"space": {"tau": "1"}}, "one value, pass --set tau=1"),
        ({"space": {"tau": "1,1"}}, "at least two different values"),
        (
            {"space": {"tau": "0..1"}, "settings": {"tau": "1"}},
            "tau is in both --set and --search",
        ),
        ({"space": {"tau": "0..1"}, "settings": {"lr": "0.1,0.2"}}, "write --search lr=0.1,0.2"),
        (
            {"space": {"tau": "0..1"}, "settings": {"speed": "1"}},
            "unknown keyword of balanced_softmax 'speed'",
        ),
        ({"space": {"tau": "0..1"}, "protocol": "paper"}, "a search needs validation images"),
        (
            {"space": {"tau": "0..1"}, "metric": "test/balanced"},
            "a search must not use test images",
        ),
        (
            {"space": {"tau": "0..1"}, "metric": "accuracy"},
            "--metric must be one of val/top1, val/bal",
        ),
        ({"space": {"tau": "0..1"}, "scoring": "accuracy"}, "unknown score of digits-lt"),
        ({"space": {"tau": "0..1"}, "trials": 0}, "must be 1 to 10,000, got 0"),
        ({"space": {"tau": "0..1"}, "trials": 10**9}, "must be 1 to 10,000, got 1,000,000,000"),
        ({"space": {"tau": "0..1"}, "jobs": 0}, "--jobs must be at least 1"),
    ],
)
def test_mistakes_are_named_before_anything_runs(
    values: dict[str, Any], message: str, tmp_path: Path
) -> None:
    with pytest.raises(ValueError, match=message):
        plan(out=tmp_path, **values)
    assert not list(tmp_path.iterdir())


def test_the_headline_of_the_data_chooses_and_less_may_be_better() -> None:
    assert plan().metric == "val/balanced"
    assert plan(scoring="few").metric == "val/few"
    requested = replace(plan(), label=label("NLL", format="plain", higher_is_better=False))
    row: Any = {"val": {"scores": {"balanced": 0.25}}}
    assert requested.score(row) == -0.25
    assert requested.text(-0.25) == "0.250"


def test_without_optuna_it_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, longtail: Any
) -> None:
    monkeypatch.setitem(sys.modules, "optuna", None)
    result = longtail(
        "sweep",
        "cross_entropy",
        "--data",
        "digits-lt",
        "--search",
        "lr=0.1,0.2",
        "--out",
        tmp_path / "run",
    )
    assert result.code == 2
    assert "pip install 'longtail[sweep]'" in result.err


def test_a_real_search_ends_in_one_comparison(longtail: Any, tmp_path: Path) -> None:
    out = tmp_path / "search"
    words = (
        "sweep",
        "balanced_softmax",
        "--data",
        "digits-lt",
        "--set",
        "epochs=1",
        "--search",
        "tau=0.5..1.5",
        "--trials",
        2,
    )
    result = longtail(*words, "--seeds", "0,1", "--threads", 1, "--device", "cpu", "--out", out)
    assert result.code == 0, result.err
    before, _, after = result.out.partition("test images were not used")
    assert "trial 2 of 2: tau=" in before
    tests = [
        json.loads((out / "trials" / name / "row.json").read_text())["test"]["balanced"]
        for name in ("001", "002")
    ]
    assert not any(f"{100 * value:.1f}" in before for value in tests), (
        "no test result is shown for a trial"
    )
    values = {
        name: json.loads((out / "trials" / name / "row.json").read_text())["val"]["balanced"]
        for name in ("001", "002")
    }
    best = max(values, key=lambda name: (values[name], -int(name)))
    assert sorted(path.name for path in (out / "final").iterdir()) == [
        "defaults-seed=0",
        "defaults-seed=1",
        f"trial-{best}-seed=1",
    ]
    assert "balanced over balanced_softmax tau=1.0" in " ".join(after.split())
    assert "On validation (seed 0) the initial settings" in after
    assert f"next: longtail compare {out}/final {out}/trials/{best}" in after
    assert longtail("compare", out / "final", out / "trials" / best).code == 0
