"""LiVT from end to end, on digits."""

from __future__ import annotations

import json
import shutil
import sys
from argparse import Namespace
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from captured import stages
from safetensors.torch import save_file

from longtail.core import Clock
from longtail.data.augmentations import RandAugment, ResizedCrop
from longtail.data.loader import TrainLoader
from longtail.data.open import open_data
from longtail.engine.run import Run
from longtail.errors import LongtailError
from longtail.nn.encoders import read_weights
from longtail.nn.mae import transformer
from longtail.recipes.livt import livt
from longtail.records.row import read_row
from longtail.runs import load, train

QUICK: dict[str, Any] = {"epochs": 1, "batch": 64, "patch": 4, "threads": 1, "device": "cpu"}
SMALL: dict[str, Any] = {"decoder_width": 16, "decoder_depth": 1, "decoder_heads": 2}


def killed_in(epoch: int) -> Any:
    """Batches that end in Ctrl-C, at the second of an epoch."""
    complete = TrainLoader.epoch

    def deadly(self: Any, index: int, *, start: int = 0) -> Iterator[Any]:
        for number, batch in enumerate(complete(self, index, start=start), start):
            if (index, number) == (epoch, 1):
                raise KeyboardInterrupt
            yield batch

    return deadly


@pytest.fixture(scope="module")
def pretrained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("runs") / "mgp"
    train("masked_autoencoder", "digits-lt", folder, probe_epochs=1, **QUICK, **SMALL)
    return folder


def test_fine_tuning_starts_from_the_encoder_of_another_run(
    pretrained: Path, tmp_path: Path
) -> None:
    result = train(
        "livt", "digits-lt", tmp_path / "run", weights=pretrained, size=16, lr=1e-30, **QUICK
    )
    assert result.row is not None
    assert result.row["epochs"] == {"finetune": 1}
    painting, judging = (
        json.loads((pretrained / stage / "done").read_text())["minutes"]
        for stage in ("pretrain", "probe")
    )
    assert result.row["minutes_before"] == painting > 0, (
        "of the encoder, and not of the classifier that judges it"
    )
    assert read_row(pretrained)["minutes"] == pytest.approx(painting + judging)
    named = result.row["keywords"]
    assert not {"pretrain_epochs", "pretrain_lr", "mask", "decoder_width"} & set(named), (
        "the row names no pretraining that did not happen"
    )
    assert (named["epochs"], named["layer_decay"]) == (1, 0.75)
    assert {"pretrain_epochs", "mask"} <= set(result.row["unused"])
    assert result.row["size"] == 16
    network: Any = load(tmp_path / "run").network
    state, given = transformer(network.network).state_dict(), read_weights(pretrained).tensors
    weights = read_weights(pretrained)
    assert {name: network.network.spec[name] for name in ("mean", "std")} == weights.statistics
    for name in ("blocks.5.mlp.fc2.weight", "patch_embed.proj.weight", "cls_token"):
        assert torch.equal(state[name], given[name])  # a rate of 0 shows what it began with
    assert state["pos_embed"].shape[1] == 1 + 16
    assert given["pos_embed"].shape[1] == 1 + 4


def test_a_network_that_the_encoder_of_another_run_names_is_not_imported(
    pretrained: Path, tmp_path: Path
) -> None:
    shutil.copytree(pretrained, tmp_path / "theirs")
    spec = tmp_path / "theirs" / "encoder" / "spec.json"
    content = json.loads(spec.read_text())
    content["network"]["name"] = "antigravity:network"
    spec.write_text(json.dumps(content))
    flags: Any = {"weights": tmp_path / "theirs", "size": 16, **QUICK}
    with pytest.raises(LongtailError, match=r"antigravity:network is code .*--trust"):
        train("livt", "digits-lt", tmp_path / "run", **flags)
    assert "antigravity" not in sys.modules
    del content["network"]["mean"]
    spec.write_text(json.dumps(content))
    with pytest.raises(LongtailError, match="has no mean of its images"):
        train("livt", "digits-lt", tmp_path / "other", **flags)


def test_both_stages_in_one_run_and_its_encoder_for_others(tmp_path: Path) -> None:
    train(
        "livt",
        "digits-lt",
        tmp_path / "run",
        pretrain_epochs=1,
        pretrain_batch=64,
        pretrain_size=16,
        lr=1e-30,
        **QUICK,
        **SMALL,
    )
    row = json.loads((tmp_path / "run" / "row.json").read_text())
    assert row["epochs"] == {"pretrain": 1, "finetune": 1}
    assert "minutes_before" not in row, "they are its own"
    assert (tmp_path / "run" / "analysis" / "reconstructions.png").exists()
    weights = read_weights(tmp_path / "run")
    assert weights.tensors["pos_embed"].shape[1] == 1 + 16, (
        "the encoder before fine-tuning, at its own size"
    )
    learnt = torch.load(tmp_path / "run" / "pretrain" / "last.pt")["method"]
    (name,) = [
        name
        for name in learnt
        if name.endswith("blocks.5.mlp.fc2.weight") and "decoder" not in name
    ]
    network: Any = load(tmp_path / "run").network
    assert torch.equal(
        learnt[name], transformer(network.network).state_dict()["blocks.5.mlp.fc2.weight"]
    ), "a rate of 0: what it began with"
    train("livt", "digits-lt", tmp_path / "arm", weights=tmp_path / "run", loss="ce", **QUICK)


def test_a_dry_run_goes_through_both_stages_and_writes_nothing(tmp_path: Path) -> None:
    train(
        "livt",
        "digits-lt",
        tmp_path / "run",
        dry_run=True,
        pretrain_epochs=1,
        pretrain_batch=64,
        **QUICK,
        **SMALL,
    )
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    ("keywords", "message"),
    [
        ({"patch": 3}, "size 8 and patch 3: choose size 6 or 9, or a patch that divides 8"),
        ({"mask": 1.0}, "mask ratio between 0 and 1, got 1.0"),
        ({"mask": 0.9}, "all or none of 4 patches"),
        ({"network": "fast_cnn"}, "fast_cnn has no keyword patch"),
        ({"weights": "nowhere"}, "there is nothing at nowhere"),
        ({"loss": "ce", "tau": 0.5}, "--tau has no effect with --loss ce"),
        ({"tau": float("nan")}, "expected tau to be float, got nan"),
        ({"network": "resnet32"}, "vision transformers have them, such as vit_mini"),
        (
            {"network": "timm:deit_tiny_distilled_patch16_224"},
            "deit_tiny_distilled_patch16_224 is not a plain vision transformer",
        ),
        ({"pretrain_size": 32, "patch": 16}, "size 8 and patch 16"),
        ({"patch": 0}, "size 8 and patch 0"),
        ({"drop_path": 1.0}, r"drop path in \[0, 1\), got 1"),
        ({"layer_decay": -1.0}, r"layer decay in \(0, 1\], got -1.0"),
        ({"warmup": 2.0}, "--warmup of 0 or more and of at most 1, got 2"),
        ({"erase": 2.0}, "--erase of 0 or more and of at most 1, got 2"),
        ({"augment": "weak", "erase": 0.5}, "--erase 0.5 has no effect with --augment weak"),
        ({"mixup": -1.0}, "--mixup of 0 or more, got -1"),
        ({"smoothing": 3.0}, "--smoothing of at most 1, got 3"),
        ({"keep": "best", "protocol": "paper"}, "validation"),
        ({"decoder_heads": 0}, "heads 0"),
        (
            {"decoder_depth": 0},
            "at least one block and a positive width, got depth 0 and width 128",
        ),
        ({"decoder_width": 0}, "got depth 2 and width 0"),
        ({"epochs": 0}, "stage 'finetune': epochs, batches"),
        ({"batch": 0}, "expected a batch of at least one image, got 0"),
        ({"pretrain_size": -3}, "size must be at least 1 pixel, got -3"),
        ({"pretrain_size": 0}, "size must be at least 1 pixel, got 0"),
        ({"decoder_width": 30, "decoder_heads": 2}, "got 30: choose 32"),
    ],
)
def test_bad_input_is_refused_before_anything_is_learnt(
    keywords: dict[str, Any], message: str, tmp_path: Path
) -> None:
    with pytest.raises(ValueError, match=message):
        train("livt", "digits-lt", tmp_path / "run", **{**QUICK, **keywords})
    assert not (tmp_path / "run").exists()


def test_words_about_a_pretraining_that_does_not_happen_are_refused(
    pretrained: Path, tmp_path: Path
) -> None:
    with pytest.raises(
        ValueError,
        match=r"--pretrain-epochs 77, --mask 0\.5 have no effect with --weights: remove them",
    ):
        train(
            "livt",
            "digits-lt",
            tmp_path / "run",
            weights=pretrained,
            mask=0.5,
            pretrain_epochs=77,
            **QUICK,
        )


@pytest.mark.parametrize(
    "place", ["encoder", "encoder/model.safetensors", "model/model.safetensors"]
)
def test_the_file_of_a_run_has_seen_what_the_run_has(
    place: str, pretrained: Path, tmp_path: Path
) -> None:
    run = Run(tmp_path, dry="rehearse")
    livt(run, open_data("digits-lt"), weights=pretrained / place)
    assert run.pretraining is None


def test_an_arm_of_an_arm_starts_from_the_same_encoder(pretrained: Path, tmp_path: Path) -> None:
    train("livt", "digits-lt", tmp_path / "arm", weights=pretrained, lr=0.1, **QUICK)
    train("livt", "digits-lt", tmp_path / "next", weights=tmp_path / "arm", lr=1e-30, **QUICK)
    network: Any = load(tmp_path / "next").network
    state, given = transformer(network.network).state_dict(), read_weights(pretrained).tensors
    assert torch.equal(state["blocks.5.mlp.fc2.weight"], given["blocks.5.mlp.fc2.weight"])
    # The same data
    assert json.loads((tmp_path / "next" / "row.json").read_text())["pretraining"] is None


def test_an_arm_goes_on_when_its_encoder_is_changed_or_gone(
    pretrained: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shutil.copytree(pretrained, tmp_path / "mgp")
    settings: dict[str, Any] = {
        **QUICK,
        "weights": tmp_path / "mgp",
        "epochs": 2,
        "save_every": 0.0,
    }
    train("livt", "digits-lt", tmp_path / "whole", **settings)
    for name in ("changed", "gone"):
        with monkeypatch.context() as patch:
            patch.setattr(TrainLoader, "epoch", killed_in(1))
            with pytest.raises(KeyboardInterrupt):
                train("livt", "digits-lt", tmp_path / name, **settings)
        if name == "changed":
            about = json.loads((tmp_path / "mgp" / "encoder" / "spec.json").read_text())
            about = {
                **about,
                "data": "other data",
                "network": {**about["network"], "mean": [0.0] * 3},
            }
            (tmp_path / "mgp" / "encoder" / "spec.json").write_text(json.dumps(about))
        else:
            shutil.rmtree(tmp_path / "mgp")
        row = train("livt", "digits-lt", tmp_path / name, **settings).row
        assert row is not None
        assert (
            row["minutes_before"]
            == json.loads((pretrained / "pretrain" / "done").read_text())["minutes"]
        )
        # The second began with the changed one
        assert row["pretraining"] == {"changed": None, "gone": "other data"}[name]
        if name == "changed":
            one, other = (
                torch.load(tmp_path / folder / "finetune" / "last.pt")["method"]
                for folder in ("whole", name)
            )
            assert all(torch.equal(tensor, other[key]) for key, tensor in one.items())


def test_an_arm_that_learnt_nothing_may_be_given_another_encoder(
    pretrained: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = train(
        "masked_autoencoder",
        "digits-lt",
        tmp_path / "other",
        probe_epochs=1,
        seed=1,
        **QUICK,
        **SMALL,
    ).folder
    with monkeypatch.context() as patch:
        patch.setattr(TrainLoader, "epoch", killed_in(0))
        with pytest.raises(KeyboardInterrupt):
            train("livt", "digits-lt", tmp_path / "run", weights=pretrained, lr=1e-30, **QUICK)
    assert (tmp_path / "run" / "encoder" / "spec.json").exists()
    train("livt", "digits-lt", tmp_path / "run", weights=other, lr=1e-30, **QUICK)
    name = "blocks.5.mlp.fc2.weight"
    network: Any = load(tmp_path / "run").network
    assert torch.equal(
        transformer(network.network).state_dict()[name], read_weights(other).tensors[name]
    )
    assert not torch.equal(
        read_weights(other).tensors[name], read_weights(pretrained).tensors[name]
    )


def test_a_network_that_learnt_the_labels_of_the_same_data_is_no_other_data(tmp_path: Path) -> None:
    train("vit_scratch", "digits-lt", tmp_path / "scratch", **QUICK)
    for seed, seen in ((0, None), (1, "digits-lt, ")):
        row = train(
            "livt",
            "digits-lt",
            tmp_path / f"on{seed}",
            weights=tmp_path / "scratch",
            split_seed=seed,
            **QUICK,
        ).row
        assert row is not None
        assert row["minutes_before"] == read_row(tmp_path / "scratch")["minutes"]
        assert (
            row["pretraining"] is None if seen is None else str(row["pretraining"]).startswith(seen)
        )


def test_an_encoder_that_has_seen_other_data_stands_on_the_row(
    pretrained: Path, tmp_path: Path
) -> None:
    result = train(
        "livt", "digits-lt", tmp_path / "run", weights=pretrained, protocol="paper", **QUICK
    )
    assert result.row is not None
    assert str(result.row["pretraining"]).startswith("digits-lt, ")


@pytest.mark.parametrize(
    ("kind", "seen"), [("file", "the data of mae.pth"), ("folder", "unknown data (encoder)")]
)
def test_an_encoder_from_elsewhere_stands_on_the_row_and_is_kept(
    kind: str, seen: str, pretrained: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    given, weights = (
        tmp_path / ("mae.pth" if kind == "file" else "timm"),
        dict(read_weights(pretrained).tensors),
    )
    # The public layout: a checkpoint with its arguments, and a decoder of which nothing is taken
    if kind == "file":
        torch.save(
            {
                "model": {**weights, "decoder_norm.bias": torch.zeros(4)},
                "epoch": 800,
                "args": Namespace(mask_ratio=0.75),
            },
            given,
        )
    else:
        given.mkdir()
        save_file(weights, given / "model.safetensors")
        (given / "config.json").write_text(
            json.dumps({"pretrained_cfg": {"mean": [0.1, 0.2, 0.3], "std": [0.4, 0.5, 0.6]}})
        )
    with monkeypatch.context() as patch:
        patch.setattr(TrainLoader, "epoch", killed_in(1))
        with pytest.raises(KeyboardInterrupt):
            train(
                "livt",
                "digits-lt",
                tmp_path / "run",
                weights=given,
                lr=1e-30,
                save_every=0.0,
                **{**QUICK, "epochs": 2},
            )
    given.rename(tmp_path / "gone")
    row = train(
        "livt",
        "digits-lt",
        tmp_path / "run",
        weights=given,
        lr=1e-30,
        save_every=0.0,
        **{**QUICK, "epochs": 2},
    ).row
    assert row is not None
    assert row["pretraining"] == seen
    assert "minutes_before" not in row, "nobody knows"
    network: Any = load(tmp_path / "run").network
    name = "blocks.5.mlp.fc2.weight"
    assert torch.equal(transformer(network.network).state_dict()[name], weights[name])
    assert network.network.spec["mean"] == (
        [0.485, 0.456, 0.406] if kind == "file" else [0.1, 0.2, 0.3]
    )


def test_a_network_of_timms_keeps_the_patch_that_its_name_says(
    pretrained: Path, tmp_path: Path
) -> None:
    with pytest.raises(
        ValueError, match=rf"patch 16, as timm:test_vit has here, got patch 4 in {pretrained}"
    ):
        train(
            "livt",
            "digits-lt",
            tmp_path / "run",
            network="timm:test_vit",
            weights=pretrained,
            size=32,
            **{**QUICK, "patch": None},
        )


def test_pretraining_at_another_size_sees_the_pixels_as_they_came(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for size, seen in ((None, 16), (8, 8)):
        captured = stages(
            monkeypatch,
            tmp_path / f"run{size}",
            "livt",
            first="pretrain",
            size=16,
            pretrain_size=size,
            **{**QUICK, "patch": 2},
        )
        assert captured["pretrain"].data.split.inputs.image(0).size[0] == seen
        assert captured["finetune"].data.split.inputs.image(0).size[0] == 16


def test_killed_while_it_paints_it_ends_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings: dict[str, Any] = {
        **QUICK,
        **SMALL,
        "pretrain_epochs": 2,
        "pretrain_batch": 64,
        "save_every": 0.0,
    }
    train("livt", "digits-lt", tmp_path / "whole", **settings)
    with monkeypatch.context() as patch:
        patch.setattr(TrainLoader, "epoch", killed_in(1))
        with pytest.raises(KeyboardInterrupt):
            train("livt", "digits-lt", tmp_path / "parts", **settings)
    train("livt", "digits-lt", tmp_path / "parts", **settings)
    for stage in ("pretrain", "finetune"):
        one, other = (
            torch.load(tmp_path / folder / stage / "last.pt")["method"]
            for folder in ("whole", "parts")
        )
        assert one.keys() == other.keys()
        assert all(torch.equal(tensor, other[key]) for key, tensor in one.items())


@pytest.mark.parametrize(("batch", "accumulate"), [(64, 1), (32, 4)])
def test_both_stages_have_the_settings_of_the_paper(
    batch: int, accumulate: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    keywords = {
        "batch": batch,
        "accumulate": accumulate,
        "pretrain_batch": 2 * batch,
        "pretrain_accumulate": accumulate,
    }
    captured = stages(
        monkeypatch,
        tmp_path / "run",
        "livt",
        first="pretrain",
        patch=2,
        threads=1,
        device="cpu",
        **keywords,
    )
    paint, label = captured["pretrain"], captured["finetune"]

    def rate(stage: Any, share: float) -> float:
        return float(stage.schedule(Clock(step=int(1000 * share), steps=1000, epoch=0, epochs=1)))

    assert (paint.epochs, label.epochs, paint.accumulate, label.accumulate) == (
        200,
        100,
        accumulate,
        accumulate,
    )
    assert (paint.data.batch, label.data.batch) == (2 * batch, batch)
    assert [rate(paint, share) for share in (0.025, 0.05, 0.525, 1.0)] == pytest.approx(
        [0.5, 1, 0.5, 0], abs=2e-3
    )
    assert [rate(label, share) for share in (0.05, 0.1, 0.55, 1.0)] == pytest.approx(
        [0.5, 1, 0.5, 0], abs=2e-3
    )
    assert paint.method.autoencoder.ratio == 0.75
    assert paint.data.view == ResizedCrop(8, flip=False)
    assert label.data.view == RandAugment(8, erase=0.25, flip=False)  # 9 and 0.5 are the view's own
    assert (label.mix.mixup, label.mix.cutmix, label.mix.switch) == (0.8, 1.0, 0.5)
    body: Any = transformer(label.method.network)
    assert [round(getattr(block.drop_path1, "drop_prob", 0.0), 3) for block in body.blocks] == [
        0.0,
        0.02,
        0.04,
        0.06,
        0.08,
        0.1,
    ]

    painting, labelling = paint.optimizer(paint.method), label.optimizer(label.method)
    for optimizer, lr in (
        (painting, 1e-3 * 2 * batch * accumulate / 256),
        (labelling, 2e-3 * batch * accumulate / 256),
    ):
        assert isinstance(optimizer, torch.optim.AdamW)
        assert {group["betas"] for group in optimizer.param_groups} == {(0.9, 0.95)}
        assert max(group["lr"] for group in optimizer.param_groups) == pytest.approx(lr)

    def settings(optimizer: Any, parameter: Any) -> Any:
        (group,) = [
            group
            for group in optimizer.param_groups
            if any(member is parameter for member in group["params"])
        ]
        scale = group["lr"] / max(other["lr"] for other in optimizer.param_groups)
        return scale, group["weight_decay"]

    encoder: Any = transformer(paint.method.autoencoder.network)
    # The tokens decay in pretraining only
    assert settings(painting, encoder.cls_token) == (1.0, 0.05)
    assert settings(painting, paint.method.autoencoder.decoder.mask_token) == (1.0, 0.05)
    assert settings(painting, encoder.blocks[0].norm1.weight) == (1.0, 0.0)
    assert settings(labelling, body.cls_token) == (pytest.approx(0.75**7), 0.0)
    assert settings(labelling, body.blocks[0].mlp.fc1.weight) == (pytest.approx(0.75**6), 0.05)
    assert settings(labelling, body.blocks[5].mlp.fc1.weight) == (pytest.approx(0.75), 0.05)
    assert settings(labelling, label.method.head.weight) == (1.0, 0.05)
    assert settings(labelling, label.method.head.bias) == (1.0, 0.0)


def test_a_size_that_the_encoders_patch_does_not_divide_is_refused_with_sizes_that_it_does(
    pretrained: Path, tmp_path: Path
) -> None:
    with pytest.raises(ValueError, match="got size 15 and patch 4: choose size 12 or 16, or"):
        train(
            "livt",
            "digits-lt",
            tmp_path / "run",
            weights=pretrained,
            size=15,
            **{**QUICK, "patch": None},
        )


def test_an_encoder_of_another_patch_or_width_is_refused_with_both(
    pretrained: Path, tmp_path: Path
) -> None:
    with pytest.raises(
        ValueError, match=rf"patch 2, as vit_mini has here, got patch 4 in {pretrained}"
    ):
        train("livt", "digits-lt", tmp_path / "patch", weights=pretrained, **{**QUICK, "patch": 2})
    with pytest.raises(
        ValueError, match=rf"width 192, as vit_tiny has here, got width 128 in {pretrained}"
    ):
        train(
            "livt",
            "digits-lt",
            tmp_path / "width",
            weights=pretrained,
            network="vit_tiny",
            **QUICK,
        )
