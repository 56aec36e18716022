"""What a stage needs is estimated, and refused where there is no room, before it is trained."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from longtail.core import Clock, Labelled, Method, Outcome, Stage
from longtail.data.batches import PairedBatches, StepsPerEpoch
from longtail.data.loader import TrainLoader
from longtail.data.open import open_data
from longtail.data.views import CropFlip, TwoViews
from longtail.engine.optim import sgd
from longtail.errors import LongtailError
from longtail.runs import resources, train
from longtail.runs.resources import (
    activations,
    batch_shape,
    check_needs,
    checked_sizes,
    free_memory,
    needs_of,
)


class Tiny(Method[Labelled]):
    """Two layers, whose activations can be counted by hand."""

    def __init__(self) -> None:
        super().__init__()
        self.network = nn.Sequential(
            nn.Conv2d(3, 4, 3, padding=1), nn.ReLU(), nn.Flatten(), nn.LazyLinear(10)
        )
        self.network(torch.zeros(1, 3, 8, 8))

    def forward(self, batch: Labelled, clock: Clock) -> Outcome:
        return Outcome({"class": self.predict(batch["image"]).sum()})

    def predict(self, image: torch.Tensor) -> torch.Tensor:
        result: torch.Tensor = self.network(image)
        return result

    def deploy(self) -> nn.Module:
        return self.network


def loader(**keywords: Any) -> TrainLoader[Any]:
    data = open_data("digits-lt", size=8)
    return TrainLoader(data.train, **{"view": CropFlip(8), "batch": 32, "seed": 0, **keywords})


def tiny(**keywords: Any) -> Stage[Any]:
    stage: dict[str, Any] = {
        "name": "train",
        "method": Tiny(),
        "data": loader(),
        "epochs": 2,
        "optimizer": sgd(lr=0.1),
    }
    return Stage(**{**stage, **keywords})


def test_activations_are_what_the_backward_pass_keeps_and_nothing_is_allocated() -> None:
    method = Tiny()
    kept: dict[int, torch.UntypedStorage] = {}

    def keep(tensor: torch.Tensor) -> torch.Tensor:
        kept[tensor.untyped_storage()._cdata] = tensor.untyped_storage()
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
        method.predict(torch.rand(5, 3, 8, 8))
    weights = {p.untyped_storage()._cdata for p in method.parameters()}
    slow = sum(storage.nbytes() for key, storage in kept.items() if key not in weights)
    assert activations(method, (5, 3, 8, 8)) == slow == 4 * 5 * (3 + 4) * 64
    assert activations(method, (5_000_000_000, 3, 8, 8)) == slow * 1_000_000_000


def test_the_shape_of_a_batch_is_that_of_its_loader() -> None:
    for batches in (loader(), loader(view=TwoViews(CropFlip(8), CropFlip(8)))):
        batch = next(iter(batches.epoch(0)))
        images = torch.cat([batch[name] for name in ("image", "view1", "view2") if name in batch])
        assert batch_shape(batches) == tuple(images.shape)
        assert batch_shape(StepsPerEpoch(batches, steps=3)) == tuple(images.shape)
    assert batch_shape(PairedBatches(loader(), target=loader(batch=16))) == (48, 3, 8, 8)
    assert batch_shape(object()) is None


def test_a_stage_without_room_is_refused_with_the_numbers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stage = tiny()
    needs = needs_of(stage)
    parameters = 3 * 4 * 9 + 4 + 4 * 64 * 10 + 10
    assert needs.parameters == parameters
    assert needs.weights == 4 * parameters
    assert needs.training == 4 * (parameters + resources.COPIES * 32 * 3 * 64)
    assert check_needs(stage, device="cpu", folder=tmp_path / "new") == needs
    monkeypatch.setattr(resources, "free_memory", lambda device: needs.training - 1)
    with pytest.raises(LongtailError, match=r"at least 84 kB of memory .*--batch"):
        check_needs(stage, device="cpu", folder=tmp_path)
    monkeypatch.undo()
    monkeypatch.setattr(resources, "free_space", lambda folder: 10_000)
    with pytest.raises(LongtailError, match=r"writes up to .*10 kB are free for .*fewer epochs"):
        check_needs(stage, device="cpu", folder=tmp_path / "new")


def test_a_tensor_or_network_without_room_is_refused_before_it_is_allocated(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with checked_sizes(), pytest.raises(LongtailError, match=r"10000000 x 65536 would need"):
        torch.randn(10_000_000, 65_536)
    monkeypatch.setattr(resources, "LARGE", 1000)
    monkeypatch.setattr(resources, "free_memory", lambda device: 9000)
    with checked_sizes():
        nn.Linear(16, 16)
        with pytest.raises(LongtailError, match=r"a network of [0-9,]+ parameters would need"):
            nn.Sequential(nn.Linear(16, 16), nn.Linear(32, 32))
    nn.Linear(200, 200)


def test_the_limit_of_the_process_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    resource = pytest.importorskip("resource")
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    used = pages * resource.getpagesize()
    monkeypatch.setattr(resource, "getrlimit", lambda kind: (used + 10**6, -1))
    free = free_memory("cpu")
    assert free is not None
    assert free <= 2 * 10**6


def test_free_memory_is_known_or_none() -> None:
    free = free_memory("cpu")
    assert free is None or free > 0
    assert free_memory("mps") is None


def test_an_absurd_width_is_refused_by_a_training(tmp_path: Path) -> None:
    absurd: dict[str, Any] = {"queue": 1_000_000, "dim": 65_536}
    with pytest.raises(LongtailError, match="of memory to train, and"):
        train("paco", "digits-lt", tmp_path / "run", size=8, **absurd)
    assert not (tmp_path / "run").exists()


def test_a_dry_run_says_what_it_takes(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    train("cross_entropy", "digits-lt", tmp_path / "run", size=8, dry_run=True)
    assert "parameters, at least" in capsys.readouterr().err
