"""MDD: target labels change nothing, and its runs are ranked only with their like."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

from longtail.data.open import open_data
from longtail.engine.run import Run
from longtail.errors import LongtailError
from longtail.recipes.mdd import mdd
from longtail.records.layout import RunFolder
from longtail.records.row import read_row
from longtail.report.comparison import compare
from longtail.runs import load, train
from longtail.testing import check_recipe

FLAGS: dict[str, Any] = {"train_domain": "a", "test_domain": "b", "protocol": "adapt"}
SMALL: dict[str, Any] = {
    "network": "vectors",
    "bottleneck": 16,
    "head_width": 16,
    "epochs": 2,
    "batch": 16,
}
QUICK: dict[str, Any] = {"threads": 1, "device": "cpu"}


def write(path: Path, target: Any = None) -> Path:
    """Three classes in two domains, the second of them shifted; its classes may be replaced."""
    rng = np.random.default_rng(0)
    classes = np.tile(np.arange(3), 40)
    domain = np.repeat([0, 1], 60)
    features = rng.normal(size=(120, 8)) + 2 * np.eye(3, 8)[classes] + domain[:, None]
    given = classes if target is None else np.r_[classes[:60], target]
    arrays: dict[str, Any] = {
        "features": features.astype(np.float32),
        "target": given,
        "column.domain": np.array(["a", "b"])[domain],
    }
    np.savez(path, **arrays)
    return path


def test_target_labels_are_used_for_the_final_number_alone(tmp_path: Path) -> None:
    poisoned = np.random.default_rng(1).permutation(np.tile(np.arange(3), 20))
    runs = {}
    for name, labels in (("right", None), ("poisoned", poisoned)):
        data = write(tmp_path / f"{name}.npz", labels)
        runs[name] = tmp_path / name
        train(mdd, data, runs[name], batchformer="on", **FLAGS, **SMALL, **QUICK)
    rows = [read_row(run) for run in runs.values()]
    assert rows[0]["data"]["hash"] != rows[1]["data"]["hash"]
    right, wrong = (load_file(RunFolder(run).model.weights) for run in runs.values())
    assert all(torch.equal(right[name], wrong[name]) for name in right)
    assert rows[0]["val"] == rows[1]["val"]
    assert rows[0]["test"] != rows[1]["test"]
    assert rows[0]["selection"] == "last epoch"


def test_adapting_and_generalising_are_not_ranked_together(tmp_path: Path) -> None:
    data = write(tmp_path / "f.npz")
    train(mdd, data, tmp_path / "mdd", **FLAGS, **SMALL, **QUICK)
    keywords: dict[str, Any] = {"network": "vectors", "epochs": 1, "ema": 0.0, **QUICK}
    train("cross_entropy", data, tmp_path / "source", **FLAGS, **keywords)
    flags = {**FLAGS, "protocol": "holdout"}
    train("cross_entropy", data, tmp_path / "general", **flags, **keywords)
    adapted, source, general = (read_row(tmp_path / name) for name in ("mdd", "source", "general"))
    assert len(compare([adapted, source]).lines) == 2
    assert compare([adapted, source]).agreed["protocol"] == "adapt"
    with pytest.raises(LongtailError, match="protocol"):
        compare([adapted, general])


def test_it_is_refused_without_target_images_before_training(tmp_path: Path) -> None:
    data = write(tmp_path / "f.npz")
    flags = {**FLAGS, "protocol": "holdout"}
    with pytest.raises(LongtailError, match="pass --protocol adapt"):
        train(mdd, data, tmp_path / "run", **flags, **SMALL, **QUICK)
    for wrong, message in (
        ({"augment": "cutout"}, "--augment cutout has no effect with feature vectors"),
        ({"batchformer_on": "backbone"}, "--batchformer-on has no effect"),
        ({"backbone_lr_scale": 0.5}, "--backbone-lr-scale has no effect on feature vectors"),
        ({"batchformer_lr_scale": 0.1}, "--batchformer-lr-scale 0.1 has no effect"),
        ({"lr_decay": -1.0}, "--lr-decay of 0 or more, got -1"),
    ):
        with pytest.raises(LongtailError, match=message):
            train(mdd, data, tmp_path / "run", **FLAGS, **{**SMALL, **wrong}, **QUICK)
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("mode", ["off", "on", "frozen", "self"])
def test_it_resumes_to_the_bit_with_and_without_batchformer(mode: Any, tmp_path: Path) -> None:
    data = open_data(write(tmp_path / "f.npz"), **FLAGS)
    check_recipe(mdd, data, **{**SMALL, "epochs": 1, "steps": 5}, batchformer=mode)


def test_it_adapts_images_and_is_deployed_for_them(tmp_path: Path) -> None:
    flags = {**FLAGS, "train_domain": "photo", "test_domain": "night"}
    keywords = {**SMALL, "network": "fast_cnn", "epochs": 1, "steps": 2, "batchformer": "on"}
    run = tmp_path / "run"
    train(mdd, "shapes-domains", run, batchformer_on="backbone", **flags, **keywords, **QUICK)
    row, loaded = read_row(tmp_path / "run"), load(tmp_path / "run", device="cpu")
    assert row["headline"]["name"] == "domains"
    assert loaded.logits(torch.rand(2, 3, loaded.size, loaded.size)).shape == (
        2,
        len(loaded.classes),
    )
    assert row["data"]["protocol"] == "adapt"


def test_source_and_target_are_in_other_orders(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Both domains may be sorted by class: one order for both would pair the classes."""
    given: list[Any] = []

    def fit(self: Run, stage: Any) -> Any:
        given.append(stage)
        return stage.method

    monkeypatch.setattr(Run, "fit", fit)
    data = open_data(write(tmp_path / "f.npz"), **{**FLAGS, "protocol": "adapt"})
    mdd(Run(tmp_path / "run"), replace(data, unlabelled=data.train), **SMALL)
    [stage] = given
    batch = next(stage.data.epoch(0))
    assert batch["index"].tolist() != batch["unlabelled_index"].tolist()
