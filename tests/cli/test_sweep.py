"""`longtail sweep` as a person types it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from longtail.cli import flags
from longtail.cli.sweep import given_flags

SMALL = ("--data", "digits-lt", "--threads", 1, "--device", "cpu")


def test_flags_that_were_typed_hold_even_where_they_are_the_default() -> None:
    defaults = {name: parameter.default for name, parameter in flags.SWEEP.items()}
    assert given_flags(defaults) == {}
    assert given_flags({**defaults, "imbalance": 10.0}) == {"imbalance": 10.0}
    assert given_flags(defaults, typed=["protocol", "seeds"]) == {"protocol": "holdout"}


@pytest.mark.parametrize("flag", [("--trials", 3), ("--metric", "val/top1")])
def test_flags_of_a_search_need_one(longtail: Any, flag: tuple[str, Any]) -> None:
    result = longtail("sweep", "cross_entropy", *SMALL, *flag)
    assert result.code == 2
    assert f"{flag[0]} has no effect without --search" in result.err


@pytest.mark.parametrize(
    "words",
    [("cross_entropy,balanced_softmax", *SMALL), ("--name", "livt-tau"), ("cross_entropy",)],
)
def test_a_search_has_one_recipe_and_its_data(longtail: Any, words: tuple[Any, ...]) -> None:
    result = longtail("sweep", *words, "--search", "tau=0..1")
    assert result.code == 2
    assert "--search needs one recipe" in result.err


def test_a_sweep_over_the_data_ends_with_its_table(longtail: Any, tmp_path: Path) -> None:
    out = tmp_path / "runs"
    words = ("--set", "imbalance=5,10", "--set", "epochs=1", "--out", out)
    result = longtail("sweep", "cross_entropy", *SMALL, *words)
    assert result.code == 0, result.err
    assert "imbalance 5" in result.out
    assert "imbalance 10" in result.out
    assert f"next: longtail compare {out} --by=imbalance --out {out}/comparison.csv" in result.out
    shown = longtail("compare", out, "--by", "imbalance", "--format", "csv")
    assert shown.code == 0, shown.err
    assert shown.out.startswith("method,imbalance 5,imbalance 5_deviation,imbalance 10,")
