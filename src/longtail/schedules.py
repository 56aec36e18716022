"""Functions of the clock: learning-rate schedules, and parts that start or stop during training.

Epochs are given as fractions of training: a warmup of 40 of 800 epochs is 0.05.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from torch import Tensor, nn

from longtail.core import BatchTransform, Clock
from longtail.errors import LongtailError


def _fraction(name: str, value: float) -> None:
    if not 0.0 <= value <= 1.0:
        raise LongtailError(
            f"{name} must be a fraction of training in [0, 1], got {value}: for epoch e of E, pass"
            " e / E"
        )


@dataclass(frozen=True)
class Cosine:
    """Linear warmup from `start`, then half a cosine down to `floor`, as factors of the base lr.

    >>> schedule = Cosine(warmup=0.5)
    >>> [round(schedule(Clock(step, 8, 0, 1)), 3) for step in (0, 2, 4, 6)]
    [0.0, 0.5, 1.0, 0.5]
    """

    warmup: float = 0.0
    start: float = 0.0
    floor: float = 0.0

    def __post_init__(self) -> None:
        _fraction("warmup", self.warmup)

    def __call__(self, clock: Clock) -> float:
        if clock.progress < self.warmup:
            return self.start + (1 - self.start) * clock.progress / self.warmup
        position = (clock.progress - self.warmup) / max(1 - self.warmup, 1e-12)
        return self.floor + (1 - self.floor) * 0.5 * (1 + math.cos(math.pi * position))


@dataclass(frozen=True)
class InversePower:
    """The lr falls as (1 + decay * progress) ** -power (Ganin & Lempitsky 2015).

    Published as (1 + 0.0002 i) ** -0.75 for step i: `decay` is 4 for 20,000 steps.

    >>> schedule = InversePower(4.0)
    >>> [round(schedule(Clock(step, 8, 0, 1)), 3) for step in (0, 4)]
    [1.0, 0.439]
    """

    decay: float
    power: float = 0.75

    def __post_init__(self) -> None:
        if self.decay < 0:
            raise LongtailError(f"decay must be at least 0, got {self.decay}")

    def __call__(self, clock: Clock) -> float:
        return float((1 + self.decay * clock.progress) ** -self.power)


@dataclass(frozen=True)
class Sigmoid:
    """Rises from 0 towards `limit` as limit * (2 / (1 + exp(-speed * progress)) - 1).

    The factor of reversed gradients: published with exp(-i / 1000) for step i, which is a speed of
    20 for 20,000 steps.

    >>> factor = Sigmoid(0.1, speed=20.0)
    >>> [round(factor(Clock(step, 8, 0, 1)), 3) for step in (0, 1, 4)]
    [0.0, 0.085, 0.1]
    """

    limit: float
    speed: float

    def __call__(self, clock: Clock) -> float:
        return self.limit * (2 / (1 + math.exp(-self.speed * clock.progress)) - 1)


@dataclass(frozen=True)
class Steps:
    """Linear warmup from `start`, then the lr drops to `factors[i]` of the base lr at `at[i]`.

    LDAM's 200 epochs (warmup 5, x0.01 after 160, x0.0001 after 180):

    >>> schedule = Steps(at=(0.8, 0.9), factors=(1e-2, 1e-4), warmup=0.025)
    >>> [schedule(Clock(epoch, 200, epoch, 200)) for epoch in (5, 100, 160, 180)]
    [1.0, 1.0, 0.01, 0.0001]
    """

    at: Sequence[float]
    factors: Sequence[float]
    warmup: float = 0.0
    start: float = 0.0

    def __post_init__(self) -> None:
        if len(self.at) != len(self.factors):
            raise LongtailError(
                f"expected one factor for each point in `at`, got {len(self.at)} points and"
                f" {len(self.factors)} factors"
            )
        if list(self.at) != sorted(self.at):
            raise LongtailError(f"the points in `at` must increase, got {list(self.at)}")
        for point in (*self.at, self.warmup):
            _fraction("a point", point)

    def __call__(self, clock: Clock) -> float:
        if clock.progress < self.warmup:
            return self.start + (1 - self.start) * clock.progress / self.warmup
        passed = [
            factor
            for point, factor in zip(self.at, self.factors, strict=True)
            if clock.progress >= point
        ]
        return passed[-1] if passed else 1.0


@dataclass(frozen=True)
class Until:
    """Apply a batch transform only before `end` (DeiT-LT stops mixup when re-weighting starts)."""

    end: float
    transform: BatchTransform

    def __post_init__(self) -> None:
        _fraction("end", self.end)

    def __call__(self, batch: Any, clock: Clock) -> Any:
        return self.transform(batch, clock) if clock.progress < self.end else batch


class Deferred(nn.Module):
    """Class weights that apply from `start` of training on (deferred re-weighting); none before.

    >>> import torch
    >>> weights = Deferred(torch.tensor([0.5, 1.5]), start=0.8)
    >>> weights(Clock(7, 10, 0, 1)) is None, weights(Clock(8, 10, 0, 1)).tolist()
    (True, [0.5, 1.5])
    """

    weights: Tensor

    def __init__(self, weights: Tensor, start: float) -> None:
        super().__init__()
        _fraction("start", start)
        self.register_buffer("weights", weights, persistent=False)
        self.start = start

    def forward(self, clock: Clock) -> Tensor | None:
        return self.weights if clock.progress >= self.start else None
