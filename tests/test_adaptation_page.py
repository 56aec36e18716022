"""The numbers on the page of domain adaptation are those of the committed results."""

from __future__ import annotations

import json
import statistics
from pathlib import Path

ROOT = Path(__file__).parents[1]
TRANSFERS = ("A-W", "D-W", "W-D", "A-D", "D-A", "W-A")
ARMS = ("erm", "source", "mdd", "mdd-batchformer", "mdd-frozen", "mdd-self", "mdd-half")


def accuracies(arm: str, seed: int = 0) -> list[float]:
    plan = "office31_mdd_controls" if arm in ARMS[-3:] else "office31_mdd"
    folder = ROOT / "benchmarks" / "results" / plan
    rows = [
        json.loads((folder / f"{arm}-{transfer}-seed{seed}.json").read_text())["row"]
        for transfer in TRANSFERS
    ]
    assert {row["data"]["protocol"] for row in rows} == {"adapt"}
    return [100 * row["test"]["scores"]["domains"] for row in rows]


def table() -> str:
    lines = []
    for arm in ARMS:
        values = accuracies(arm)
        cells = [*values, statistics.mean(values)]
        lines.append(f"| `{arm}` | " + " | ".join(f"{value:.1f}" for value in cells) + " |")
    return "\n".join(lines)


def second_seed() -> str:
    means = (f"{statistics.mean(accuracies(arm, 2)):.1f}" for arm in ("erm", "source", "mdd"))
    return "{}, {} and {}".format(*means)


def test_the_page_has_the_numbers_of_the_results() -> None:
    page = (ROOT / "docs" / "adaptation.md").read_text(encoding="utf-8")
    assert table() in page
    assert f"({second_seed()})" in page
    gain = statistics.mean(accuracies("mdd-batchformer")) - statistics.mean(accuracies("mdd"))
    assert f"{gain:.1f} points above MDD with one seed" in page
