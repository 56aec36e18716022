"""Epochs of any number of steps and paired loaders are functions of (epoch, start), and resume to
the bit.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from toys import ToyBatches, ToyMethod, digest

from longtail.core import Clock, Outcome, Stage
from longtail.data.batches import PairedBatches, StepsPerEpoch
from longtail.engine.checkpoint import load
from longtail.engine.optim import sgd
from longtail.engine.run import Run
from longtail.errors import LongtailError


@pytest.mark.parametrize("steps", [1, 2, 3, 5, 7])
def test_an_epoch_has_so_many_steps_and_walks_through_all_of_the_data(steps: int) -> None:
    inner, outer = ToyBatches(), StepsPerEpoch(ToyBatches(), steps=steps)
    assert len(inner) == 3
    flat = [batch["image"] for index in range(8) for batch in inner.epoch(index)]
    for index in range(3):
        for start in range(steps + 1):
            batches = [batch["image"] for batch in outer.epoch(index, start=start)]
            expected = flat[index * steps + start : (index + 1) * steps]
            assert len(batches) == len(expected)
            assert all(map(torch.equal, batches, expected))


def test_paired_batches_have_the_keys_of_both() -> None:
    first, other = ToyBatches(), ToyBatches(rows=80, seed=3)
    paired = PairedBatches(first, other=other)
    assert len(paired) == len(first) == 3
    [batch] = paired.epoch(1, start=2)
    assert torch.equal(batch["target"], [*first.epoch(1)][2]["target"])
    assert torch.equal(batch["other_target"], next(other.epoch(1))["target"]), "5 batches an epoch"
    with pytest.raises(LongtailError, match="at least two loaders"):
        PairedBatches(first)
    with pytest.raises(LongtailError, match="steps must be at least 1"):
        StepsPerEpoch(first, steps=0)
    nested = PairedBatches(PairedBatches(first, other=other), other=other)
    with pytest.raises(
        LongtailError, match="the key 'other_image' is in the batches of two loaders"
    ):
        next(nested.epoch(0))


class Paired(ToyMethod):
    """Learns from the images of both loaders, and is killed after a step."""

    killed_at = -1

    def forward(self, batch: Any, clock: Clock) -> Outcome:
        image = batch["image"] + 0.1 * batch["other_image"]
        return super().forward(batch | {"image": image}, clock)

    def after_step(self, outcome: Outcome, clock: Clock) -> None:
        if clock.step == self.killed_at:
            raise KeyboardInterrupt
        super().after_step(outcome, clock)


def trained(folder: Path, *, killed_at: int = -1) -> Paired:
    torch.manual_seed(0)
    method = Paired()
    method.killed_at = killed_at
    batches: Any = PairedBatches(
        StepsPerEpoch(ToyBatches(), steps=5), other=ToyBatches(rows=80, seed=3)
    )
    stage = Stage(name="s", method=method, data=batches, epochs=4, optimizer=sgd(lr=0.3))
    Run(folder, save_minutes=0.0).fit(stage)
    return method


@pytest.mark.parametrize("killed_at", [3, 7, 13])
def test_a_run_killed_in_the_middle_of_an_epoch_resumes_to_the_bit(
    tmp_path: Path, killed_at: int
) -> None:
    uninterrupted = digest(trained(tmp_path / "a"))
    with pytest.raises(KeyboardInterrupt):
        trained(tmp_path / "b", killed_at=killed_at)
    assert load(tmp_path / "b" / "s" / "last.pt")["step"] % 5 != 0, "in the middle of an epoch"
    assert digest(trained(tmp_path / "b")) == uninterrupted
