"""The page about LiVT points at lines that exist, and its numbers are those of the results."""

from __future__ import annotations

import json
import math
import statistics
from collections.abc import Callable, Iterable, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from longtail.recipes.signatures import read

ROOT = Path(__file__).parents[1]
PAGE = (ROOT / "docs" / "livt.md").read_text(encoding="utf-8")
TEXT = " ".join(PAGE.split())


def _speed(name: str) -> Any:
    return json.loads(
        (ROOT / "benchmarks" / "results" / "speed" / f"{name}.json").read_text(encoding="utf-8")
    )["figures"]


def test_speeds_are_those_of_the_results() -> None:
    small, large, tokens, classes = map(
        _speed, ("livt_step", "livt_step_paper", "livt_tokens", "livt_classes")
    )
    assert (
        f"{small['all_over_visible']:g} times as fast with a decoder 128 wide and 2 blocks,"
        f" {large['all_over_visible']:g} times" in TEXT
    )
    assert (
        f"lightly takes {small['lightly_over_visible']:.2f} and {large['lightly_over_visible']:.2f}"
        " times as long" in TEXT
    )
    assert (
        f"reach {small['visible_percent_of_peak']:.0f} and {large['visible_percent_of_peak']:.0f}%"
        " of what" in TEXT
    )
    assert (
        f"exponents of {tokens['power']:.2f}, and of {classes['power']:.2f} from 1,000 classes on"
        in TEXT
    )


def _results(arm: str) -> list[Any]:
    paths = sorted((ROOT / "benchmarks" / "results" / "livt_cifar10_lt").glob(f"{arm}-seed*.json"))
    return [json.loads(path.read_text(encoding="utf-8")) for path in paths]


def _core_minutes(result: Any) -> float:
    started = sum(
        value * result["begun_threads"][first]
        for first, value in result.get("begun_minutes", {}).items()
    )
    return float(result["row"]["minutes"] * result["row"]["hardware"]["threads"] + started)


def _mean(values: Iterable[float]) -> str:
    return f"{statistics.fmean(values):.1f}"


def _spread(values: Sequence[float]) -> str:
    return _mean(values) + (f" ± {statistics.stdev(values):.1f}" if len(values) > 1 else "")


ROWS = {
    "MGP, Bal-BCE": "bal-bce",
    "MGP, Bal-BCE, equation 10": "bal-bce-uniform",
    "MGP, Bal-CE": "bal-ce",
    "MGP, BCE": "bce",
    "MGP, CE": "ce",
    "from scratch, Bal-CE, the same epochs": "scratch-bal-ce-epochs",
    "from scratch, Bal-CE, the same minutes": "scratch-bal-ce-minutes",
}


@pytest.mark.parametrize("name", ROWS)
def test_accuracies_are_those_of_the_results(name: str) -> None:
    results = _results(ROWS[name])
    if not results:
        assert f"| {name} |" not in PAGE
        return
    tests = [result["row"]["test"] for result in results]
    numbers = [_spread([100 * test["balanced"] for test in tests])]
    numbers += [
        _mean(100 * test["groups"][group] for test in tests) for group in ("many", "medium", "few")
    ]
    numbers += [
        _mean(100 * test["ece"] for test in tests),
        f"{statistics.fmean(map(_core_minutes, results)):.0f}",
    ]
    assert f"| {name} | {len(results)} | {' | '.join(numbers)} |" in PAGE


def test_the_two_biases_are_compared_as_measured() -> None:
    ours, printed = (
        {result["row"]["seed"]: result for result in _results(arm)}
        for arm in ("bal-bce", "bal-bce-uniform")
    )
    seeds = sorted(ours.keys() & printed.keys())

    def curve(result: Any, name: str) -> list[float]:
        return [line[name] for line in result["curve"]["finetune"]]

    def unrest(result: Any) -> float:
        late = [100 * value for value in curve(result, "val/balanced")[9:]]
        return math.sqrt(statistics.fmean((b - a) ** 2 for a, b in pairwise(late)))

    def both(number: Callable[[Any], float]) -> tuple[float, float]:
        theirs, mine = (
            statistics.fmean(number(arm[seed]) for seed in seeds) for arm in (printed, ours)
        )
        return theirs, mine

    assert f"with {('one seed', 'two seeds', 'three seeds')[len(seeds) - 1]}: the mean loss" in TEXT
    loss, first, last, moves = (
        both(lambda result: curve(result, "terms/class")[0]),
        both(lambda result: 100 * curve(result, "val/balanced")[0]),
        both(lambda result: 100 * result["row"]["test"]["balanced"]),
        both(unrest),
    )
    assert f"is {loss[1]:.2f} with theorem 2 and {loss[0]:.2f} with equation 10" in TEXT
    assert f"images {first[1]:.0f} and {first[0]:.0f}%" in TEXT
    assert f"{last[0]:.1f} against {last[1]:.1f}% on the test images" in TEXT
    assert f"by {moves[0]:.1f} points (root mean square) against {moves[1]:.1f}" in TEXT
    calmer = sum(unrest(printed[seed]) < unrest(ours[seed]) for seed in seeds)
    assert (calmer, len(seeds)) == (2, 3), "the page says so"
    assert "moves less from epoch to epoch in two of three seeds, and more in the third" in TEXT


def test_the_differences_are_those_of_the_results() -> None:
    def balanced(arm: str, split: str = "test", plan: str = "livt_cifar10_lt") -> float:
        rows = [
            json.loads(path.read_text())["row"]
            for path in (ROOT / "benchmarks" / "results" / plan).glob(f"{arm}-seed*.json")
        ]
        return 100 * statistics.fmean(row[split]["balanced"] for row in rows)

    tuned = balanced("scratch-weak", "val", "livt_tuning") - balanced(
        "scratch-randaugment", "val", "livt_tuning"
    )
    assert f"{tuned:.0f} points ahead of RandAugment" in TEXT
    assert f"Bal-BCE is {balanced('bal-bce') - balanced('bce'):.0f} points above BCE" in TEXT
    assert (
        f"{balanced('bal-ce') - balanced('scratch-bal-ce-epochs'):.0f} points above as many epochs"
        " of labels from scratch" in TEXT
    )
    assert (
        f"and {balanced('bal-ce') - balanced('scratch-bal-ce-minutes'):.0f} points above as many"
        " minutes" in TEXT
    )
    assert f"Bal-BCE is {balanced('bal-ce') - balanced('bal-bce'):.0f} points below Bal-CE" in TEXT
    assert f"linear classifier on the frozen encoder has {balanced('mgp'):.0f}%" in TEXT


def test_the_order_of_the_arms_is_that_of_every_seed() -> None:
    rows = {
        arm: {result["row"]["seed"]: result["row"]["test"] for result in _results(arm)}
        for arm in ROWS.values()
    }
    assert all(len(seeds) == 3 for seeds in rows.values())
    order = ["bal-ce", "scratch-bal-ce-minutes", "bal-bce", "bal-bce-uniform", "ce", "bce"]
    assert all(
        rows[a][seed]["balanced"] > rows[b][seed]["balanced"]
        for a, b in pairwise(order)
        for seed in range(3)
    )
    near = [
        rows["bal-bce-uniform"][seed]["balanced"] > rows["scratch-bal-ce-epochs"][seed]["balanced"]
        for seed in range(3)
    ]
    assert {*near} == {True, False}, "the page says so"
    assert all(
        rows["bal-bce"][seed]["balanced"]
        > rows["scratch-bal-ce-epochs"][seed]["balanced"]
        > rows["ce"][seed]["balanced"]
        for seed in range(3)
    )
    assert (
        "agree on the order of the arms, but for equation 10 and the same epochs from scratch"
        in TEXT
    )


def test_what_tau_does_is_what_the_results_say() -> None:
    few = {
        arm: [100 * result["row"]["test"]["groups"]["few"] for result in _results(arm)]
        for arm in ("bce", "bal-bce-uniform", "ce", "bal-ce")
    }
    for without, adjusted in (("bce", "bal-bce-uniform"), ("ce", "bal-ce")):
        assert max(few[without]) < min(few[adjusted])
    assert f"from {_mean(few['bce'])} to {_mean(few['bal-bce-uniform'])}% for equation 10" in TEXT
    assert f"and from {_mean(few['ce'])} to {_mean(few['bal-ce'])}% for cross entropy" in TEXT


def test_costs_in_docstrings_are_those_of_the_results() -> None:
    def minutes(arm: str) -> list[float]:
        return [
            result["row"]["minutes"]
            for result in _results(arm)
            if result["row"]["hardware"]["threads"] == 1
        ]

    def doc(recipe: str) -> str:
        return " ".join(read(recipe).doc.split())

    labels, scratch, (painting,) = (
        minutes("bal-bce"),
        minutes("scratch-bal-ce-epochs"),
        minutes("mgp"),
    )
    (encoder,) = [
        started
        for result in _results("bal-bce")
        for first, started in result["begun_minutes"].items()
        if result["begun_threads"][first] == 1
    ]
    assert f"Cost: {min(labels):.0f} to {max(labels):.0f} minutes on one thread" in doc("livt")
    assert f"with `vit_mini`, {encoder:.0f} for 20 of pretraining" in doc("livt")
    assert f"Cost: {min(scratch):.0f} to {max(scratch):.0f} minutes on one thread" in doc(
        "vit_scratch"
    )
    assert f"Cost: {painting:.0f} minutes on one thread" in doc("masked_autoencoder")
    assert f"{painting - encoder:.0f} are the classifier's" in doc("masked_autoencoder")
