"""What recipes share: pretrained weights to begin with, usual optimizers, what mixes batches."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np
import pytest
import timm
import torch
from captured import stages

from longtail.core import Clock, best
from longtail.data.augmentations import JitteredCrop, RandAugment
from longtail.data.open import open_data
from longtail.engine.machine import Machine
from longtail.engine.run import Run
from longtail.errors import LongtailError
from longtail.nn import pretrained
from longtail.recipes.builders import (
    adamw_or_muon,
    build_backbone,
    default_optimizer,
    mixing,
    select_weights,
    sgd_or_muon,
    training_view,
    validation,
)
from longtail.recipes.supervised import balanced_softmax
from longtail.records.predictions import SplitPredictions
from longtail.records.scores import Label, label
from longtail.runs import train
from longtail.scoring.evaluators import Accuracy, ScorerEvaluator

MODEL = "test_resnet.r160_in1k"
DIGITS = open_data("digits-lt")


@pytest.fixture
def cached(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Weights of a tiny timm model in a file, which stands for the cache."""
    path = tmp_path / "weights.pth"
    torch.manual_seed(7)
    torch.save(timm.create_model("test_resnet").state_dict(), path)
    monkeypatch.setattr(pretrained, "cached", lambda _: path)
    return path


def run_in(folder: Path) -> Run:
    return Run(folder, machine=Machine())


def test_training_starts_from_pretrained_weights(cached: Path, tmp_path: Path) -> None:
    run = run_in(tmp_path / "run")
    theirs = torch.load(cached)["conv1.0.weight"]
    assert torch.equal(
        build_backbone(run, f"timm:{MODEL}", "timm", data=DIGITS, size=32).state_dict()[
            "body.conv1.0.weight"
        ],
        theirs,
    )
    assert run.pretraining == "ImageNet-1k"
    other = run_in(tmp_path / "other")
    assert not torch.equal(
        build_backbone(other, f"timm:{MODEL}", "random", data=DIGITS, size=32).state_dict()[
            "body.conv1.0.weight"
        ],
        theirs,
    )
    assert other.pretraining is None


def test_the_row_says_what_was_seen_and_a_finished_run_needs_no_weights(
    cached: Path, tmp_path: Path
) -> None:
    words: dict[str, Any] = {
        "network": f"timm:{MODEL}",
        "weights": "timm",
        "epochs": 1,
        "size": 32,
        "device": "cpu",
        "threads": 1,
    }
    row = train("cross_entropy", "digits-lt", tmp_path / "run", **words).row
    assert row is not None
    assert row["pretraining"] == "ImageNet-1k"
    cached.unlink()
    (tmp_path / "run" / "row.json").unlink()
    repeated = train("cross_entropy", "digits-lt", tmp_path / "run", **words).row
    assert repeated is not None
    assert (repeated["test"], repeated["pretraining"]) == (row["test"], row["pretraining"])


def test_networks_of_ours_have_no_pretrained_weights(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="--weights timm needs a network of timm, got fast_cnn"):
        balanced_softmax(run_in(tmp_path / "run"), open_data("digits-lt"), weights="timm")


@pytest.mark.parametrize(
    ("network", "rate"),
    [("timm:resnet10t", 0.1), ("timm:test_vit", 1e-3), ("timm:beit_base_patch16_224", 1e-3)],
)
def test_tuning_is_slower_than_learning_and_transformers_slower_than_others(
    network: str, rate: float
) -> None:
    with torch.device("meta"):
        module = timm.create_model(network.removeprefix("timm:"))
    rates = [
        default_optimizer(module, weights, lr=None, weight_decay=None)(module).param_groups[0]["lr"]
        for weights in ("random", "timm")
    ]
    assert rates == pytest.approx([rate, rate / 10])
    assert (
        default_optimizer(module, "timm", lr=0.5, weight_decay=None)(module).param_groups[0]["lr"]
        == 0.5
    )


def test_zero_switches_mixing_off() -> None:
    batch: Any = {
        "image": torch.rand(4, 3, 8, 8),
        "target": torch.tensor([0, 1, 2, 2]),
        "position": torch.arange(4),
    }
    clock = Clock(0, 1, 0, 1)
    assert mixing(3, mixup=0.0, cutmix=0.0, smoothing=0.0)(batch, clock) is batch
    smoothed = mixing(3, mixup=0.0, cutmix=0.0, smoothing=0.3)(batch, clock)
    assert torch.equal(smoothed["image"], batch["image"])
    assert smoothed["target"][0].tolist() == pytest.approx([0.8, 0.1, 0.1])
    for _ in range(5):
        cut = mixing(3, mixup=0.0, cutmix=1.0, smoothing=0.0)(batch, clock)["image"]
        assert ((cut == batch["image"]) | (cut == batch["image"].flip(0))).all()


class Errors:
    headline = "errors"
    labels: Mapping[str, Label] = MappingProxyType(
        {"errors": label("errors", higher_is_better=False)}
    )

    def __call__(self, predictions: SplitPredictions, /) -> dict[str, float | None]:
        return {"errors": (predictions.logits["logits"].argmax(1) != predictions.target).mean()}


def test_the_scorer_of_the_data_evaluates_and_selects() -> None:
    data = open_data("digits-lt")
    assert isinstance(validation(data, 8)["val"], Accuracy)
    assert select_weights("best", ema=0.9, data=data)[1] == best("ema/val/balanced")
    few = replace(data, scoring="few")
    assert isinstance(validation(few, 8)["val"], Accuracy)
    assert select_weights("best", ema=0.0, data=few)[1] == best("val/few")
    ours = replace(data, scorer=Errors())
    assert isinstance(validation(ours, 8)["val"], ScorerEvaluator)
    kept = select_weights("best", ema=0.0, data=ours)[1]
    assert kept == best("val/errors", higher_is_better=False)
    numbers = validation(ours, 8)["val"](lambda image: {"logits": torch.eye(10)[[0] * len(image)]})
    assert numbers["errors"] == pytest.approx((data.val.target != 0).float().mean().item())
    assert {"loss", "balanced", "few"} <= {*numbers}


def test_a_headline_that_cannot_be_measured_on_validation_cannot_select() -> None:
    data = open_data("digits-lt")
    frequent = np.flatnonzero(data.val.target.numpy() < 7)  # no image of the group few
    data = replace(data, val=data.val.take(frequent), scoring="few")
    with pytest.raises(LongtailError, match="few, which cannot be measured on these validation"):
        select_weights("best", ema=0.9, data=data)
    select_weights("last", ema=0.9, data=data)


@pytest.mark.parametrize(
    ("recipe", "stage", "pad"),
    [
        ("vit", "train", 1),
        ("vit_crt", "train", 1),
        ("deit_lt", "student", 1),
        ("vit_scratch", "train", None),  # LiVT's code has no such switch
    ],
)
def test_recipes_have_the_crop_of_their_code(
    recipe: str, stage: str, pad: int | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = "teacher" if stage == "student" else ""
    quick: dict[str, Any] = {"epochs": 1, "batch": 64, "threads": 1, "device": "cpu"}
    built = stages(monkeypatch, tmp_path / "run", recipe, first=first, **quick)
    assert built[stage].data.view == RandAugment(8, flip=False, pad=pad)


def test_small_images_are_shifted_before_randaugment_and_large_ones_are_not() -> None:
    assert training_view("randaugment", 32, flip=True, crop="auto") == RandAugment(32, pad=4)
    assert training_view("randaugment", 64, flip=True, crop="auto") == RandAugment(64)
    assert training_view("randaugment", 32, flip=True) == RandAugment(32)
    part = JitteredCrop(224, scale=(0.08, 1.0), jitter=0.4, hue=0.0, grey=0.0, flip=False)
    assert training_view("jitter", 224, flip=False) == part


def test_muon_has_one_lr_for_matrices_and_one_for_the_rest() -> None:
    network = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.LayerNorm(4))
    for build in (
        adamw_or_muon("muon", lr=1e-3, weight_decay=0.05, betas=(0.9, 0.9)),
        sgd_or_muon("muon", lr=0.1, weight_decay=5e-4),
        default_optimizer(network, lr=None, weight_decay=None, optimizer="muon"),
    ):
        groups = {group["muon"]: group for group in build(network).param_groups}
        assert groups[True]["lr"] == pytest.approx(0.02)
        assert groups[True]["weight_decay"] == pytest.approx(0.05)
        assert groups[False]["lr"] == pytest.approx(1e-3)
    assert isinstance(sgd_or_muon("default", lr=0.1, weight_decay=0.0)(network), torch.optim.SGD)
    adam = adamw_or_muon("default", lr=1.0, weight_decay=0.0)(network)
    assert isinstance(adam, torch.optim.AdamW)
