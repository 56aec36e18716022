"""Masked autoencoding from end to end, on digits."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

from longtail.data.open import open_data
from longtail.nn.encoders import read_weights
from longtail.nn.mae import transformer
from longtail.recipes.masked_autoencoder import _balanced
from longtail.runs import load, train
from longtail.runs.restore import restore_method


@pytest.fixture(scope="module")
def pretrained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("runs") / "mgp"
    settings: dict[str, Any] = {
        "probe_epochs": 1,
        "epochs": 1,
        "batch": 64,
        "patch": 4,
        "decoder_width": 16,
        "decoder_depth": 1,
    }
    train(
        "masked_autoencoder",
        "digits-lt",
        folder,
        decoder_heads=2,
        threads=1,
        device="cpu",
        **settings,
    )
    return folder


def test_pretraining_leaves_an_encoder_a_figure_and_a_row(pretrained: Path) -> None:
    weights = read_weights(pretrained)
    assert weights.spec is not None
    assert weights.spec["pool"] == "avg"
    about = json.loads((pretrained / "encoder" / "spec.json").read_text())["data"]
    assert about.startswith("digits-lt, 364 images, ")
    row = json.loads((pretrained / "row.json").read_text())
    assert row["epochs"] == {"pretrain": 1, "probe": 1}
    assert row["test"]["images"] == 500
    network: Any = load(pretrained).network
    for name, tensor in transformer(network.network).state_dict().items():
        assert torch.equal(tensor, weights.tensors[name]), "the probe leaves the encoder as it is"


def test_a_finished_run_is_read_and_not_written(pretrained: Path) -> None:
    before = {path: path.stat().st_mtime_ns for path in pretrained.rglob("*") if path.is_file()}
    restore_method(pretrained)
    assert before == {
        path: path.stat().st_mtime_ns for path in pretrained.rglob("*") if path.is_file()
    }


def test_the_figure_has_originals_on_top(pretrained: Path) -> None:
    with Image.open(pretrained / "analysis" / "reconstructions.png") as figure:
        pixels = np.asarray(figure)
    assert pixels.shape == (3 * 66 + 2, 8 * 66 + 2, 3)
    first = open_data("digits-lt").test.inputs.image(0)
    assert np.array_equal(pixels[2:66:8, 2:66:8], np.asarray(first))
    # Three of four patches are hidden
    grey = (pixels[68:132:8, 2:66:8] == 128).all(axis=2)
    assert grey.reshape(2, 4, 2, 4).all(axis=(1, 3)).sum() == 3


def test_equally_many_images_of_each_class() -> None:
    data = open_data("digits-lt")
    some = _balanced(data.train, 32, 10)
    assert sorted(torch.bincount(some.target).tolist()) == [3] * 8 + [4] * 2
    row = data.train.ids.index(some.ids[7])
    assert np.array_equal(
        np.asarray(some.inputs.image(7)), np.asarray(data.train.inputs.image(row))
    )
    assert some.target[7] == data.train.target[row]
    assert len(some.inputs) == 32
    with pytest.raises(
        ValueError,
        match="--images 110 needs 11 images of each of 10 classes, got 5 of the smallest",
    ):
        _balanced(data.train, 110, 10)
