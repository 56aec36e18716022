"""LDAM, late re-weighting and SAM: what the keywords make of a stage."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from captured import stages

from longtail.core import Clock
from longtail.data.open import open_data
from longtail.engine.sam import SAM
from longtail.losses import class_balanced_weights
from longtail.runs import train


def at(progress: float) -> Clock:
    return Clock(step=int(100 * progress), steps=100, epoch=0, epochs=1)


def test_margins_weights_and_sam(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    built = stages(monkeypatch, tmp_path, "ldam", margin=0.3, defer=0.5, rho=0.2, epochs=2)
    method: Any = built["train"].method
    counts = open_data("digits-lt").counts
    rarest = int(counts.argmin())
    assert method.loss.margin[rarest] == pytest.approx(0.3 * 30)
    assert method.loss.margin.argmin() == counts.argmax()
    assert method.weights(at(0.49)) is None
    assert torch.allclose(method.weights(at(0.5)), class_balanced_weights(counts))
    assert isinstance(built["train's optimizer"], SAM)


def test_a_radius_rises_while_a_run_trains(tmp_path: Path) -> None:
    quick: dict[str, Any] = {"epochs": 2, "batch": 91, "threads": 1, "device": "cpu", "rho": 0.5}
    train("ldam", "digits-lt", tmp_path / "run", rho_schedule="rising", **quick)
    (group, *_) = torch.load(tmp_path / "run" / "train" / "last.pt")["optimizer"]["param_groups"]
    assert group["progress"] == 7 / 8, "of the last of eight steps"


def test_a_radius_of_zero_is_plain_sgd(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    built = stages(monkeypatch, tmp_path, "ldam", rho=0.0, epochs=2)
    assert isinstance(built["train's optimizer"], torch.optim.SGD)
