"""The page about BatchFormer points at lines, sweeps and keywords that exist."""

from __future__ import annotations

import json
import re
import statistics
from pathlib import Path

from longtail.experiments.spec import named_sweeps
from longtail.recipes.signatures import read

ROOT = Path(__file__).parents[1]
PLAN = "cifar100_lt_batchformer"
PAGE = (ROOT / "docs" / "batchformer.md").read_text(encoding="utf-8")


def test_sweeps_and_flags_have_their_names() -> None:
    assert set(re.findall(r"^\| `(batchformer-[a-z-]+)` \|", PAGE, re.MULTILINE)) == {
        name for name in named_sweeps() if name.startswith("batchformer-")
    }
    known = {
        name for recipe in ("balanced_softmax", "ride", "paco") for name in read(recipe).parameters
    }
    flags = {flag.replace("-", "_") for flag in re.findall(r"--([a-z-]+)", PAGE)}
    assert flags - known == {"data", "root", "out", "name", "table"}


def test_our_numbers_are_on_the_page_of_results() -> None:
    for plan in re.findall(r"results\.md#([a-z0-9-]+)", PAGE):
        assert (ROOT / "benchmarks" / "plans" / f"{plan.replace('-', '_')}.json").exists()


def balanced_of(arm: str, seed: int, *, plan: str) -> float:
    row = json.loads((ROOT / "benchmarks/results" / plan / f"{arm}-seed{seed}.json").read_text())[
        "row"
    ]
    return float(row["test"]["balanced"])


def mean(arm: str, group: str = "", *, plan: str = PLAN) -> str:
    rows = [
        json.loads(path.read_text())["row"]["test"]
        for path in (ROOT / "benchmarks/results").glob(f"{plan}/{arm}-seed?.json")
    ]
    assert len(rows) == 3
    scores = [row["groups"][group] if group else row["balanced"] for row in rows]
    return f"{100 * statistics.fmean(scores):.1f}"


def interval(gains: list[float]) -> tuple[float, float]:
    """The 95% interval of the mean of three numbers, by Student's t with two degrees of freedom;
    here it holds zero.
    """
    wide = 4.303 * statistics.stdev(gains) / 3**0.5
    low, high = statistics.fmean(gains) - wide, statistics.fmean(gains) + wide
    assert low < 0 < high
    return low, high


def test_the_page_quotes_resnet32() -> None:
    plan, arms = "cifar100_lt_batchformer_resnet32", ("baseline", "batchformer")
    (paragraph,) = re.findall(
        r"^\*\*With the paper's ResNet-32.*?\n\n", PAGE, re.DOTALL | re.MULTILINE
    )
    gains = [
        balanced_of("batchformer", seed, plan=plan) - balanced_of("baseline", seed, plan=plan)
        for seed in range(3)
    ]
    assert re.findall(r"\d+\.\d", paragraph) == [
        *(mean(arm, group, plan=plan) for group in ("", "few") for arm in arms),
        *(f"{100 * gain:.1f}" for gain in (min(gains), max(gains))),
        *(f"{100 * abs(end):.1f}" for end in interval(gains)),
        *("1.0", "2.4"),  # published: 50.7 to 51.7, and 31.9 to 34.3
        *(mean("loss-x0.5", group, plan=plan) for group in ("", "few")),
    ]


def test_the_page_quotes_the_other_methods() -> None:
    (paragraph,) = re.findall(
        r"^\*\*RIDE and PaCo\*\*.*?three seeds", PAGE, re.DOTALL | re.MULTILINE
    )
    arms = ("balanced", "ride", "paco")
    assert re.findall(r"\d+\.\d", paragraph) == [
        mean(arm, group, plan="cifar100_lt_ride_paco") for arm in arms for group in ("", "few")
    ]


def test_the_page_quotes_paco_on_digits() -> None:
    plan = "digits_lt_smokes"
    (sentence,) = re.findall(r"^On long-tailed digits.*?holds 0\.", PAGE, re.DOTALL | re.MULTILINE)
    losses = [
        balanced_of("paco", seed, plan=plan) - balanced_of("paco-batchformer", seed, plan=plan)
        for seed in range(3)
    ]
    interval(losses)
    assert re.findall(r"\d+\.\d", sentence) == [
        mean("paco", plan=plan),
        mean("paco-batchformer", plan=plan),
        *(f"{100 * loss:.1f}" for loss in (min(losses), max(losses))),
    ]


def test_the_page_quotes_the_results() -> None:
    (paragraph,) = re.findall(r"^- \*\*All seeds agree.*?\n\n", PAGE, re.DOTALL | re.MULTILINE)
    assert re.findall(r"\d+\.\d", paragraph) == [
        *(mean(arm, group) for group in ("", "few", "many") for arm in ("baseline", "batchformer")),
        *(
            mean(arm, group)
            for arm in ("loss-x0.5", "batchformer-self", "batchformer-frozen")
            for group in ("", "few")
        ),
        *(mean("batchformer-unshared", group) for group in ("few", "many")),
    ]
