"""Every program in examples/ runs, and does what it says."""

from __future__ import annotations

from pathlib import Path

import adjust_logits
import batchformer_loop
import folder_to_onnx
import loss_in_timm
import numpy as np
import own_method
import pytest
from PIL import Image

import longtail

EXAMPLES = Path(__file__).parents[1] / "examples"


def test_batchformer_loop() -> None:
    assert batchformer_loop.train(epochs=5) > 0.6  # chance is 10%


def test_loss_in_timm() -> None:
    assert loss_in_timm.train(epochs=8) > 0.8  # chance is 25%


def test_adjust_logits(capsys: pytest.CaptureFixture[str]) -> None:
    before, after = adjust_logits.main()
    assert after > before + 0.05
    assert "tau" in capsys.readouterr().out


def test_own_method(tmp_path: Path) -> None:
    own_method.check()
    accuracy = own_method.train(tmp_path, epochs=8)
    assert accuracy > 0.4  # chance is 10%
    assert own_method.train(tmp_path, epochs=8) == accuracy, "it was finished, and is loaded"


def test_folder_to_onnx(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rng = np.random.default_rng(0)
    for name in ("cat", "dog"):
        (tmp_path / "photos" / name).mkdir(parents=True)
        for number in range(8):
            pixels = rng.integers(0, 255, (20, 9 + number, 3), dtype=np.uint8)
            Image.fromarray(pixels).save(tmp_path / "photos" / name / f"{number}.png")
    image, logits = folder_to_onnx.main(tmp_path / "photos", tmp_path / "run", epochs=1)
    ours = longtail.load(tmp_path / "run", device="cpu").logits(image)
    assert np.allclose(logits, ours.numpy(), atol=1e-4)
    assert f"{image}: " in capsys.readouterr().out


def test_every_example_is_tested() -> None:
    text = Path(__file__).read_text(encoding="utf-8")
    assert all(f"def test_{path.stem}(" in text for path in EXAMPLES.glob("*.py"))
