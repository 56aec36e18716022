"""Cross entropy and balanced softmax: one recipe at two values of tau."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from captured import stages
from safetensors.torch import load_file

from longtail.data.samplers import ClassBalanced, Instance, ProgressivelyBalanced, SquareRoot
from longtail.records.layout import RunFolder
from longtail.runs import train

SMALL: dict[str, Any] = {"epochs": 1, "batch": 128, "threads": 1, "device": "cpu"}


def test_cross_entropy_is_balanced_softmax_without_the_prior(tmp_path: Path) -> None:
    train("cross_entropy", "digits-lt", tmp_path / "plain", **SMALL)
    train("balanced_softmax", "digits-lt", tmp_path / "tau0", tau=0.0, **SMALL)
    plain, tau0 = (
        load_file(RunFolder(tmp_path / name).model.weights) for name in ("plain", "tau0")
    )
    assert plain.keys() == tau0.keys()
    assert all(torch.equal(plain[name], tau0[name]) for name in plain)


@pytest.mark.parametrize(
    ("sampling", "sampler"),
    [
        ("instance", Instance),
        ("class_balanced", ClassBalanced),
        ("square_root", SquareRoot),
        ("progressive", ProgressivelyBalanced),
    ],
)
def test_sampling_chooses_the_sampler(
    sampling: str, sampler: type, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    built = stages(monkeypatch, tmp_path, "cross_entropy", sampling=sampling, epochs=2)
    assert type(built["train"].data.sampler) is sampler
