"""Teachers: networks of finished runs or of timm that a student learns from."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from torch import nn

from longtail.data.open import open_data
from longtail.errors import LongtailError
from longtail.recipes.teachers import read_teacher
from longtail.runs import train

OUR_NETWORK = """
from torch import nn

class Small(nn.Module):
    dim = 8

    def __init__(self):
        super().__init__()
        self.convolution = nn.Conv2d(3, 8, 3)

    def forward(self, image):
        return self.convolution(image).mean((2, 3))

def small(size):
    return Small()
"""


def test_a_teacher_of_timm_is_never_in_train_mode(monkeypatch: pytest.MonkeyPatch) -> None:
    norm = nn.BatchNorm2d(3)
    body = nn.Sequential(norm, nn.Flatten(), nn.Linear(3 * 64, 10)).train()
    monkeypatch.setattr("longtail.recipes.teachers.timm_classifier", lambda name: (body, None, 8))
    teacher = read_teacher("timm:fake", open_data("digits-lt"))
    assert not teacher.training
    assert norm.num_batches_tracked == 0, "called once, and nothing has moved"
    seven = nn.Sequential(nn.Flatten(), nn.Linear(192, 7))
    monkeypatch.setattr("longtail.recipes.teachers.timm_classifier", lambda name: (seven, None, 8))
    with pytest.raises(
        ValueError,
        match=r"teacher of the 10 classes of digits-lt, got one of 7: timm:fake. Train one",
    ):
        read_teacher("timm:fake", open_data("digits-lt"))


def test_a_teacher_of_timm_is_checked_too(monkeypatch: pytest.MonkeyPatch) -> None:
    import timm

    create: Any = timm.create_model
    monkeypatch.setattr(
        "timm.create_model",
        lambda model, *, pretrained, **more: create(model, pretrained=not pretrained),
    )
    with pytest.raises(
        ValueError,
        match=r"data's 10 it lacks 0, 1, 2, 3, 4, \.\.\.; of its 1000 the data lacks n01440764, ",
    ):
        read_teacher("timm:resnet18", open_data("digits-lt"))


def test_the_custom_network_of_another_run_needs_trust(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "our_teacher_network.py").write_text(OUR_NETWORK)
    monkeypatch.syspath_prepend(str(tmp_path))
    quick: dict[str, Any] = {"epochs": 1, "batch": 64, "device": "cpu", "threads": 1}
    teacher = tmp_path / "teacher"
    train("ldam", "digits-lt", teacher, network="our_teacher_network:small", **quick)
    student = {**quick, "network": "vit_mini", "teacher": str(teacher)}
    with pytest.raises(LongtailError, match="our_teacher_network:small is code outside longtail"):
        train("deit_lt", "digits-lt", tmp_path / "student", **student)
    row = train("deit_lt", "digits-lt", tmp_path / "student", trust=True, **student).row
    assert row is not None
    assert "trust" not in row["keywords"]
