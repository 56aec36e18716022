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


def domains_of_images() -> list[str]:
    lines = []
    for arm in ("erm", "mixstyle", "swad"):
        scores = [
            score("pacs_images_domains", f"{arm}-{domain}-seed0", "domains") for domain in DOMAINS
        ]
        lines.append(line(arm, [*scores, statistics.mean(scores)]))
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


def balanced(plan: str, run: str, head: str | None = None) -> float:
    test = json.loads((RESULTS / plan / f"{run}.json").read_text())["row"]["test"]
    return 100 * float((test if head is None else test["heads"][head])["balanced"])


def encoders() -> list[str]:
    plan, lines = "moco_cifar10_lt", []
    for end in ("", "-batchformer"):
        scores = [
            (
                balanced(plan, f"moco{end}-seed{seed}"),
                balanced(plan, f"moco{end}-seed{seed}", "knn"),
                balanced(plan, f"finetuned{end}-seed{seed}"),
            )
            for seed in range(3)
        ]
        lines.append(
            line(f"moco{end}", [statistics.mean(part) for part in zip(*scores, strict=True)])
        )
    return lines


def encoder_controls() -> list[str]:
    plans = dict.fromkeys(("moco", "moco-batchformer"), "moco_cifar10_lt")
    names = ("frozen", "self", "plain-weight", "pairings", "v3", "v3-batchformer")
    plans |= dict.fromkeys((*names, "untrained", "pixels"), "moco_controls_cifar10_lt")
    return [
        line(arm, [balanced(plan, f"{arm}-seed0"), balanced(plan, f"{arm}-seed0", "knn")])
        for arm, plan in plans.items()
    ]


@pytest.mark.parametrize(
    ("page", "lines"),
    [
        ("domains", domains()),
        ("domains", domains_of_images()),
        ("zero-shot", zero_shot()),
        ("compositional", pairs()),
        ("self-supervised", encoders()),
        ("self-supervised", encoder_controls()),
    ],
    ids=[
        "domains",
        "images-of-domains",
        "zero-shot",
        "compositional",
        "encoders",
        "encoder-controls",
    ],
)
def test_the_page_has_the_numbers_of_the_results(page: str, lines: list[str]) -> None:
    text = (ROOT / "docs" / f"{page}.md").read_text(encoding="utf-8")
    assert "\n".join(lines) in text
