"""The transformers that LiVT is compared with, from end to end, on digits."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from captured import stages

from longtail.data.augmentations import ThreeAugment
from longtail.recipes.parts import training_view
from longtail.runs import load, train

QUICK: dict[str, Any] = {"epochs": 1, "batch": 64, "patch": 4, "threads": 1, "device": "cpu"}


@pytest.mark.parametrize("recipe", ["vit_scratch", "deit3"])
def test_the_baselines_train(recipe: str, tmp_path: Path) -> None:
    result = train(recipe, "digits-lt", tmp_path / "run", **QUICK)
    assert result.row is not None
    assert result.row["epochs"] == {"train": 1}


def test_the_head_under_lamb_does_not_begin_near_zero(tmp_path: Path) -> None:
    train("deit3", "digits-lt", tmp_path / "run", **QUICK)
    head: Any = load(tmp_path / "run", device="cpu").network.head
    assert float(head.weight.std()) > 0.01, "LAMB's steps are in proportion to the weights: near zero it would stay there"


def test_deit3_counts_every_class_of_a_mixture_as_a_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found = stages(monkeypatch, tmp_path / "run", "deit3", **QUICK)
    loss = found["train"].method.loss
    mixed, logits = torch.tensor([[0.7, 0.3, 0.0]]), torch.tensor([[1.0, -2.0, 0.5]])
    slow = -(torch.tensor([1.0, -2.0, -0.5]).sigmoid().log()).sum()
    assert loss(logits, mixed).item() == pytest.approx(slow.item(), rel=1e-6)


@pytest.mark.parametrize(("size", "pad"), [(16, 2), (32, 4), (224, 4)])
def test_deit3_shifts_by_four_pixels_at_any_usual_size(size: int, pad: int) -> None:
    assert training_view("threeaugment", size, flip=True) == ThreeAugment(size, pad)
