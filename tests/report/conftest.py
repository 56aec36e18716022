"""Small run folders, as a finished run leaves them."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from longtail.records.documents import FORMAT
from longtail.records.groups import Groups
from longtail.records.predictions import SplitPredictions, write_predictions
from longtail.records.scores import add_scores
from longtail.scoring.long_tail import summarise

GROUPS = Groups("ranks: 1/1/1", {"many": (0,), "medium": (1,), "few": (2,)})
TARGET = np.repeat(np.arange(3), [30, 20, 10])

JOURNAL = [
    {
        "kind": kind,
        "epoch": epoch,
        "step": step,
        "rate": 0.1 / epoch,
        "terms/class": 2.0 / epoch,
        "terms/teacher": 0.5,
        **scores,
    }
    for kind, epoch, step, scores in (
        ("epoch", 1, 10, {"val/balanced": 0.3, "val/many": 0.6, "val/medium": 0.2, "val/few": 0.1}),
        ("steps", 2, 15, {}),
        ("epoch", 2, 20, {"val/balanced": 0.5, "val/many": 0.8, "val/medium": 0.4, "val/few": 0.3}),
        ("epoch", 3, 30, {"val/balanced": 0.6, "val/many": 0.8, "val/medium": 0.6, "val/few": 0.4}),
        ("epoch", 4, 40, {"val/balanced": 0.6, "val/many": 0.8, "val/medium": 0.6, "val/few": 0.4}),
    )
]


@pytest.fixture
def finished(tmp_path: Path) -> Callable[..., Path]:
    """A function that writes a finished run: keywords override the defaults; `right` is the
    probability of a correct prediction for each class.
    """

    def make(
        name: str,
        *,
        right: tuple[float, float, float] = (0.9, 0.5, 0.2),
        draw: int = 0,
        predictions: bool = True,
        classes: tuple[str, ...] = ("cat", "dog", "axolotl"),
        **other: Any,
    ) -> Path:
        folder = tmp_path / name
        rng = np.random.default_rng(draw)
        answer = np.where(
            rng.uniform(size=len(TARGET)) < np.array(right)[TARGET], TARGET, (TARGET + 1) % 3
        )
        logits = 3 * np.eye(3, dtype=np.float32)[answer]
        row: dict[str, Any] = {
            "format": FORMAT,
            "recipe": "cross_entropy",
            "keywords": {"epochs": 4},
            "data": {
                "name": "toy-lt",
                "hash": "0123456789abcdef",
                "protocol": "holdout",
                "imbalance": 10.0,
                "classes": 3,
                "train_images": 111,
                "counts_before": [100, 20, 10],
                "counts_after": [90, 18, 9],
                "caveats": [],
            },
            "seed": 0,
            "view_seed": 0,
            "split_seed": 0,
            "selection": "last epoch",
            "tta": "none",
            "size": 8,
            "pretraining": None,
            "parameters": 1234,
            "epochs": {"train": 4},
            "minutes": 0.5,
            "test": summarise(logits, TARGET, classes=3, groups=GROUPS),
            "val": None,
            "best_validation": None,
            "versions": {},
            "hardware": {},
        }
        data = other.pop("data", {})
        test = other.pop("test", {})
        row |= other
        row["data"] |= data
        row["test"] = None if test is None else row["test"] | test
        if "headline" not in row:
            add_scores(row)
        folder.mkdir(parents=True)
        command = f"longtail train {row['recipe']} --data toy-lt --out {folder}"
        record = {
            name: row[name] for name in ("format", "recipe", "keywords", "seed", "view_seed", "tta")
        }
        stored = {name: row["data"][name] for name in ("name", "protocol", "hash")}
        stored |= {"source": "toy-lt", "groups": GROUPS.to_json()}
        (folder / "recipe.json").write_text(
            json.dumps(record | {"command": command, "data": stored})
        )
        for inner in ("model", "train", "analysis"):
            (folder / inner).mkdir()
        (folder / "model" / "spec.json").write_text(
            json.dumps({"format": FORMAT, "network": {}, "classes": classes, "size": 8})
        )
        (folder / "train" / "journal.jsonl").write_text(
            "".join(json.dumps(line) + "\n" for line in JOURNAL)
        )
        (folder / "row.json").write_text(json.dumps(row))
        if predictions:
            split_predictions = SplitPredictions({"logits": logits}, TARGET, np.arange(len(TARGET)))
            write_predictions(
                folder / "predictions" / "test.npz",
                split_predictions,
                [f"{i:03d}.png" for i in range(len(TARGET))],
            )
        return folder

    return make


def write_examples(folder: Path, *, maps: bool = True) -> None:
    """What `longtail.runs.examples` writes, for the class 2."""
    rng = np.random.default_rng(0)
    arrays: dict[str, Any] = {
        "image": rng.integers(256, size=(2, 8, 8, 3), dtype=np.uint8),
        "target": np.array([2, 2]),
        "answer": np.array([0, 0]),
        "confidence": np.array([0.91, 0.75], dtype=np.float32),
        "id": np.array(["051.png", "052.png"]),
        "split": np.array("test"),
        "kind": np.array("Grad-CAM" if maps else "no maps: expected maps"),
    }
    if maps:
        arrays["map"] = rng.integers(256, size=(2, 4, 4), dtype=np.uint8)
    np.savez_compressed(folder / "analysis" / "examples.npz", **arrays)
