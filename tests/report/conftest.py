"""Small run folders, as a finished run leaves them."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from longtail.core import Groups
from longtail.metrics.files import Predictions, write_predictions
from longtail.metrics.row import FORMAT
from longtail.metrics.summary import summarise

GROUPS = Groups("ranks: 1/1/1", {"many": (0,), "medium": (1,), "few": (2,)})
TARGET = np.repeat(np.arange(3), [30, 20, 10])


@pytest.fixture
def finished(tmp_path: Path) -> Callable[..., Path]:
    """A way to make a run: what differs from the usual is given by name; `right` is the chance to be right, by class."""

    def make(
        name: str, *, right: tuple[float, float, float] = (0.9, 0.5, 0.2), draw: int = 0, predictions: bool = True, **other: Any
    ) -> Path:
        folder = tmp_path / name
        rng = np.random.default_rng(draw)
        answer = np.where(rng.uniform(size=len(TARGET)) < np.array(right)[TARGET], TARGET, (TARGET + 1) % 3)
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
                "marks": [],
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
        folder.mkdir(parents=True)
        (folder / "recipe.json").write_text("{}")
        (folder / "row.json").write_text(json.dumps(row))
        if predictions:
            answers = Predictions({"logits": logits}, TARGET, np.arange(len(TARGET)))
            write_predictions(folder / "predictions" / "test.npz", answers, [f"{i:03d}.png" for i in range(len(TARGET))])
        return folder

    return make
