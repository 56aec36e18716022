"""The nouns of the house: batches, the clock, an outcome, a method, a stage."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import reduce
from operator import add
from typing import Any, Generic, Protocol, TypedDict, TypeVar

from torch import Tensor, nn
from torch.optim import Optimizer

from longtail.errors import LongtailError
from longtail.records.predictions import SplitPredictions
from longtail.records.scores import Label


class Images(TypedDict):
    """Images as floats in [0, 1], with each row's position in the epoch's order (`position`)."""

    image: Tensor
    position: Tensor


class Labelled(Images):
    """Images with class indices (N,) or, after mixing, class distributions (N, C)."""

    target: Tensor


class Views(TypedDict):
    """Two views of each image."""

    view1: Tensor
    view2: Tensor
    position: Tensor


class LabelledViews(Views):
    """Two views of each image, with class indices."""

    target: Tensor


B = TypeVar("B", bound=Mapping[str, Any])
B_co = TypeVar("B_co", bound=Mapping[str, Any], covariant=True)


@dataclass(frozen=True, slots=True)
class Clock:
    """Where training is. Everything that changes over time is a function of this.

    >>> Clock(step=30, steps=120, epoch=1, epochs=4).progress
    0.25
    """

    step: int
    steps: int
    epoch: int
    epochs: int

    @property
    def progress(self) -> float:
        """The share of training that is behind us, in [0, 1)."""
        return self.step / self.steps


@dataclass(frozen=True, slots=True)
class Outcome:
    """What one look at a batch produced."""

    terms: Mapping[str, Tensor]  # already weighted; the loss is their sum
    notes: Mapping[str, Tensor] = field(default_factory=dict)  # worth plotting, not optimized
    # One row per sample, handed to `after_step`
    carry: Mapping[str, Tensor] = field(default_factory=dict)

    def __post_init__(self) -> None:
        strange = [
            name for name, term in self.terms.items() if not isinstance(term, Tensor) or term.ndim
        ]
        if strange or not self.terms:
            got = (
                "none"
                if not self.terms
                else f"{strange[0]!r}, which is {_shape(self.terms[strange[0]])}"
            )
            raise LongtailError(
                f"expected the terms of a loss as tensors of one number each, got {got}: give the"
                " mean over rows by a name"
            )

    @property
    def loss(self) -> Tensor:
        """The sum of the terms."""
        return reduce(add, self.terms.values())


def _shape(value: object) -> str:
    return (
        f"a tensor {tuple(value.shape)}"
        if isinstance(value, Tensor)
        else f"a {type(value).__name__}"
    )


class NonFinite(RuntimeError):
    """The loss, or an answer, is not a number any more: training diverged."""


class Method(nn.Module, ABC, Generic[B]):
    """A paper: (weights, batch, clock) -> loss. No optimizer, no device, no logging, no files.

    Networks that are trained against each other (a GAN) take turns by the clock: a step's terms
    reach the weights of one player only, and the optimizer skips weights without a gradient.
    Such a method sets `steps_per_round`; its notes and carried rows must be detached.
    """

    steps_per_round: int = 1
    """Steps until every trainable weight has had a gradient; more than 1 where players alternate.
    """

    @abstractmethod
    def forward(self, batch: B, clock: Clock) -> Outcome:
        """Look at a batch. A function of (weights, batch, clock) up to seeded draws; writes no
        state but batch-norm's.
        """

    def after_step(self, outcome: Outcome, clock: Clock) -> None:
        """Move what the optimizer does not: queues, momentum copies. The only place where such
        state may change.
        """

    @abstractmethod
    def predict(self, image: Tensor) -> Tensor:
        """Answer for images, row by row: logits of a classifier, features of a pretrained encoder."""

    def heads(self, image: Tensor) -> Mapping[str, Tensor]:
        """Predictions by name, those of `predict` as "logits".

        A method that combines several heads overrides this to have each of them scored as well.
        """
        return {"logits": self.predict(image)}

    @abstractmethod
    def deploy(self) -> nn.Module:
        """Give the plain network for inference, built from a spec, whose forward equals `predict`."""


class Batches(Protocol[B_co]):
    """The only way the engine reads data. A batch is flat, and its rows are counted by `position`."""

    def __len__(self) -> int:
        """Batches in an epoch."""
        ...

    def epoch(self, index: int, *, start: int = 0) -> Iterator[B_co]:
        """The batches of an epoch, from batch `start` on: the same rows and views whatever came
        before.
        """
        ...


Predict = Callable[[Tensor], Mapping[str, Tensor]]
"""Images in [0, 1] on any device -> float32 answers on the CPU: "logits", and one entry per further
head.
"""


class Evaluator(Protocol):
    """Owns its data; given a way to predict, answers with named numbers."""

    def __call__(self, predict: Predict, /) -> Mapping[str, float]: ...


class Scorer(Protocol):
    """Turns the predictions for a split into named scores: arrays in, numbers out.

    The data decides which scorer applies (`longtail.scoring.scorer.scorer_for`), never the recipe.
    """

    @property
    def headline(self) -> str:
        """The score that ranks runs, and that the best epoch on validation is chosen by."""
        ...

    @property
    def labels(self) -> Mapping[str, Label]:
        """How each score is shown and which direction is better, in the order of a table's columns."""
        ...

    def __call__(self, predictions: SplitPredictions, /) -> Mapping[str, float | None]:
        """Scores by name; None where there is nothing to measure.

        A name such as "domain/sketch" is a part of the score "domain": reports show such parts in a
        table of their own."""
        ...


class Average(Protocol):
    """A running average of a method's trainable parameters and batch-norm buffers."""

    def update(self, method: nn.Module, clock: Clock) -> None:
        """Take the weights into account; called after every step."""
        ...

    def observe(self, results: Mapping[str, float], clock: Clock) -> None:
        """Read the results of an evaluation, such as "val/top1"; most averages ignore them."""
        return

    def weights(self) -> Mapping[str, Tensor]: ...
    def state_dict(self) -> dict[str, Any]: ...
    def load_state_dict(self, state: Mapping[str, Any], /) -> None: ...


Schedule = Callable[[Clock], float]
BatchTransform = Callable[[Any, Clock], Any]
Every = Callable[[Clock], bool]


def constant(clock: Clock) -> float:
    """The base rate, all the time."""
    return 1.0


def nothing(batch: Any, clock: Clock) -> Any:
    """The batch as it came."""
    return batch


def each_epoch(clock: Clock) -> bool:
    """After every epoch. (Asked at the end of an epoch, with the clock of its last step.)"""
    return True


@dataclass(frozen=True, slots=True)
class Keep:
    """Which weights a stage returns, and how the row names them. Use `last`, `best(...)` or
    `average(...)`.
    """

    name: str
    best: str | None = None  # the evaluation that chooses, such as "val/balanced"
    average: str | None = None  # the key of `Stage.averages` to return
    higher_is_better: bool = True  # of the evaluation that chooses


last = Keep("last epoch")


def best(metric: str, *, higher_is_better: bool = True) -> Keep:
    """The weights of the epoch that had the best `metric`, such as "val/balanced": the highest, or
    the lowest.
    """
    return Keep(f"best {metric}", best=metric, higher_is_better=higher_is_better)


def average(name: str) -> Keep:
    """The last epoch's average called `name` in `Stage.averages`."""
    return Keep(f"last epoch, {name}", average=name)


@dataclass(frozen=True, kw_only=True)
class Stage(Generic[B]):
    """One fit: what learns, from what, for how long, and how."""

    name: str
    method: Method[B]
    data: Batches[B]
    epochs: int
    # Called by fit after placement: sam(sgd(lr=0.1), rho=0.8)
    optimizer: Callable[[nn.Module], Optimizer]
    schedule: Schedule = constant  # a factor of each group's rate
    # Mixup, cutmix, teacher labels: outside the closure, so SAM's two looks see one batch
    mix: BatchTransform = nothing
    accumulate: int = 1
    averages: Mapping[str, Average] = field(default_factory=dict)
    evals: Mapping[str, Evaluator] = field(default_factory=dict)
    evaluate: Every = each_epoch
    keep: Keep = last
