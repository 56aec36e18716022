from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from longtail.core import Clock
from longtail.errors import LongtailError
from longtail.recipes.ride import lr_schedule
from longtail.records.row import read_row
from longtail.runs import load, train

QUICK: dict[str, Any] = {"epochs": 1, "batch": 64, "threads": 1, "device": "cpu"}


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("ride") / "run"
    train("ride", "digits-lt", folder, **QUICK)
    return folder


def test_it_trains_and_every_expert_is_evaluated(finished: Path) -> None:
    (line,) = [
        json.loads(text) for text in (finished / "train" / "journal.jsonl").read_text().splitlines()
    ]
    assert {
        "terms/class",
        "terms/class_diversity",
        "val/balanced",
        "val/expert1/balanced",
        "ema/val/expert3/top1",
    } <= set(line)
    with np.load(finished / "predictions" / "test.npz") as stored:
        assert sum("expert" in name for name in stored) == 3
    assert (
        json.loads((finished / "model" / "spec.json").read_text())["network"]["head"]["experts"]
        == 3
    )


def test_two_stages_with_batchformer_and_a_teacher(finished: Path, tmp_path: Path) -> None:
    result = train(
        "ride",
        "digits-lt",
        tmp_path / "run",
        **QUICK,
        batchformer="on",
        init=finished,
        teacher=finished,
    )
    (line,) = [
        json.loads(text)
        for text in (tmp_path / "run" / "train" / "journal.jsonl").read_text().splitlines()
    ]
    assert {
        "terms/plain",
        "terms/attended",
        "terms/plain_distill",
        "terms/attended_diversity",
    } <= set(line)
    assert result.row is not None
    assert result.row["keywords"]["init"] == str(finished)


def test_it_starts_from_the_weights_of_a_finished_run(finished: Path, tmp_path: Path) -> None:
    train("ride", "digits-lt", tmp_path / "run", **QUICK, lr=1e-30, ema=0.0, init=finished)
    before, after = (
        dict(load(folder, device="cpu").network.named_parameters())
        for folder in (finished, tmp_path / "run")
    )
    assert all((before[name] == tensor).all() for name, tensor in after.items())


def test_resnet_experts_with_a_cosine_rate_on_rotated_views(tmp_path: Path) -> None:
    keywords: dict[str, Any] = {
        "network": "resnet32",
        "experts": 2,
        "schedule": "cosine",
        "batchformer": "on",
        "augment": "rotated",
    }
    result = train("ride", "digits-lt", tmp_path / "run", **QUICK, **keywords)
    assert result.row is not None
    assert result.row["test"] is not None


def test_experts_of_large_images_train_on_parts(tmp_path: Path) -> None:
    keywords: dict[str, Any] = {"network": "resnet10", "experts": 2, "augment": "jitter"}
    keywords |= {"batchformer": "on", "plain_weight": 0.0, "batchformer_weight": 1.0}
    result = train("ride", "digits-lt", tmp_path / "run", **QUICK, **keywords)
    assert result.row is not None
    assert result.row["test"] is not None


def test_rates_fall_as_published() -> None:
    epochs = [Clock(epoch, 100, epoch, 100) for epoch in (5, 59, 60, 80, 90)]
    assert [lr_schedule("tenths", 0.05)(clock) for clock in epochs] == [1, 1, 0.1, 0.01, 0.01]
    assert [lr_schedule("steps", 0.05)(clock) for clock in epochs] == [1, 1, 1, 1e-2, 1e-4]
    assert lr_schedule("cosine", 0.05)(epochs[-1]) < 0.1


@pytest.mark.parametrize(
    ("keywords", "message"),
    [
        ({"experts": 1}, "expected at least two experts, got 1"),
        (
            {"network": "vit_mini"},
            "unknown network of ride 'vit_mini'. Known: fast_cnn, resnet10, ",
        ),
        ({"init": "nowhere"}, "there is no trained network at nowhere"),
        ({"teacher": "nowhere"}, "expected a run folder, got nothing at nowhere"),
    ],
)
def test_bad_input_is_refused(tmp_path: Path, keywords: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        train("ride", "digits-lt", tmp_path / "run", **QUICK, **keywords)


def test_runs_of_other_networks_and_classes_are_refused(finished: Path, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="expected a run of the same network in --init"):
        train("ride", "digits-lt", tmp_path / "run", **QUICK, experts=2, init=finished)
    other = tmp_path / "other"
    (other / "model").mkdir(parents=True)
    for path in (finished / "model").iterdir():
        (other / "model" / path.name).write_bytes(path.read_bytes())
    spec = json.loads((other / "model" / "spec.json").read_text())
    (other / "model" / "spec.json").write_text(
        json.dumps(spec | {"classes": spec["classes"][::-1]})
    )
    with pytest.raises(ValueError, match="expected a teacher with the classes of digits-lt"):
        train("ride", "digits-lt", tmp_path / "third", **QUICK, teacher=other)


def test_what_a_beginning_and_a_teacher_have_seen_stands_on_the_row(
    finished: Path, tmp_path: Path
) -> None:
    same = train("ride", "digits-lt", tmp_path / "same", **QUICK, init=finished, teacher=finished)
    assert same.row is not None
    assert same.row["pretraining"] is None
    assert same.row["minutes_before"] == read_row(finished)["minutes"]  # once, though it is both
    other = train("ride", "digits-lt", tmp_path / "other", **QUICK, protocol="paper", init=finished)
    assert other.row is not None
    assert str(other.row["pretraining"]).endswith("(beginning)")


def test_custom_experts_and_teachers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    module = f"experts_{tmp_path.name}"
    (tmp_path / f"{module}.py").write_text(
        "from torch import nn\n"
        "from longtail.nn.experts import Experts\n"
        "def linear(size, *, experts=3):\n"
        "    parts = [nn.Linear(3 * size * size, 8) for _ in range(experts)]\n"
        "    return Experts(nn.Flatten(), parts)\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    options = {**QUICK, "network": f"{module}:linear"}
    train("ride", "digits-lt", tmp_path / "run", **options)
    with pytest.raises(LongtailError, match="pass --trust"):
        train("ride", "digits-lt", tmp_path / "student", **QUICK, teacher=tmp_path / "run")
    result = train(
        "ride", "digits-lt", tmp_path / "student", **options, teacher=tmp_path / "run", trust=True
    )
    assert result.row is not None
    assert result.row["keywords"]["network"] == f"{module}:linear"


def test_networks_without_experts_are_refused(tmp_path: Path) -> None:
    with pytest.raises(LongtailError, match="unknown network of ride 'resnet23': did you mean res"):
        train("ride", "digits-lt", tmp_path / "run", **QUICK, network="resnet23")
