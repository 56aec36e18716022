from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import timm
import torch
from captured import stages

from longtail.data.augmentations import CifarAutoAugment, JitteredCrop, SimClr
from longtail.data.views import TwoViews
from longtail.recipes.paco import two_views
from longtail.runs import load, train

QUICK: dict[str, Any] = {"epochs": 1, "batch": 64, "threads": 1, "device": "cpu"}


@pytest.mark.parametrize(
    ("batchformer", "terms"), [("off", {"class"}), ("on", {"plain", "attended"})]
)
def test_it_trains_and_leaves_network_and_centres(
    tmp_path: Path, batchformer: str, terms: set[str]
) -> None:
    train("paco", "digits-lt", tmp_path / "run", **QUICK, queue=128, batchformer=batchformer)
    (line,) = [
        json.loads(text)
        for text in (tmp_path / "run" / "train" / "journal.jsonl").read_text().splitlines()
    ]
    assert {name.removeprefix("terms/") for name in line if name.startswith("terms/")} == terms
    assert (
        sum(p.numel() for p in load(tmp_path / "run", device="cpu").network.parameters()) == 495_696
    )


def test_a_queue_shorter_than_a_batch_is_refused(tmp_path: Path) -> None:
    with pytest.raises(
        ValueError, match="--queue 100 is shorter than the 128 images of a step: pass --queue 128"
    ):
        train("paco", "digits-lt", tmp_path / "run", **QUICK, queue=100, accumulate=2)


def test_views_of_large_images_are_those_of_its_code() -> None:
    settings: dict[str, Any] = {"scale": (0.08, 1.0), "jitter": 0.4, "hue": 0.0}
    sim = JitteredCrop(64, grey=0.2, blur=0.5, **settings)
    cls = JitteredCrop(64, grey=0.0, ops="rand-n2-m10-mstd0.5", **settings)
    assert two_views("imagenet", 64, flip=True, blur=0.5) == TwoViews(cls, sim)
    assert two_views("places", 64, flip=True, blur=0.5) == TwoViews(sim, sim)
    cifar = two_views("cifar", 32, flip=True, blur=0.5)
    assert cifar == TwoViews(CifarAutoAugment(32), SimClr(32))


def test_the_second_view_is_blurred_by_default(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    view = stages(monkeypatch, tmp_path, "paco")["train"].data.view
    assert view == two_views("cifar", 8, flip=False, blur=0.5)


def test_pretrained_weights_are_those_of_query_and_key(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    trained = timm.create_model("test_resnet")
    torch.save(trained.state_dict(), tmp_path / "weights.pth")
    built = stages(
        monkeypatch,
        tmp_path / "run",
        "paco",
        network="timm:test_resnet",
        weights=str(tmp_path / "weights.pth"),
        rho=0.5,
        rho_schedule="rising",
    )
    method, expected = built["train"].method, trained.state_dict()["conv1.0.weight"]
    for part in (method.query, method.key):
        assert torch.equal(part.network.body.state_dict()["conv1.0.weight"], expected)
    optimizer = built["train's optimizer"]
    optimizer.param_groups[0]["progress"] = 0.0
    assert optimizer.radius() == pytest.approx(0.05)
