"""The loop: it is plain gradient descent, and accumulation changes nothing but memory."""

import copy
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from toys import ToyBatches, ToyMethod, digest

from longtail.core import Clock, Labelled, Outcome, Stage, constant
from longtail.engine.fit import merge, rows_share, train
from longtail.engine.optim import sgd
from longtail.engine.run import Run
from longtail.schedules import Cosine


def fitted(
    method: ToyMethod, data: ToyBatches, tmp_path: Path, *, accumulate: int = 1, epochs: int = 2
) -> list[tuple[Clock, float]]:
    stage = Stage(
        name="s",
        method=method,
        data=data,
        epochs=epochs,
        optimizer=sgd(lr=0.1),
        accumulate=accumulate,
        schedule=Cosine(),
    )
    context = Run(tmp_path)._prepare(stage)
    return [(clock, outcome.loss.item()) for clock, outcome, _ in train(context)]


def test_the_loop_equals_one_written_by_hand(tmp_path: Path) -> None:
    ours, data, schedule = ToyMethod(dropout=0.0), ToyBatches(), Cosine()
    hand = copy.deepcopy(ours)
    fitted(ours, data, tmp_path)
    optimizer = sgd(lr=0.1)(hand)
    step = 0
    hand.train()
    for epoch in range(2):
        for batch in data.epoch(epoch):
            for group in optimizer.param_groups:
                group["lr"] = 0.1 * schedule(Clock(step, 6, epoch, 2))
            optimizer.zero_grad()
            outcome = hand(batch, Clock(step, 6, epoch, 2))
            outcome.loss.backward()
            optimizer.step()
            hand.after_step(outcome, Clock(step, 6, epoch, 2))
            step += 1
    assert digest(ours) == digest(hand)


def test_accumulation_gives_the_gradient_of_the_complete_batch(tmp_path: Path) -> None:
    complete = ToyMethod(norm=False, dropout=0.0)
    parts = copy.deepcopy(complete)
    # 44 rows: batches of 16 and a last one of 12; in parts 8 + 8, 8 + 8, 8 + 4: the last group is
    # scaled by its own size.
    one = fitted(complete, ToyBatches(44, 16), tmp_path)
    two = fitted(parts, ToyBatches(44, 8), tmp_path, accumulate=2)
    assert [clock for clock, _ in one] == [clock for clock, _ in two]
    for (name, a), b in zip(
        complete.state_dict().items(), parts.state_dict().values(), strict=True
    ):
        torch.testing.assert_close(a, b, rtol=1e-5, atol=1e-6, msg=name)
    assert complete.seen == parts.seen == 88  # carried rows reach after_step once each


def test_terms_are_averaged_by_rows() -> None:
    method = ToyMethod(norm=False, dropout=0.0).eval()
    batches = [*ToyBatches(24, 16).epoch(0)]
    complete: Labelled = {
        key: torch.cat([b[key] for b in batches]) for key in ("image", "target", "position")
    }  # type: ignore[assignment]
    clock = Clock(0, 1, 0, 1)
    merged = merge([method(b, clock) for b in batches], rows_share(batches))
    torch.testing.assert_close(
        merged.terms["class"],
        F.cross_entropy(method.predict(complete["image"]), complete["target"]).detach(),
    )
    assert len(merged.carry["rows"]) == 24


def test_a_term_that_a_batch_lacks_is_averaged_over_those_that_have_it() -> None:
    has = Outcome(
        {"class": torch.tensor(1.0), "rare": torch.tensor(4.0)}, notes={"size": torch.tensor(2.0)}
    )
    lacks = Outcome({"class": torch.tensor(5.0)})
    for outcomes, shares in (([has, lacks], [0.25, 0.75]), ([lacks, has], [0.75, 0.25])):
        merged = merge(outcomes, shares)
        assert {name: value.item() for name, value in {**merged.terms, **merged.notes}.items()} == {
            "class": 4.0,
            "rare": 4.0,
            "size": 2.0,
        }


class Promising(ToyBatches):
    """Three batches, of which the length says another number."""

    def __init__(self, checked_batches: int) -> None:
        super().__init__()
        self.checked_batches = checked_batches

    def __len__(self) -> int:
        return self.checked_batches


@pytest.mark.parametrize("checked_batches", [2, 4])
@pytest.mark.parametrize("accumulate", [1, 2])
def test_data_that_yields_another_number_of_batches_than_its_length_is_refused(
    tmp_path: Path, checked_batches: int, accumulate: int
) -> None:
    method, seen = ToyMethod(), min(checked_batches, 3) // accumulate * accumulate
    got = "3" if checked_batches > 3 else "more"
    with pytest.raises(
        ValueError,
        match=f"stage 's': the length of the data is {checked_batches} .*epoch 1 has {got}:",
    ):
        fitted(method, Promising(checked_batches), tmp_path, accumulate=accumulate)
    assert method.seen == 16 * seen, "not one step beyond the end of the epoch"


def test_rows_are_counted_by_their_positions_whatever_else_a_batch_has(tmp_path: Path) -> None:
    def prompted(batch: Any, clock: Clock) -> Any:
        return {"prompt": torch.zeros(312), **batch}

    stage = Stage(
        name="s",
        method=ToyMethod(),
        data=ToyBatches(40, 16),
        epochs=1,
        optimizer=sgd(lr=0.1),
        mix=prompted,
    )
    assert [step.rows for step in train(Run(tmp_path)._prepare(stage))] == [16, 16, 8]


@pytest.mark.parametrize(
    ("batch", "got"), [({"image": torch.zeros(2)}, "only image"), ((torch.zeros(2),), "a tuple")]
)
def test_batches_without_position_are_refused(tmp_path: Path, batch: Any, got: str) -> None:
    class OneBatch(ToyBatches):
        def epoch(self, index: int, *, start: int = 0) -> Any:
            yield batch

    stage = Stage(name="s", method=ToyMethod(), data=OneBatch(), epochs=1, optimizer=sgd(lr=0.1))
    with pytest.raises(
        ValueError,
        match=f"stage 's': a batch must be a dictionary with `position`, .*, got {got}",
    ):
        list(train(Run(tmp_path)._prepare(stage)))


def test_a_method_that_returns_no_outcome_is_refused(tmp_path: Path) -> None:
    class Bare(ToyMethod):
        def forward(self, batch: Labelled, clock: Clock) -> Any:
            return super().forward(batch, clock).loss

    stage = Stage(name="s", method=Bare(), data=ToyBatches(), epochs=1, optimizer=sgd(lr=0.1))
    with pytest.raises(
        ValueError,
        match="stage 's': `forward` of Bare must return an Outcome, got a Tensor: return",
    ):
        list(train(Run(tmp_path)._prepare(stage)))


def test_a_closure_gives_the_same_loss_however_often_it_is_called(tmp_path: Path) -> None:
    losses: list[float] = []

    def twice(method: torch.nn.Module) -> torch.optim.Optimizer:
        optimizer = sgd(lr=0.0)(method)
        step = optimizer.step

        def evaluate_twice(closure: Callable[[], object]) -> object:
            first, second = closure(), closure()
            losses.extend([first.loss.item(), second.loss.item()])  # type: ignore[attr-defined]
            step()
            return first

        optimizer.step = evaluate_twice  # type: ignore[assignment, method-assign]
        return optimizer

    class Drawing(ToyMethod):
        def forward(self, batch: Labelled, clock: Clock) -> Outcome:
            outcome = super().forward(batch, clock)
            drawn = float(np.random.rand()) + random.random()  # noqa: NPY002
            return Outcome({**outcome.terms, "drawn": torch.tensor(drawn)})

        def after_step(self, outcome: Outcome, clock: Clock) -> None:
            pass

    stage = Stage(
        name="s",
        method=Drawing(norm=False, dropout=0.5),
        data=ToyBatches(),
        epochs=1,
        optimizer=twice,
        schedule=constant,
    )
    list(train(Run(tmp_path)._prepare(stage)))
    assert losses[0::2] == losses[1::2]
    assert len(set(losses)) == 3


@pytest.mark.parametrize("start", [0, 1, 4])
def test_training_can_begin_at_any_step(tmp_path: Path, start: int) -> None:
    stage = Stage(name="s", method=ToyMethod(), data=ToyBatches(), epochs=2, optimizer=sgd(lr=0.1))
    clocks = [clock for clock, _, _ in train(Run(tmp_path)._prepare(stage), step=start)]
    assert [clock.step for clock in clocks] == list(range(start, 6))
    assert [clock.epoch for clock in clocks] == [step // 3 for step in range(start, 6)]
