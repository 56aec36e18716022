"""Finished runs without training: what `longtail.load` reads, and no more."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch

from longtail.data.request import DataRequest
from longtail.nn import Adjusted, Linear, Network, build
from longtail.nn.files import write
from longtail.nn.networks import Classifier
from longtail.records.documents import FORMAT
from longtail.records.row import row_of
from longtail.records.scores import add_scores

QUICK: dict[str, Any] = {"epochs": 1, "batch": 64, "threads": 1, "device": "cpu"}
"""Keywords of a training of a second."""

CLASSES = tuple("0123456789")


def classifier(**spec: Any) -> Network:
    """A small network with random weights that predicts more than one class."""
    torch.manual_seed(0)
    network = build({"name": "fast_cnn", "size": 8, "width": 8, **spec})
    return Classifier(network, Linear(network.dim, len(CLASSES), scale=20.0)).eval()


def finished(
    folder: Path, network: Network | None = None, *, classes: Sequence[str] = CLASSES, size: int = 8
) -> Path:
    """Write a run of digits-lt with this network."""
    write(
        folder / "model", classifier() if network is None else network, classes=classes, size=size
    )
    row: dict[str, Any] = {
        "format": FORMAT,
        "recipe": "balanced_softmax",
        "keywords": {},
        "data": {
            "name": "digits-lt",
            "hash": "none",
            "protocol": "holdout",
            "classes": len(classes),
            "train_images": len(classes),
            "counts_before": [1] * len(classes),
            "counts_after": [1] * len(classes),
            "caveats": [],
        },
        "seed": 0,
    }
    row |= dict.fromkeys(("view_seed", "split_seed", "parameters", "minutes"), 0) | {
        "tta": "none",
        "size": size,
        "selection": "last epoch",
    }
    row |= {"epochs": {}, "versions": {}, "hardware": {}} | dict.fromkeys(
        ("pretraining", "test", "val", "best_validation")
    )
    add_scores(row)
    (folder / "row.json").write_text(json.dumps(row))
    (folder / "recipe.json").write_text(
        json.dumps(
            {
                "format": FORMAT,
                "command": f"longtail train balanced_softmax --data digits-lt --out {folder}",
                "recipe": "balanced_softmax",
                "seed": 0,
                "view_seed": 0,
                "tta": "none",
                "keywords": {"size": size},
                "data": {**DataRequest("digits-lt").flags(), "source": "digits-lt"}
                | {"name": "digits-lt", "hash": "none"},
            }
        )
    )
    return folder


def complete_row(**other: Any) -> dict[str, Any]:
    """A row with every key of the current format, and these values in some of them."""
    path = Path(__file__).parent / "format1" / "finished" / "row.json"
    row = row_of(json.loads(path.read_text()), source=path)
    del row["adjustment"]
    return {**row, **other}


def calibrated(folder: Path, thresholds: Sequence[float]) -> Path:
    """Give a run the thresholds of prediction sets."""
    content = {
        "format": FORMAT,
        "level": 0.9,
        "score": "1 - softmax probability",
        "thresholds": list(thresholds),
    }
    (folder / "model" / "conformal.json").write_text(json.dumps(content))
    return folder


def changed(path: Path, **values: Any) -> None:
    """Change values of a JSON file."""
    path.write_text(json.dumps(json.loads(path.read_text()) | values))


def adjusted(spec: dict[str, Any], head: Any) -> Network:
    """With shift and temperature, so that nothing between the head and the answer is forgotten."""
    torch.manual_seed(0)
    network = build(spec)
    return Adjusted(
        network, head(network.dim, 10, scale=3.0), bias=torch.randn(10), temperature=1.7
    ).eval()
