"""The shared types: batches, the clock, an outcome, a method, a scorer, a stage."""

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
    """Images as floats in [0, 1]; `position` (N,) is each row's position in the epoch."""

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
    """The current step of training. Everything that changes over time is a function of it.

    >>> Clock(step=30, steps=120, epoch=1, epochs=4).progress
    0.25
    """

    step: int
    steps: int
    epoch: int
    epochs: int

    @property
    def progress(self) -> float:
        """The fraction of training that is done, in [0, 1)."""
        return self.step / self.steps


@dataclass(frozen=True, slots=True)
class Outcome:
    """The result of one forward pass on a batch."""

    terms: Mapping[str, Tensor]  # already weighted: the loss is their sum
    notes: Mapping[str, Tensor] = field(default_factory=dict)  # logged, not optimized
    # One row per sample, passed to `after_step`
    carry: Mapping[str, Tensor] = field(default_factory=dict)

    def __post_init__(self) -> None:
        invalid = [
            name for name, term in self.terms.items() if not isinstance(term, Tensor) or term.ndim
        ]
        if invalid or not self.terms:
            got = (
                "none"
                if not self.terms
                else f"{invalid[0]!r}, which is {_shape(self.terms[invalid[0]])}"
            )
            raise LongtailError(
                f"every loss term must be a scalar tensor, got {got}: return at least one named"
                " term, averaged over the rows"
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
    """The loss or a prediction is not finite: training diverged."""


class Method(nn.Module, ABC, Generic[B]):
    """A training method: (weights, batch, clock) -> loss. No optimizer, device, logging or files.

    Networks that are trained against each other (as in a GAN) alternate by the clock: the terms of
    a step reach the weights of one network only, and the optimizer skips weights without a
    gradient. Such a method sets `steps_per_round`; its notes and carried rows must be detached.
    """

    steps_per_round: int = 1
    """Steps until every trainable weight has had a gradient; more than 1 if networks alternate."""

    @abstractmethod
    def forward(self, batch: B, clock: Clock) -> Outcome:
        """Compute the loss terms of a batch.

        A function of (weights, batch, clock) and seeded random numbers; the only state it may
        change is batch-norm statistics.
        """

    def after_step(self, outcome: Outcome, clock: Clock) -> None:
        """Update state that the optimizer does not, such as queues and momentum copies.

        This is the only place where such state may change.
        """

    @abstractmethod
    def predict(self, image: Tensor) -> Tensor:
        """Predict for images, each row by itself: logits, or features of a pretrained encoder."""

    def heads(self, image: Tensor) -> Mapping[str, Tensor]:
        """Predictions by name, those of `predict` as "logits".

        A method that combines several heads overrides this so that each of them is scored as well.
        """
        return {"logits": self.predict(image)}

    @abstractmethod
    def deploy(self) -> nn.Module:
        """Return the network for inference, built from a spec; its forward equals `predict`."""


class Batches(Protocol[B_co]):
    """How the engine reads data. A batch is a flat mapping; `position` has one entry per row."""

    def __len__(self) -> int:
        """The number of batches in an epoch."""

    def epoch(self, index: int, *, start: int = 0) -> Iterator[B_co]:
        """Iterate over the batches of an epoch from batch `start` on.

        The rows and views depend on `index` alone, not on what was read before.
        """


Predict = Callable[[Tensor], Mapping[str, Tensor]]
"""Images in [0, 1] on any device -> float32 predictions on the CPU: "logits", and one entry for
each further head.
"""


class Evaluator(Protocol):
    """Evaluates a `predict` function on its data and returns named numbers."""

    def __call__(self, predict: Predict, /) -> Mapping[str, float]: ...


class Scorer(Protocol):
    """Turns the predictions for a split into named scores: arrays in, numbers out.

    The data decides which scorer applies (`longtail.scoring.scorer.scorer_for`), never the recipe.
    """

    @property
    def headline(self) -> str:
        """The score that ranks runs and chooses the best epoch on validation."""

    @property
    def labels(self) -> Mapping[str, Label]:
        """How to show each score and which direction is better, in the order of the columns."""

    def __call__(self, predictions: SplitPredictions, /) -> Mapping[str, float | None]:
        """Compute the scores by name; None where a score is not defined.

        A name such as "domain/sketch" is a part of the score "domain": reports show the parts of a
        score in a separate table.
        """


class Average(Protocol):
    """A running average of a method's trainable parameters and batch-norm buffers."""

    def update(self, method: nn.Module, clock: Clock) -> None:
        """Add the current weights; called after every step."""

    def observe(self, results: Mapping[str, float], clock: Clock) -> None:
        """Receive the results of an evaluation, such as "val/top1"; most averages ignore them."""
        return

    def weights(self) -> Mapping[str, Tensor]: ...
    def state_dict(self) -> dict[str, Any]: ...
    def load_state_dict(self, state: Mapping[str, Any], /) -> None: ...


Schedule = Callable[[Clock], float]
BatchTransform = Callable[[Any, Clock], Any]
Every = Callable[[Clock], bool]


def constant(clock: Clock) -> float:
    """Return 1: the base learning rate throughout."""
    return 1.0


def nothing(batch: Any, clock: Clock) -> Any:
    """Return the batch unchanged."""
    return batch


def each_epoch(clock: Clock) -> bool:
    """Evaluate after every epoch; called with the clock of the epoch's last step."""
    return True


@dataclass(frozen=True, slots=True)
class Keep:
    """Which weights a stage returns, and their name in the result row.

    Use `last`, `best(...)` or `average(...)`.
    """

    name: str
    best: str | None = None  # the metric to select by, such as "val/balanced"
    average: str | None = None  # the key of `Stage.averages` to return
    higher_is_better: bool = True  # of that metric


last = Keep("last epoch")


def best(metric: str, *, higher_is_better: bool = True) -> Keep:
    """Keep the weights of the epoch with the best `metric`, such as "val/balanced"."""
    return Keep(f"best {metric}", best=metric, higher_is_better=higher_is_better)


def average(name: str) -> Keep:
    """Keep the average `name` of `Stage.averages`, as it is after the last epoch."""
    return Keep(f"last epoch, {name}", average=name)


@dataclass(frozen=True, kw_only=True)
class Stage(Generic[B]):
    """One training stage: the method, its data, and how to train it."""

    name: str
    method: Method[B]
    data: Batches[B]
    epochs: int
    # Called by fit once the method is on its device, such as sam(sgd(lr=0.1), rho=0.8)
    optimizer: Callable[[nn.Module], Optimizer]
    schedule: Schedule = constant  # a factor of each group's learning rate
    # Mixup, cutmix, teacher labels: outside the closure, so that SAM's two passes get one batch
    mix: BatchTransform = nothing
    accumulate: int = 1
    averages: Mapping[str, Average] = field(default_factory=dict)
    evals: Mapping[str, Evaluator] = field(default_factory=dict)
    evaluate: Every = each_epoch
    keep: Keep = last
