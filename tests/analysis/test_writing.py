"""From a finished run to arrays."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from longtail.analysis import analyse
from longtail.data.dataset import Split
from longtail.report.figures import write_figures
from longtail.runs import load, train
from longtail.runs.restore import restore_method

QUICK: dict[str, Any] = {"epochs": 1, "batch": 64, "threads": 1, "device": "cpu"}


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("analysis") / "run"
    train("balanced_softmax", "digits-lt", folder, **QUICK, batchformer="on")
    return folder


def test_a_finished_run_gives_its_method_back(finished: Path) -> None:
    before = {path: path.stat().st_mtime_ns for path in finished.rglob("*")}
    method, data = restore_method(finished)
    image = torch.rand(3, 3, 8, 8)
    with torch.no_grad():
        # Equal up to the rounding of another memory layout.
        assert torch.allclose(
            method.eval().predict(image), load(finished, device="cpu").network(image), atol=1e-6
        )
    assert data.name == "digits-lt"
    assert any(name.startswith("neck.batchformer") for name in method.state_dict())
    assert {path: path.stat().st_mtime_ns for path in finished.rglob("*")} == before
    with pytest.raises(ValueError):  # noqa: PT011 - whichever file is missed first
        restore_method(finished / "train")


def test_arrays_and_figures(finished: Path, tmp_path: Path) -> None:
    method, data = restore_method(finished)
    assert analyse(method, data, tmp_path, batch=32, batches=2) == [
        tmp_path / "gradcam.npz",
        tmp_path / "relations.npz",
    ]
    with np.load(tmp_path / "gradcam.npz") as stored:
        assert set(stored["target"].tolist()) == set(data.groups.members["few"])
        assert stored["map"].shape == (3, 8, 8)
        rows = [data.test.ids.index(name) for name in stored["id"].tolist()]
        assert data.test.target[rows].tolist() == stored["target"].tolist()
    with np.load(tmp_path / "relations.npz") as stored:
        assert stored["gradient"].shape == stored["counts"].shape == (10,)
    written = write_figures(tmp_path)
    assert [path.name for path in written] == ["gradient.svg", "by_pairs.svg", "looks.svg"]


def test_a_run_without_batchformer_has_grad_cam_alone(tmp_path: Path) -> None:
    train("ride", "digits-lt", tmp_path / "run", **QUICK, experts=2)
    method, data = restore_method(tmp_path / "run")
    assert analyse(method, data, tmp_path / "run" / "analysis", group="many") == [
        tmp_path / "run" / "analysis" / "gradcam.npz"
    ]


def test_bad_input_is_refused(finished: Path, tmp_path: Path) -> None:
    method, data = restore_method(finished)
    lost = replace(
        data, test=Split(data.test.inputs, torch.zeros(500, dtype=torch.long), data.test.ids)
    )
    with pytest.raises(
        ValueError, match="group few of digits-lt has no test or validation images: pass group many"
    ):
        analyse(method, lost, tmp_path)
    with pytest.raises(ValueError, match="expected a group of many, medium, few, got 'rare'"):
        analyse(method, data, tmp_path, group="rare")


def test_a_transformer_is_shown_by_its_attention(tmp_path: Path) -> None:
    train("vit", "digits-lt", tmp_path / "run", **QUICK, patch=2)
    analyse(*restore_method(tmp_path / "run"), tmp_path)
    with np.load(tmp_path / "gradcam.npz") as stored:
        assert str(stored["kind"]) == "attention rollout"
        assert stored["map"].shape == (3, 8, 8)
