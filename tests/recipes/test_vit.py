"""Transformers with labels alone, on digits."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from captured import stages

from longtail.core import nothing
from longtail.data.samplers import ClassBalanced, RepeatedAugmentation
from longtail.losses import LDAM
from longtail.nn import Cosine as CosineHead
from longtail.records.row import read_row
from longtail.runs import load, train

QUICK: dict[str, Any] = {"epochs": 2, "batch": 64, "patch": 4, "threads": 1, "device": "cpu"}


def test_mixing_ends_when_it_should(tmp_path: Path) -> None:
    def losses(name: str, **keywords: Any) -> list[float]:
        train("vit", "digits-lt", tmp_path / name, **QUICK, **keywords)
        lines = map(
            json.loads, (tmp_path / name / "train" / "journal.jsonl").read_text().splitlines()
        )
        return [line["terms/class"] for line in lines if line["kind"] == "epoch"]

    mixed, half, never = (
        losses("mixed", mix_until=1.0),
        losses("half", mix_until=0.5),
        losses("never", mixup=0.0, cutmix=0.0),
    )
    assert half[0] == mixed[0] != never[0], "the first of two epochs is mixed"
    assert half[1] != mixed[1], "and the second is not"


def test_losses_of_livt_are_those_of_vit_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    captured = stages(
        monkeypatch, tmp_path / "run", "vit", loss="ldam", smoothing=0.0, network="fast_vit"
    )
    assert isinstance(captured["train"].method.loss, LDAM)
    assert isinstance(captured["train"].method.head, CosineHead), "the head that LDAM was made for"
    with pytest.raises(ValueError, match="--smoothing has no effect with --loss ldam"):
        stages(monkeypatch, tmp_path / "other", "vit", loss="ldam", network="fast_vit")


def test_retraining_leaves_the_features_as_they_were(tmp_path: Path) -> None:
    result = train("vit_crt", "digits-lt", tmp_path / "run", retrain_epochs=1, **QUICK)
    assert result.row is not None
    assert result.row["epochs"] == {"train": 2, "retrain": 1}
    before = torch.load(tmp_path / "run" / "train" / "last.pt")["method"]
    after: Any = load(tmp_path / "run").network
    for name, tensor in after.network.state_dict().items():
        assert torch.equal(tensor, before[f"network.{name}"])
    assert not torch.equal(after.head.weight, before["head.weight"])


def test_retraining_sees_all_classes_equally_often_and_unmixed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    captured = stages(
        monkeypatch, tmp_path / "run", "vit_crt", first="train", patch=4, threads=1, device="cpu"
    )
    assert captured["train"].data.sampler == RepeatedAugmentation(3)
    assert captured["retrain"].data.sampler == ClassBalanced()
    assert captured["retrain"].mix is nothing
    assert [
        name
        for name, parameter in captured["retrain"].method.named_parameters()
        if parameter.requires_grad
    ] == ["head.weight", "head.bias"]


def test_the_network_of_a_finished_run_is_taken_as_it_is(tmp_path: Path) -> None:
    train("vit", "digits-lt", tmp_path / "vit", **QUICK)
    repeated: dict[str, Any] = {
        "trained": tmp_path / "vit",
        "retrain_epochs": 1,
        "batch": 64,
        "threads": 1,
        "device": "cpu",
    }
    retrained = train("vit_crt", "digits-lt", tmp_path / "retrained", **repeated)
    assert retrained.row is not None
    assert retrained.row["epochs"] == {"retrain": 1}
    assert retrained.row["pretraining"] is None, "it has seen no other data"
    assert retrained.row["minutes_before"] == read_row(tmp_path / "vit")["minutes"] > 0
    before, after = (load(tmp_path / name).network for name in ("vit", "retrained"))
    for name, tensor in before.state_dict().items():
        assert torch.equal(tensor, after.state_dict()[name]) is name.startswith("network."), name
    other = train("vit_crt", "digits-lt", tmp_path / "other", imbalance=10, **repeated)
    assert other.row is not None
    assert (other.row["pretraining"] or "").startswith("digits-lt"), (
        "its features are of other images, and the row says so"
    )


def test_a_trained_run_must_be_finished_and_keeps_its_description(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"--mixup 0\.1 has no effect with --trained: remove it"):
        train(
            "vit_crt", "digits-lt", tmp_path / "run", trained=tmp_path / "vit", mixup=0.1, threads=1
        )
    with pytest.raises(ValueError, match="expected a run folder, got nothing"):
        train("vit_crt", "digits-lt", tmp_path / "run", trained=tmp_path / "vit", threads=1)
    assert not (tmp_path / "run").exists(), "nothing was begun"


def test_pooling_patches_is_the_baseline_of_livt_under_another_name(tmp_path: Path) -> None:
    shared: dict[str, Any] = {**QUICK, "epochs": 1}
    settings: dict[str, Any] = {
        "warmup": 0.1,
        "smoothing": 0.0,
        "repeats": 1,
        "mix_until": 1.0,
        "crop": "part",
    }
    train("vit_scratch", "digits-lt", tmp_path / "scratch", **shared)
    train("vit", "digits-lt", tmp_path / "vit", pool="avg_norm", **shared, **settings)
    one, other = (load(tmp_path / name).network.state_dict() for name in ("scratch", "vit"))
    assert one.keys() == other.keys()
    assert all(torch.equal(tensor, other[name]) for name, tensor in one.items())


def test_a_folder_of_the_baseline_of_livt_is_resumed_where_its_recipe_was_another(
    tmp_path: Path,
) -> None:
    """Recipe, target and keywords of recipe.json are those from before the merge."""
    train("vit_scratch", "digits-lt", tmp_path / "run", **QUICK)
    (tmp_path / "run" / "row.json").unlink()
    released = json.loads(Path(__file__).with_name("parameters.json").read_text())["vit_scratch"]
    record = json.loads((tmp_path / "run" / "recipe.json").read_text())
    assert record["target"] == "longtail.recipes.livt_baselines:vit_scratch"
    del record["keywords"]["weights"]  # newer than those
    assert record["keywords"].keys() >= released.keys()
    (tmp_path / "run" / "recipe.json").write_text(json.dumps(record))
    before = (tmp_path / "run" / "train" / "last.pt").stat().st_mtime_ns
    assert train("vit_scratch", "digits-lt", tmp_path / "run", **QUICK).row is not None
    assert (tmp_path / "run" / "train" / "last.pt").stat().st_mtime_ns == before, (
        "not trained again"
    )
