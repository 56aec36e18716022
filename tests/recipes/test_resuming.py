"""Recipes with more state than weights: killed within an epoch and resumed, equal to the bit."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from longtail.data.loader import TrainLoader
from longtail.runs import train

QUICK: dict[str, Any] = {
    "epochs": 2,
    "batch": 64,
    "threads": 1,
    "device": "cpu",
    "save_every": 0.0,
    "batchformer": "on",
}


class Killed(Exception):
    pass


@pytest.mark.parametrize(
    ("recipe", "keywords"),
    [
        ("balanced_softmax", {}),
        ("ride", {"defer": 0.5}),
        ("paco", {"queue": 128}),
        ("moco_v2", {"queue": 128, "probe_epochs": 1}),
        ("moco_v3", {"hidden": 32, "probe_epochs": 1}),
    ],
)
def test_killed_and_resumed_equals_the_uninterrupted_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, recipe: str, keywords: dict[str, Any]
) -> None:
    train(recipe, "digits-lt", tmp_path / "whole", **QUICK, **keywords)
    complete = TrainLoader.epoch

    def deadly(self: Any, index: int, *, start: int = 0) -> Iterator[Any]:
        for number, batch in enumerate(complete(self, index, start=start), start):
            if (index, number) == (1, 2):
                raise Killed
            yield batch

    monkeypatch.setattr(TrainLoader, "epoch", deadly)
    with pytest.raises(Killed):
        train(recipe, "digits-lt", tmp_path / "parts", **QUICK, **keywords)
    monkeypatch.setattr(TrainLoader, "epoch", complete)
    train(recipe, "digits-lt", tmp_path / "parts", **QUICK, **keywords)
    stages = ("pretrain", "probe") if recipe.startswith("moco") else ("train",)
    for stage in stages:
        for name in ("last.pt", "kept.pt"):
            one, other = (
                torch.load(tmp_path / folder / stage / name) for folder in ("whole", "parts")
            )
            weights = "method" if name == "last.pt" else "weights"
            assert one[weights].keys() == other[weights].keys()
            for key, tensor in one[weights].items():
                assert torch.equal(tensor, other[weights][key])
