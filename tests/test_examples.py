"""Every program in examples/ runs, and does what it says."""

from __future__ import annotations

from pathlib import Path

import adjust_logits
import batchformer_loop
import loss_in_timm
import own_method
import pytest

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


def test_every_example_is_tested() -> None:
    text = Path(__file__).read_text(encoding="utf-8")
    assert all(f"def test_{path.stem}(" in text for path in EXAMPLES.glob("*.py"))
