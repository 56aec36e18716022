"""`longtail demo`: a plain and a balanced classifier on long-tailed digits, side by side."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from longtail.cli import results, tables

RUNS = {"plain": "cross_entropy", "balanced": "balanced_softmax"}
# 364 images: the default of 128 would leave two steps per epoch
KEYWORDS: Mapping[str, Any] = {"batch": 32}


def perform(out: Path, *, threads: int = 1) -> None:
    """Train both into `out` and print the table."""
    from longtail.runs import train

    tables.say(
        "digits-lt: handwritten digits, with many images of some classes and few of others. Two"
        " classifiers are trained on the same images."
    )
    rows = {}
    for name, recipe in RUNS.items():
        tables.say(f"\n{name}: {recipe}")
        rows[name] = train(recipe, "digits-lt", out / name, threads=threads, **KEYWORDS).row
    trained = {name: row for name, row in rows.items() if row is not None}
    results.scores(
        {name: row["test"] for name, row in trained.items()},
        trained["plain"]["labels"],
        headline=trained["plain"]["headline"]["name"],
        title="accuracy on test images, in percent",
    )
    tables.say(f"runs: {', '.join(str(out / name) for name in RUNS)}")
