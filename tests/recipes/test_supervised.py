"""Cross entropy and balanced softmax: one recipe at two values of tau."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import timm
import torch
from captured import stages
from safetensors.torch import load_file

from longtail.data.samplers import ClassBalanced, Instance, ProgressivelyBalanced, SquareRoot
from longtail.nn import Streams
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


def test_cross_entropy_takes_batchformer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    built = stages(monkeypatch, tmp_path, "cross_entropy", batchformer="on", epochs=1)
    neck = built["train"].method.neck
    assert isinstance(neck, Streams)
    assert built["train"].method.loss.bias.abs().max() == 0, "and no prior"


def test_frozen_features_train_the_classifier_and_batchformer_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    encoder = tmp_path / "weights.pth"
    torch.save(timm.create_model("test_resnet").state_dict(), encoder)
    built = stages(
        monkeypatch,
        tmp_path / "run",
        "balanced_softmax",
        network="timm:test_resnet",
        weights=str(encoder),
        features="frozen",
        batchformer="on",
        epochs=1,
    )
    method = built["train"].method
    trained = {name.partition(".")[0] for name, p in method.named_parameters() if p.requires_grad}
    assert trained == {"neck", "head"}
    method.train()
    assert not any(part.training for part in method.network.modules()), "batch norms stay"
    with pytest.raises(ValueError, match="--features frozen keeps random features"):
        stages(monkeypatch, tmp_path / "random", "balanced_softmax", features="frozen")
