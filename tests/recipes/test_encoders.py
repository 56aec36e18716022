"""What a run records about the weights that it begins with; loading them is in test_moco."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import torch

from longtail.data.open import open_data
from longtail.engine.run import Run
from longtail.nn import Network, build
from longtail.recipes.encoders import read_encoder, write_encoder

DATA = open_data("digits-lt")


def network() -> Network:
    return build({"name": "fast_cnn", "size": 8, "width": 4})


def test_an_encoder_says_what_it_was_trained_on(tmp_path: Path) -> None:
    first = Run(tmp_path / "first")
    first.history.append({"name": "pretrain", "minutes": 2.5})
    write_encoder(first, network(), data=DATA, images=321)
    second = Run(tmp_path / "second")
    weights = read_encoder(second, DATA, tmp_path / "first", stage="train")
    assert weights.data == f"digits-lt, 321 images, {DATA.hash[:12]}"
    assert second.pretraining is None, "the same data"
    assert second.minutes_before == {"encoder": 2.5}
    assert second.files.encoder.is_complete, "a copy, for when it is resumed"
    other = Run(tmp_path / "other")
    read_encoder(other, replace(DATA, hash="0" * 64), tmp_path / "first", stage="train")
    assert other.pretraining == weights.data


def test_a_file_of_unknown_origin_is_named(tmp_path: Path) -> None:
    torch.save(network().state_dict(), tmp_path / "weights.pth")
    run = Run(tmp_path / "run")
    read_encoder(run, DATA, tmp_path / "weights.pth", stage="train")
    assert run.pretraining == "the data of weights.pth"


def test_a_rehearsal_writes_nothing(tmp_path: Path) -> None:
    torch.save(network().state_dict(), tmp_path / "weights.pth")
    run = Run(tmp_path / "run", dry="rehearse")
    read_encoder(run, DATA, tmp_path / "weights.pth", stage="train")
    assert not run.files.encoder.path.exists()
