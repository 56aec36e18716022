"""The transformers that LiVT is compared with, from end to end, on digits."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest
import torch
from captured import stages

from longtail.core import Clock, Labelled
from longtail.data.augmentations import RandAugment, ThreeAugment
from longtail.engine.optim import Clipped
from longtail.nn.mae import sincos_positions, transformer
from longtail.recipes.builders import training_view
from longtail.runs import load, train
from longtail.schedules import Cosine

QUICK: dict[str, Any] = {"epochs": 1, "batch": 64, "patch": 4, "threads": 1, "device": "cpu"}


@pytest.mark.parametrize("recipe", ["vit_scratch", "deit3"])
def test_the_baselines_train(recipe: str, tmp_path: Path) -> None:
    result = train(recipe, "digits-lt", tmp_path / "run", **QUICK)
    assert result.row is not None
    assert result.row["epochs"] == {"train": 1}


def test_the_head_under_lamb_does_not_begin_near_zero(tmp_path: Path) -> None:
    train("deit3", "digits-lt", tmp_path / "run", **QUICK)
    head: Any = load(tmp_path / "run", device="cpu").network.head
    assert float(head.weight.std()) > 0.01, (
        "LAMB's steps are in proportion to the weights: near zero it would stay there"
    )


def test_deit3_binarizes_the_targets_of_a_mixture_and_averages_over_classes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    method = stages(monkeypatch, tmp_path / "run", "deit3", **QUICK)["train"].method.eval()
    target = torch.zeros(2, 10)
    target[0, :2], target[1, 4] = torch.tensor([0.7, 0.3]), 1.0
    batch: Labelled = {
        "image": torch.rand(2, 3, 8, 8),
        "target": target,
        "position": torch.arange(2),
    }
    pairs = zip(
        method.predict(batch["image"]).flatten().tolist(), target.flatten().tolist(), strict=True
    )
    slow = [math.log1p(math.exp(-logit if share else logit)) for logit, share in pairs]
    assert method(batch, Clock(0, 1, 0, 1)).terms["class"].item() == pytest.approx(
        sum(slow) / 20, rel=1e-5
    )


@pytest.mark.parametrize(
    ("loss", "scale"), [("bal_bce", 0.1), ("cb_bce", 0.1), ("ce", 1.0), ("bal_ce", 1.0)]
)
def test_deit3_takes_the_mean_over_classes_of_binary_losses_only(
    loss: str, scale: float, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    method = stages(monkeypatch, tmp_path / "run", "deit3", loss=loss, **QUICK)[
        "train"
    ].method.eval()
    batch: Labelled = {
        "image": torch.rand(2, 3, 8, 8),
        "target": torch.tensor([0, 4]),
        "position": torch.arange(2),
    }
    complete = method.loss(method.predict(batch["image"]), batch["target"]).item()
    assert method(batch, Clock(0, 1, 0, 1)).terms["class"].item() == pytest.approx(scale * complete)


@pytest.mark.parametrize("batch", [32, 128])
def test_deit3_has_the_settings_of_its_paper(
    batch: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    captured = stages(monkeypatch, tmp_path / "run", "deit3", **{**QUICK, "batch": batch})
    optimizer, network = captured["train's optimizer"], captured["train"].method.network
    assert isinstance(optimizer, Clipped)
    assert (optimizer.norm, type(optimizer.inner).__name__) == (1.0, "Lamb")
    assert {group["lr"] for group in optimizer.param_groups} == {3e-3}, "whatever the batch"
    assert {group["weight_decay"] for group in optimizer.param_groups} == {0.02, 0.0}
    body: Any = transformer(network).eval()
    assert all(
        (block.ls1.gamma == 1e-4).all() and (block.ls2.gamma == 1e-4).all() for block in body.blocks
    )
    image = torch.rand(2, 3, 8, 8)
    assert torch.equal(body(image), body.forward_features(image)[:, 0]), "the class token"


def test_deit3_takes_scaled_layers_only(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    keywords: dict[str, Any] = {**QUICK, "size": 16}
    with pytest.raises(
        ValueError,
        match=r"layer scales, got timm:test_vit, which has none: .*timm:deit3_base_patch16_224",
    ):
        train("deit3", "digits-lt", tmp_path / "run", network="timm:test_vit", **keywords)
    for scale in (1e-4, 0.1):
        method = stages(
            monkeypatch,
            tmp_path / "run",
            "deit3",
            network="timm:test_vit2",
            layer_scale=scale,
            **keywords,
        )["train"].method
        scales = [
            part.gamma
            for block in transformer(method.network).blocks
            for part in (block.ls1, block.ls2)
        ]
        assert all(
            gamma.requires_grad and torch.equal(gamma, torch.full_like(gamma, scale))
            for gamma in scales
        )


@pytest.mark.parametrize("batch", [32, 128])
def test_vit_scratch_starts_like_a_masked_autoencoder_with_one_lr(
    batch: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    captured = stages(monkeypatch, tmp_path / "run", "vit_scratch", **{**QUICK, "batch": batch})
    optimizer, body = captured["train's optimizer"], transformer(captured["train"].method.network)
    assert torch.equal(body.pos_embed, sincos_positions(128, 2))
    limit = math.sqrt(6 / (128 + 3 * 128))  # Xavier's
    assert all(
        limit * 0.99 < block.attn.qkv.weight.abs().max() <= limit and not block.attn.qkv.bias.any()
        for block in body.blocks
    )
    assert isinstance(optimizer, torch.optim.AdamW)
    assert [group["lr"] for group in optimizer.param_groups] == pytest.approx(
        [2e-3 * batch / 256] * len(optimizer.param_groups)
    )
    assert {group["weight_decay"] for group in optimizer.param_groups} == {0.05, 0.0}


def test_the_baselines_have_their_view_mixing_warmup_and_drop_path(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Of ImageNet-1K's part; the shift is that of larger data
    views = {
        "deit3": ThreeAugment(8, flip=False, scale=(0.08, 1.0)),
        "vit_scratch": RandAugment(8, erase=0.25, flip=False),
    }
    # DeiT III's is the same in all blocks
    rates = {"deit3": [0.1] * 6, "vit_scratch": [0.0, 0.02, 0.04, 0.06, 0.08, 0.1]}
    for recipe, warmup in (("deit3", 0.05), ("vit_scratch", 0.1)):
        stage = stages(monkeypatch, tmp_path / recipe, recipe, **QUICK)["train"]
        assert stage.data.view == views[recipe]
        assert (stage.mix.mixup, stage.mix.cutmix, stage.mix.switch) == (0.8, 1.0, 0.5)
        assert stage.schedule == Cosine(warmup)
        blocks: Any = transformer(stage.method.network).blocks
        for name in ("drop_path1", "drop_path2"):
            assert [
                round(getattr(getattr(block, name), "drop_prob", 0.0), 3) for block in blocks
            ] == rates[recipe]


@pytest.mark.parametrize(("size", "pad"), [(16, 2), (32, 4), (224, 4)])
def test_three_augmentations_shift_by_four_pixels_at_any_usual_size(size: int, pad: int) -> None:
    assert training_view("threeaugment", size, flip=True) == ThreeAugment(size, pad)
