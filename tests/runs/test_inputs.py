"""Inputs of a run: the size that fast_cnn gets, and data that is refused before training."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from finished import QUICK
from PIL import Image

from longtail.data.dataset import Dataset
from longtail.data.open import open_data
from longtail.data.request import DataRequest
from longtail.runs import train, training


def test_adjusting_needs_training_images_of_every_class(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def without_nines(request: DataRequest, **other: Any) -> Dataset:
        data = open_data(request.source)
        return replace(data, counts=data.counts * (torch.arange(10) < 9))

    monkeypatch.setattr(training, "open_dataset", without_nines)
    with pytest.raises(ValueError, match="digits-lt has classes without: use --adjust none"):
        train("balanced_softmax", "digits-lt", tmp_path / "run", **QUICK, adjust="validation")
    assert not (tmp_path / "run").exists()


def test_adjusting_needs_validation_images(tmp_path: Path) -> None:
    with pytest.raises(
        ValueError,
        match=r"expected validation images to adjust on, got none of digits-lt \(protocol paper\)",
    ):
        train(
            "balanced_softmax",
            "digits-lt",
            tmp_path / "run",
            **QUICK,
            protocol="paper",
            adjust="validation",
        )
    assert not (tmp_path / "run").exists()


def test_fast_cnn_gets_images_of_64_pixels_unless_a_size_is_given(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    generator = np.random.default_rng(0)
    for name in ("ant", "bee"):
        (tmp_path / "data" / name).mkdir(parents=True)
        for index in range(6):
            pixels = generator.integers(0, 255, (20, 150, 3), dtype=np.uint8)
            Image.fromarray(pixels).save(tmp_path / "data" / name / f"{index}.png")
    quick: dict[str, Any] = {"epochs": 1, "batch": 8, "device": "cpu", "threads": 1}
    data = tmp_path / "data"
    result = train("cross_entropy", data, tmp_path / "run", **quick)
    assert result.row is not None
    assert result.row["keywords"]["size"] == 64
    assert "resized to 64 pixels" in capsys.readouterr().err
    assert not train("cross_entropy", data, tmp_path / "run", **quick).fresh
    capsys.readouterr()
    train("cross_entropy", data, tmp_path / "dry", dry_run=True, size=72, **quick)
    assert "resized to" not in capsys.readouterr().err
    student: dict[str, Any] = {**quick, "network": "vit_tiny", "size": 16, "dry_run": True}
    train("deit", data, tmp_path / "dry", teacher_epochs=1, **student)
    assert "of the teacher are resized to 64 pixels" in capsys.readouterr().err
    train("deit", data, tmp_path / "dry", teacher=str(tmp_path / "run"), **student)
    assert "resized to" not in capsys.readouterr().err
