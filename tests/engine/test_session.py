"""A stage in its folder: which epochs are saved, and what averages learn of evaluations."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar

import pytest
import torch
import torch.nn.functional as F
from toys import ToyBatches, ToyMethod, digest

from longtail.core import Clock, Labelled, NonFinite, Outcome, Predict, Stage, average
from longtail.engine import checkpoint, session
from longtail.engine.averaging import EMA, LossValley
from longtail.engine.optim import sgd
from longtail.engine.run import Run


class Killed(BaseException):
    """What a test raises where a real run would die."""


class Deadly(ToyMethod):
    """Dies in the step `die_at`."""

    def __init__(self, die_at: int = -1) -> None:
        super().__init__()
        self.die_at = die_at

    def forward(self, batch: Labelled, clock: Clock) -> Outcome:
        if clock.step == self.die_at:
            raise Killed
        return super().forward(batch, clock)


class Loss:
    def __init__(self) -> None:
        self.data = ToyBatches(30, 30, seed=9)

    def __call__(self, predict: Predict) -> dict[str, float]:
        batch = next(self.data.epoch(0))
        return {"loss": F.cross_entropy(predict(batch["image"])["logits"], batch["target"]).item()}


class Watching(EMA):
    """Notes what it observes; a stage uses a copy of the average it is given, so in the class."""

    observed: ClassVar[list[tuple[int, dict[str, float]]]] = []

    def observe(self, results: Mapping[str, float], clock: Clock) -> None:
        Watching.observed.append((clock.step, dict(results)))


def stage(method: ToyMethod, **keywords: Any) -> Stage[Labelled]:
    settings: dict[str, Any] = {
        "data": ToyBatches(),
        "epochs": 12,
        "optimizer": sgd(lr=0.3),
        "evals": {"val": Loss()},
        **keywords,
    }
    return Stage(name="s", method=method, **settings)


def test_averages_observe_each_evaluation(tmp_path: Path) -> None:
    Watching.observed = []
    torch.manual_seed(0)
    Run(tmp_path).fit(
        stage(
            ToyMethod(),
            epochs=4,
            averages={"ema": Watching(0.9)},
            evaluate=lambda clock: clock.epoch % 2 == 1,
        )
    )
    assert [step for step, _ in Watching.observed] == [5, 11], "steps of an epoch: 3"
    assert [list(results) for _, results in Watching.observed] == [["val/loss", "ema/val/loss"]] * 2


def valley(method: ToyMethod) -> Stage[Labelled]:
    swad = LossValley(n_converge=2, n_tolerance=3, tolerance_ratio=0.05)
    return stage(method, averages={"swad": swad}, keep=average("swad"))


def test_a_loss_valley_is_kept_and_resumes_to_the_bit(tmp_path: Path) -> None:
    torch.manual_seed(0)
    complete = Run(tmp_path / "whole").fit(valley(Deadly()))
    saved = torch.load(tmp_path / "whole" / "s" / "last.pt", weights_only=True)
    state = saved["averages"]["swad"]
    assert state["counted"] + len(state["segments"]) > 1, "the valley has begun"
    kept = torch.load(tmp_path / "whole" / "s" / "kept.pt", weights_only=True)["weights"]
    assert torch.equal(kept["head.weight"], complete.state_dict()["head.weight"])
    assert not torch.equal(kept["head.weight"], saved["method"]["head.weight"])
    for die_at in (7, 20, 34):
        folder = tmp_path / str(die_at)
        torch.manual_seed(0)
        with pytest.raises(Killed):
            Run(folder, save_minutes=0.0).fit(valley(Deadly(die_at)))
        assert torch.load(folder / "s" / "last.pt", weights_only=True)["step"] == die_at
        assert digest(Run(folder).fit(valley(Deadly()))) == digest(complete)


@pytest.fixture
def saves(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The steps after which a checkpoint was saved."""
    steps: list[int] = []
    save = checkpoint.save

    def noting(path: Path, state: Mapping[str, Any]) -> None:
        if "step" in state:
            steps.append(state["step"])
        save(path, state)

    monkeypatch.setattr(checkpoint, "save", noting)
    return steps


def test_short_epochs_are_not_all_saved(tmp_path: Path, saves: list[int]) -> None:
    Run(tmp_path).fit(stage(ToyMethod(), epochs=5))
    assert saves == [3, 15], "the first, so that there is a checkpoint, and the last"


def test_epochs_that_take_their_time_are_saved(
    tmp_path: Path, saves: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(session, "SAVE_SECONDS", 0.0)
    Run(tmp_path).fit(stage(ToyMethod(), epochs=5))
    assert saves == [3, 6, 9, 12, 15]


def test_every_step_is_saved_where_minutes_are_zero(tmp_path: Path, saves: list[int]) -> None:
    Run(tmp_path, save_minutes=0.0).fit(stage(ToyMethod(), epochs=2))
    assert saves == [1, 2, 3, 4, 5, 6]


class Steep(ToyMethod):
    """Has a gradient that is not finite, of a loss that is."""

    def forward(self, batch: Labelled, clock: Clock) -> Outcome:
        outcome = super().forward(batch, clock)
        zero = self.head.weight.sum() * 0
        return Outcome({**outcome.terms, "extra": zero.sqrt() if clock.step == 8 else zero})

    def after_step(self, outcome: Outcome, clock: Clock) -> None:
        pass


def test_weights_that_are_not_finite_are_noticed_at_the_end_of_an_epoch_that_is_not_saved(
    tmp_path: Path, saves: list[int]
) -> None:
    with pytest.raises(NonFinite, match="the weights stopped being finite at step 8"):
        Run(tmp_path).fit(stage(Steep(), evals={}))
    assert saves == [3]
