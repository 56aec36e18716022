"""Every program in examples/ runs, and does what it says."""

from __future__ import annotations

from pathlib import Path

import adjust_logits
import batchformer_loop
import detection
import folder_to_onnx
import loss_in_timm
import numpy as np
import own_method
import pytest
import torch
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


def test_detection(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    voc = detection.make_shapes(tmp_path / "voc", images=8, size=48)
    starts = detection.pretrained(tmp_path, epochs=1)
    scores = detection.compare(voc, starts, size=48, epochs=1, batch=2)
    assert list(scores) == ["random", "MoCo", "MoCo + BatchFormer"]
    assert all(0 <= value <= 1 for row in scores.values() for value in row.values())
    assert "VOC 11-point" in capsys.readouterr().out
    # Found as they are, all scores are perfect; with the wrong classes, all are zero.
    rows = detection.pictures(voc, "test", detection.SHAPES)
    perfect = [
        {"boxes": row.boxes, "labels": row.labels, "scores": torch.ones(len(row.labels))}
        for row in rows
    ]
    coco = detection.coco_scores(rows, perfect, detection.SHAPES)
    assert coco == pytest.approx({"AP": 1.0, "AP50": 1.0, "AP75": 1.0})
    assert detection.voc_score(rows, perfect, 3) == pytest.approx(1.0)
    wrong = [{**row, "labels": row["labels"] % 3 + 1} for row in perfect]
    assert detection.coco_scores(rows, wrong, detection.SHAPES)["AP50"] < 0.5
    assert detection.voc_score(rows, wrong, 3) < 0.5


def test_the_11_points_of_voc() -> None:
    """One class, two objects; a hit, then a miss, then a hit: precision 1, 1/2, 2/3."""
    box = torch.tensor([[0.0, 0.0, 9.0, 9.0], [20.0, 20.0, 29.0, 29.0]])
    label = torch.ones(2, dtype=torch.long)
    row = detection.Picture(Path("none"), box, label, torch.zeros(2, dtype=torch.bool))
    detections = {
        "boxes": torch.stack([box[0], box[0] + 40, box[1] + 1]),
        "labels": torch.ones(3, dtype=torch.long),
        "scores": torch.tensor([0.9, 0.8, 0.7]),
    }
    # Recall 0 to 0.5 has precision 1 (6 points), the rest 2/3 (5 points).
    assert detection.voc_score([row], [detections], 1) == pytest.approx((6 + 5 * 2 / 3) / 11)
    assert detection.overlap(box[0], box[0] + torch.tensor([5.0, 0.0, 5.0, 0.0])) == 50 / 150


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
