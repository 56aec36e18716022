"""The numbers on the pages of tasks are those of the committed results, one row for each arm."""

from __future__ import annotations

import json
import statistics
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
RESULTS = ROOT / "benchmarks" / "results"
DOMAINS = ("art", "cartoon", "photo", "sketch")


def score(plan: str, run: str, name: str) -> float:
    row = json.loads((RESULTS / plan / f"{run}.json").read_text())["row"]
    return 100 * float(row["test"]["scores"][name])


def line(arm: str, values: list[float]) -> str:
    return f"| `{arm}` | " + " | ".join(f"{value:.1f}" for value in values) + " |"


def domains() -> list[str]:
    names = ("erm", "coral", "irm", "vrex", "swad")
    arms = [name + end for name in names for end in ("", "-batchformer")]
    plans = dict.fromkeys(arms, "pacs_features_domains")
    plans |= dict.fromkeys(("erm-frozen", "erm-self"), "pacs_features_domains_controls")
    lines = []
    for arm, plan in plans.items():
        means = [
            statistics.mean(
                score(plan, f"{arm}-{domain}-seed{seed}", "domains") for seed in range(3)
            )
            for domain in DOMAINS
        ]
        lines.append(line(arm, [*means, statistics.mean(means)]))
    return lines


def zero_shot() -> list[str]:
    names = ("unseen", "seen", "h", "ausuc")
    runs = {
        "eszsl": "cub_gzsl_baselines",
        "softmax-seen": "cub_gzsl_baselines",
        "ce-gzsl": "cub_gzsl",
        "ce-gzsl-batchformer": "cub_gzsl",
        "ce-gzsl-frozen": "cub_gzsl_baselines",
        "ce-gzsl-self": "cub_gzsl_baselines",
    }
    return [
        line(
            arm,
            [
                statistics.mean(
                    score(plan, f"{arm}-seed{seed}", name)
                    for seed in range(3 if plan == "cub_gzsl" else 1)
                )
                for name in names
            ],
        )
        for arm, plan in runs.items()
    ]


def pairs() -> list[str]:
    names = ("auc", "hm", "best_seen", "best_unseen", "attribute", "object")
    arms = [name + end for name in ("product", "compcos", "cge") for end in ("", "-batchformer")]
    plans = {arm: ("fashion_pairs", arm) for arm in arms}
    for control in ("frozen", "self"):
        plans[f"cge-{control}"] = ("fashion_pairs_controls", f"batchformer-{control}")
    return [
        line(
            arm,
            [
                statistics.mean(score(plan, f"{run}-seed{seed}", name) for seed in range(3))
                for name in names
            ],
        )
        for arm, (plan, run) in plans.items()
    ]


@pytest.mark.parametrize(
    ("page", "lines"),
    [("domains", domains()), ("zero-shot", zero_shot()), ("compositional", pairs())],
    ids=["domains", "zero-shot", "compositional"],
)
def test_the_page_has_the_numbers_of_the_results(page: str, lines: list[str]) -> None:
    text = (ROOT / "docs" / f"{page}.md").read_text(encoding="utf-8")
    assert "\n".join(lines) in text
