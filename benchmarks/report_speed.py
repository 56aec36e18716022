"""How long a report takes to build, how large it is, and that it needs no torch.

    python benchmarks/report_speed.py [RUN...]

Without runs, it makes up three of 100 classes.

Each build is a process of its own, from the start of Python to the file on disk. Writes
`benchmarks/results/speed/report.json`.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import measured
import numpy as np

from longtail.records.documents import FORMAT
from longtail.records.predictions import SplitPredictions, write_predictions
from longtail.records.scores import add_scores

EPOCHS = 200
BUILD = """
import sys
from pathlib import Path
from longtail.report.page import write
write([Path(own) for own in sys.argv[2:]], Path(sys.argv[1]))
assert "torch" not in sys.modules
"""


def made_up(
    folder: Path,
    *,
    recipe: str,
    strength: float,
    classes: int = 100,
    tested: int = 100,
    size: int = 32,
) -> Path:
    """A run of noise with the shape of CIFAR-100-LT: rare classes are recognised less often;
    `strength` says how much of that is mended.
    """
    # Row and predictions are written as training would, without any: torch stays out of this
    # process, too.
    from types import SimpleNamespace

    from longtail.scoring.long_tail import detailed

    rng = np.random.default_rng(len(recipe))
    counts = np.round(500 * 0.01 ** (np.arange(classes) / (classes - 1))).astype(int)
    thirds = np.array_split(np.arange(classes), 3)
    members = {
        name: tuple(item.tolist())
        for name, item in zip(("many", "medium", "few"), thirds, strict=True)
    }
    groups: Any = SimpleNamespace(
        rule=f"ranks: {'/'.join(str(len(item)) for item in thirds)}", members=members
    )
    target = np.repeat(np.arange(classes), tested)
    logits = rng.normal(size=(len(target), classes)).astype(np.float32)
    logits[np.arange(len(target)), target] += (
        np.log(counts)[target] / 2 * (1 - strength) + 2.5 * strength + 0.5
    )
    test = detailed(logits, target, groups=groups, counts=counts)
    names = [f"class number {item}" for item in range(classes)]
    keywords = {"epochs": EPOCHS, "network": "resnet32"}
    record = {
        "format": FORMAT,
        "seed": 0,
        "view_seed": 0,
        "tta": "none",
        "command": f"longtail train {recipe} --data made-up-lt --out {folder}",
        "recipe": recipe,
        "keywords": keywords,
    }
    row: dict[str, Any] = {
        "format": FORMAT,
        "recipe": recipe,
        "keywords": keywords,
        "data": {
            "name": "made-up-lt",
            "hash": "0" * 64,
            "protocol": "holdout",
            "imbalance": 100.0,
            "classes": classes,
            "train_images": int(counts.sum()),
            "counts_before": counts.tolist(),
            "counts_after": counts.tolist(),
            "caveats": [],
        },
        "seed": 0,
        "view_seed": 0,
        "split_seed": 0,
        "selection": "last epoch",
        "tta": "none",
        "size": size,
        "pretraining": None,
        "parameters": 470_000,
        "epochs": {"train": EPOCHS},
        "minutes": 50.0,
        "test": test,
        "val": None,
        "best_validation": None,
        "versions": {"longtail": "0"},
        "hardware": {"device": "cpu"},
    }
    for inner in ("model", "train", "analysis"):
        (folder / inner).mkdir(parents=True)
    add_scores(row)
    data, known_groups = row["data"], {"rule": groups.rule, "members": members}
    (folder / "row.json").write_text(json.dumps(row))
    (folder / "recipe.json").write_text(
        json.dumps(record | {"data": data | {"source": "made-up-lt", "groups": known_groups}})
    )
    (folder / "model" / "spec.json").write_text(
        json.dumps({"format": FORMAT, "network": {}, "classes": names, "size": size})
    )
    lines = []
    for epoch in range(1, EPOCHS + 1):
        value = 1 - 0.98**epoch
        judged = {
            f"val/{name}": value * (item or 0)
            for name, item in {"balanced": test["balanced"], **test["groups"]}.items()
        }
        lines.append(
            {
                "kind": "epoch",
                "epoch": epoch,
                "step": 80 * epoch,
                "rate": 0.1 * (1 - epoch / EPOCHS),
                "terms/class": 4 * (1 - value),
                **judged,
            }
        )
    (folder / "train" / "journal.jsonl").write_text(
        "".join(json.dumps(item) + "\n" for item in lines)
    )
    ids = [f"test/{number:05d}.png" for number in range(len(target))]
    write_predictions(
        folder / "predictions" / "test.npz",
        SplitPredictions({"logits": logits}, target, np.arange(len(target))),
        ids,
    )
    worst = sorted(members["few"], key=lambda item: (test["recall"][item] or 0.0, item))[:5]
    shown = np.repeat(worst, 4)
    np.savez_compressed(
        folder / "analysis" / "examples.npz",
        image=rng.integers(256, size=(len(shown), size, size, 3), dtype=np.uint8),
        map=rng.integers(256, size=(len(shown), 8, 8), dtype=np.uint8),
        target=shown,
        answer=(shown + 1) % classes,
        confidence=np.full(len(shown), 0.9, dtype=np.float32),
        id=np.array([f"test/{item}.png" for item in shown]),
        split=np.array("test"),
        kind=np.array("Grad-CAM"),
    )
    return folder


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("runs", nargs="*", type=Path)
    parser.add_argument("--times", type=int, default=5)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        runs = options.runs or [
            made_up(Path(folder) / recipe, recipe=recipe, strength=strength, size=64)
            for recipe, strength in (
                ("cross_entropy", 0.0),
                ("balanced_softmax", 0.4),
                ("paco", 0.6),
            )
        ]
        page, seconds = Path(folder) / "report.html", []
        for _ in range(options.times):
            before = time.perf_counter()
            subprocess.run([sys.executable, "-c", BUILD, page, *runs], check=True)
            seconds.append(time.perf_counter() - before)
        figures = {
            "report": {
                "runs": len(runs),
                "seconds": round(statistics.median(seconds), 2),
                "megabytes": round(page.stat().st_size / 1e6, 2),
            },
            "torch_not_imported": True,  # BUILD asserts it
        }
    if options.runs:
        print(json.dumps(figures, indent=1))
        return
    question = "How long does the report of three runs of 100 classes take, and how large is it?"
    measured.write(
        "report",
        figures,
        plan="report",
        question=question,
        command="python benchmarks/report_speed.py",
    )


if __name__ == "__main__":
    main()
