"""Trains a small network on the digits in one process or several; started by test_distributed.py,
alone or under torchrun.
"""

import os
import signal
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from longtail import processes
from longtail.core import Clock, Labelled, Method, Outcome, Stage
from longtail.data.loader import EvalLoader, TrainLoader
from longtail.data.open import open_data
from longtail.data.views import CropFlip, TwoViews
from longtail.engine.averaging import EMA, LossValley
from longtail.engine.distributed import started
from longtail.engine.machine import Machine
from longtail.engine.muon import muon
from longtail.engine.optim import sgd
from longtail.engine.predicting import predictor
from longtail.engine.run import Run
from longtail.engine.sam import sam
from longtail.engine.stopping import Stopped
from longtail.methods import MoCo, MoCo3
from longtail.nn import BatchFormer, Streams, build
from longtail.scoring.evaluators import Accuracy, collect


class Small(Method[Labelled]):
    """No dropout, and batch-norm only if requested; a queue that must be equal everywhere."""

    queue: Tensor

    def __init__(self, *, norm: bool) -> None:
        super().__init__()
        parts = [nn.BatchNorm1d(192)] if norm else []
        self.network = nn.Sequential(
            nn.Flatten(), *parts, nn.Linear(192, 16), nn.ReLU(), nn.Linear(16, 10)
        )
        self.register_buffer("queue", torch.zeros(64, dtype=torch.long))

    def forward(self, batch: Labelled, clock: Clock) -> Outcome:
        loss = F.cross_entropy(self.network(batch["image"]), batch["target"])
        rank = processes.rank()
        notes = {
            "rank": torch.tensor(float(rank)),
            **({"second": torch.tensor(3.0)} if rank else {}),
        }
        return Outcome({"class": loss}, notes, carry={"position": batch["position"]})

    def after_step(self, outcome: Outcome, clock: Clock) -> None:
        # Rows come process by process
        self.queue.copy_(outcome.carry["position"].sort().values[: len(self.queue)])

    def predict(self, image: Tensor) -> Tensor:
        return self.network(image)  # type: ignore[no-any-return]

    def deploy(self) -> nn.Module:
        return self.network


class Alternating(Small):
    """Two players: in the third step of a round the last bias learns, else the rest."""

    steps_per_round = 3

    def __init__(self) -> None:
        super().__init__(norm=False)
        self.moved: list[int] = []

    def forward(self, batch: Labelled, clock: Clock) -> Outcome:
        last = cast(nn.Linear, self.network[-1])
        turn = clock.step % self.steps_per_round == 2
        if turn:
            with torch.no_grad():
                rows = self.network[:-1](batch["image"]) @ last.weight.T
            logits = rows + last.bias
        else:
            logits = self.network[:-1](batch["image"]) @ last.weight.T + last.bias.detach()
        loss = F.cross_entropy(logits, batch["target"])
        return Outcome({"bias" if turn else "rest": loss}, carry={"position": batch["position"]})

    def after_step(self, outcome: Outcome, clock: Clock) -> None:
        super().after_step(outcome, clock)
        if self.network[-1].bias.grad is not None:
            self.moved.append(clock.step)


class Watched(EMA):
    """Shows its weights: a stage follows its own with a copy of the average that it was given."""

    latest: Mapping[str, Tensor] = {}

    def update(self, method: nn.Module, clock: Clock) -> None:
        super().update(method, clock)
        Watched.latest = self.weights()


class WatchedValley(LossValley):
    """Shows its weights after each evaluation."""

    latest: Mapping[str, Tensor] = {}

    def observe(self, results: Mapping[str, float], clock: Clock) -> None:
        super().observe(results, clock)
        WatchedValley.latest = self.weights()


class Signalled(TrainLoader[Any]):
    """Sends SIGTERM to one process of several in the middle of an epoch."""

    def epoch(self, index: int, *, start: int = 0) -> Iterator[Any]:
        for number, batch in enumerate(super().epoch(index, start=start), start):
            if (index, number, processes.rank()) == (1, 2, 1):
                os.kill(os.getpid(), signal.SIGTERM)
            yield batch


def contrast(kind: str) -> Method[Any]:
    """Without batch-norm and dropout, and with a BatchFormer that attends across processes."""
    network = build({"name": "vit_mini", "size": 8, "patch": 4, "width": 16, "depth": 1})
    neck = Streams(BatchFormer(16, dropout=0.0, scope="global"))
    if kind == "moco_v2":
        return MoCo(network, dim=8, size=256, momentum=0.9, neck=neck, queue_keys="both")
    return MoCo3(network, dim=8, hidden=16, momentum=0.9, norm="none", neck=neck)


def main(kind: str, out: Path) -> None:
    with started(Machine()):
        data = open_data("digits-lt")
        run = Run(out / "run", command="the same")
        pairs, view = kind.startswith("moco"), CropFlip(8, pad=1, flip=False)
        method: Method[Any] = Alternating() if kind == "alternate" else Small(norm=kind == "norm")
        method = contrast(kind) if pairs else method
        loader = (Signalled if kind == "signal" else TrainLoader[Any])(
            data.train, view=TwoViews(view, view) if pairs else view, batch=64, seed=3
        )
        judge = Accuracy(EvalLoader(data.val, size=8, batch=16), classes=10, groups=data.groups)
        optimizer = sam(sgd(lr=0.1), rho=0.05) if kind == "sam" else sgd(lr=0.1)
        optimizer = muon(lr=0.01) if kind == "muon" else optimizer
        stage = Stage(
            name="s",
            method=method,
            data=loader,
            epochs=4,
            accumulate=2 if kind == "sam" else 1,
            optimizer=optimizer,
            averages={}
            if pairs
            else {"ema": Watched(0.9), "swad": WatchedValley("val/top1", n_converge=1)},
            evals={} if pairs else {"val": judge},
        )
        try:
            run.fit(stage)
        except Stopped as stopped:
            (out / f"stopped-{processes.rank()}").write_text(str(stopped))
        predictions = collect(
            EvalLoader(data.test, size=8, batch=64), predictor(method.eval(), Machine())
        )
        saved = {
            "state": method.state_dict(),
            "logits": torch.from_numpy(predictions.logits["logits"]),
            "index": torch.from_numpy(predictions.index),
        }
        saved["ema"] = dict(Watched.latest)
        saved["swad"] = dict(WatchedValley.latest)
        if isinstance(method, Alternating):
            saved["moved"] = torch.tensor(method.moved)
        torch.save(saved, out / f"{processes.rank()}-of-{processes.world_size()}.pt")


if __name__ == "__main__":
    torch.set_num_threads(1)
    main(sys.argv[1], Path(sys.argv[2]))
    left = [path.read_text().strip() for path in Path("/proc/self/task").glob("*/comm")]  # on Linux
    assert not [name for name in left if "gloo" in name], (
        f"the group of processes was left, but {left} still run"
    )
