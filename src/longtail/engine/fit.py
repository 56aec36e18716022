"""The training loop, for any method."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import Any, NamedTuple

import torch
from torch.optim import Optimizer

from longtail import processes
from longtail.core import Clock, Outcome, Stage
from longtail.engine.distributed import Forward
from longtail.engine.machine import Machine
from longtail.engine.plan import EpochPlan
from longtail.engine.seeding import seed_all
from longtail.errors import LongtailError


@dataclass(frozen=True)
class StageContext:
    """A stage on a machine, with its optimizer and learning rates."""

    stage: Stage[Any]
    machine: Machine
    seed: int
    optimizer: Optimizer
    forward: Forward  # the method's forward, with gradients averaged over processes
    unsynced: Callable[[], contextlib.AbstractContextManager[Any]]
    base_lrs: Sequence[float]  # each group's learning rate before the schedule
    plan: EpochPlan = field(default_factory=EpochPlan)

    @property
    def steps_per_epoch(self) -> int:
        """Optimizer steps in an epoch."""
        return -(-len(self.stage.data) // self.stage.accumulate)

    def clock(self, step: int) -> Clock:
        """The clock at an optimizer step."""
        epoch = step // self.steps_per_epoch
        epochs = self.plan.total(epoch, planned=self.stage.epochs)
        return Clock(step, epochs * self.steps_per_epoch, epoch, epochs)


class Step(NamedTuple):
    """One optimizer step: its clock, its outcome, and the number of rows in this process."""

    clock: Clock
    outcome: Outcome
    rows: int


def train(context: StageContext, *, step: int = 0) -> Iterator[Step]:
    """Train from `step` to the end, and yield each step."""
    stage, method = context.stage, context.stage.method
    optimize: Any = context.optimizer.step  # always with a closure: SAM calls it twice
    while step < context.clock(step).steps:
        method.train()
        epoch, done = divmod(step, context.steps_per_epoch)
        batches = checked_batches(stage, epoch, start=done * stage.accumulate)
        while group := list(islice(batches, stage.accumulate)):
            clock = context.clock(step)
            factor = stage.schedule(clock)
            for parameters, lr in zip(
                context.optimizer.param_groups, context.base_lrs, strict=True
            ):
                parameters["lr"] = lr * factor
                parameters["progress"] = clock.progress  # for an optimizer that changes with it
            seed_all(context.seed, stage.name, step, processes.rank())
            mixed = [stage.mix(context.machine.place_batch(batch), clock) for batch in group]
            outcome = optimize(lambda: gradient(context, mixed, clock))  # noqa: B023 - called before the loop moves on
            method.after_step(outcome, clock)
            for average in stage.averages.values():
                average.update(method, clock)
            yield Step(clock, outcome, sum(map(row_count, mixed)))
            step += 1


def checked_batches(stage: Stage[Any], epoch: int, *, start: int) -> Iterator[Any]:
    """Yield the batches of an epoch from `start` on, and check their number.

    The clock is computed from the length of the data, so the two must agree.
    """
    count, length = start, len(stage.data)
    for batch in stage.data.epoch(epoch, start=start):
        count += 1
        if count > length:
            break
        if not isinstance(batch, Mapping) or "position" not in batch:
            got = (
                f"only {', '.join(batch)}"
                if isinstance(batch, Mapping)
                else f"a {type(batch).__name__}"
            )
            raise LongtailError(
                f"stage {stage.name!r}: a batch must be a dictionary with `position`, one number"
                f" for each row, got {got}"
            )
        yield batch
    if count != length:
        raise LongtailError(
            f"stage {stage.name!r}: the length of the data is {length} batches, but epoch"
            f" {epoch + 1} has {'more' if count > length else count}: make `epoch` yield as many"
            " batches as `len` returns"
        )


def gradient(context: StageContext, batches: Sequence[Any], clock: Clock) -> Outcome:
    """Compute the gradient of the mean loss over the rows of one step's batches."""
    context.optimizer.zero_grad(set_to_none=True)
    # Every forward of a step draws the same dropout masks: SAM's two passes must use one function.
    seed_all(context.seed, context.stage.name, clock.step, processes.rank(), "look")
    shares = rows_share(batches)
    outcomes = []
    for i, (batch, share) in enumerate(zip(batches, shares, strict=True)):
        with context.unsynced() if i + 1 < len(batches) else contextlib.nullcontext():
            with context.machine.autocast():
                outcome = context.forward(batch, clock)
            if not isinstance(outcome, Outcome):
                raise LongtailError(
                    f"stage {context.stage.name!r}: `forward` of"
                    f" {type(context.stage.method).__name__} must return an Outcome, "
                    f'got a {type(outcome).__name__}: return longtail.core.Outcome({{"class":'
                    " loss})"
                )
            (outcome.loss if share == 1.0 else outcome.loss * share).backward()
        outcomes.append(outcome)
    return merge(outcomes, shares)


def rows_share(batches: Sequence[Any]) -> list[float]:
    """The fraction of a step's rows in each of its batches."""
    rows = [row_count(batch) for batch in batches]
    return [n / sum(rows) for n in rows]


def row_count(batch: Any) -> int:
    """The number of rows of a batch."""
    return len(batch["position"])


def merge(outcomes: Sequence[Outcome], shares: Sequence[float]) -> Outcome:
    """Merge the outcomes of a step's batches.

    Terms and notes are averaged over rows; carried rows are concatenated over batches and
    processes.
    """

    def mean(parts: Sequence[Mapping[str, torch.Tensor]]) -> dict[str, torch.Tensor]:
        if len(parts) == 1:
            return {name: value.detach() for name, value in parts[0].items()}
        means = {}
        # A batch may lack a term that applies to none of its rows
        for name in dict.fromkeys(name for part in parts for name in part):
            weighted = [
                (part[name].detach(), share)
                for part, share in zip(parts, shares, strict=True)
                if name in part
            ]
            means[name] = torch.stack([value * share for value, share in weighted]).sum() / sum(
                share for _, share in weighted
            )
        return means

    carry = {
        name: processes.gather(torch.cat([outcome.carry[name].detach() for outcome in outcomes]))
        for name in outcomes[0].carry
    }
    return Outcome(
        mean([outcome.terms for outcome in outcomes]),
        mean([outcome.notes for outcome in outcomes]),
        carry,
    )
