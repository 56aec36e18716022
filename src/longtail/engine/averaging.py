"""Averages of weights over training, evaluated along with the current weights.

They cover trainable parameters and batch-norm buffers.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from longtail.core import Average, Clock
from longtail.errors import LongtailError


def averaged_tensors(method: nn.Module) -> dict[str, Tensor]:
    """The tensors of a method that are averaged, by their name in its state dict."""
    names = {name: p.data for name, p in method.named_parameters() if p.requires_grad}
    trained = {name.rpartition(".")[0] for name in names}
    for prefix, module in method.named_modules():
        # The statistics of a frozen network never change; averaging them would only cost time.
        # A norm without weights is always averaged.
        if isinstance(module, _BatchNorm) and (prefix in trained or not module.affine):
            names |= {
                f"{prefix}.{key}": buffer
                for key, buffer in module.named_buffers(recurse=False)
                if buffer.is_floating_point()
            }
    return names


def _move(mean: dict[str, Tensor], method: nn.Module, weight: float) -> None:
    """Move a mean towards the method's tensors.

    They are looked up at each step: a method may be moved, converted or unfrozen between steps.
    """
    live = averaged_tensors(method)
    for name, tensor in live.items():
        mean[name] = mean[name].to(tensor) if name in mean else tensor.clone()
    torch._foreach_lerp_([mean[name] for name in live], list(live.values()), weight)


class _Average(Average):
    """The mean of each tensor, by name, and its state."""

    def __init__(self) -> None:
        self._mean: dict[str, Tensor] = {}

    def weights(self) -> Mapping[str, Tensor]:
        """The average by name; empty before the first update."""
        return self._mean

    def state_dict(self) -> dict[str, Any]:
        return {"mean": self._mean}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self._mean = {name: mean.clone() for name, mean in state["mean"].items()}


class EMA(_Average):
    """An exponential moving average, with the decay warmed up as (1 + t) / (10 + t) for step t.

    >>> model, average = nn.Linear(2, 1), EMA(0.999)
    >>> average.update(model, Clock(0, 100, 0, 1))  # after each optimizer step
    >>> with temporary_weights(model, average.weights()):
    ...     prediction = model(torch.ones(1, 2))  # with the averaged weights
    """

    def __init__(self, decay: float) -> None:
        super().__init__()
        if not 0.0 < decay < 1.0:
            raise LongtailError(f"expected a decay in (0, 1), got {decay}")
        self.decay = decay

    @torch.no_grad()
    def update(self, method: nn.Module, clock: Clock) -> None:
        """Move the average towards the current weights."""
        _move(self._mean, method, 1 - min(self.decay, (1 + clock.step) / (10 + clock.step)))


class Uniform(_Average):
    """The plain mean of the weights after every step between two points of training (SWA)."""

    def __init__(self, *, start: float = 0.5, end: float = 1.0) -> None:
        super().__init__()
        if not 0.0 <= start < end <= 1.0:
            raise LongtailError(
                f"expected 0 <= start < end <= 1 as fractions of training, got start {start} and"
                f" end {end}"
            )
        self.start, self.end, self.seen = start, end, 0

    @torch.no_grad()
    def update(self, method: nn.Module, clock: Clock) -> None:
        """Add the current weights to the mean."""
        if self.start <= clock.progress < self.end:
            self.seen += 1
            _move(self._mean, method, 1 / self.seen)

    def state_dict(self) -> dict[str, Any]:
        return {**super().state_dict(), "seen": self.seen}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        super().load_state_dict(state)
        self.seen = int(state["seen"])


class LossValley(_Average):
    """SWAD: the mean of the weights after every step while the validation loss is in its valley.

    The steps between two evaluations are a segment, which has its mean and the loss at its end. The
    valley starts with the first segment whose loss is not undercut by the `n_converge - 1` segments
    after it. It ends before the first `n_tolerance` segments in a row that all have a loss above `1
    + tolerance_ratio` times the mean loss of those `n_converge`. The average is the mean of the
    valley's segments; before the valley starts, it is the last segment. Training itself continues.

    Cha et al. 2021 (SWAD), algorithm 1 and the released code, which may count the first segment
    several times where the loss converges within the first `n_tolerance` evaluations; here each
    segment counts once. Evaluate often: the paper does every 100 to 200 steps.

    Args:
        metric: the evaluation to read, such as "val/loss"; lower is better.
        n_converge: evaluations by which the loss has to have stopped falling (N_s in the paper).
        n_tolerance: evaluations above the threshold that end the valley (N_e).
        tolerance_ratio: how far above the loss at convergence the threshold is (r = 1.3 is 0.3).
    """

    def __init__(
        self,
        metric: str = "val/loss",
        *,
        n_converge: int = 3,
        n_tolerance: int = 6,
        tolerance_ratio: float = 0.3,
    ) -> None:
        super().__init__()
        if n_converge < 1 or n_tolerance < 1 or tolerance_ratio < 0:
            raise LongtailError(
                "expected n_converge and n_tolerance of at least 1 and a tolerance_ratio of at "
                f"least 0, got {n_converge}, {n_tolerance} and {tolerance_ratio}"
            )
        self.metric, self.n_converge, self.n_tolerance = metric, n_converge, n_tolerance
        self.tolerance_ratio = tolerance_ratio
        self.threshold: float | None = None  # None: the valley has not started
        self.ended = False
        self._segment: dict[str, Tensor] = {}
        self._steps = 0  # in this segment
        self._losses: list[float] = []  # of the segments that are not in the valley's mean yet
        self._segments: list[dict[str, Tensor]] = []  # on the CPU to save device memory
        self._valley: dict[str, Tensor] = {}  # the mean of the counted segments
        self._counted = 0

    @torch.no_grad()
    def update(self, method: nn.Module, clock: Clock) -> None:
        """Add the current weights to the segment."""
        if not self.ended:
            self._steps += 1
            _move(self._segment, method, 1 / self._steps)

    @torch.no_grad()
    def observe(self, results: Mapping[str, float], clock: Clock) -> None:
        """End the segment, and check whether the valley starts or ends."""
        if self.ended or not self._steps:
            return
        if self.metric not in results:
            raise LongtailError(
                f"the loss-valley average reads {self.metric!r}, but the evaluations are: "
                f"{', '.join(results)}. Add an evaluator that gives it to the stage"
            )
        self._losses.append(results[self.metric])
        self._segments.append({name: tensor.cpu() for name, tensor in self._segment.items()})
        self._segment, self._steps = {}, 0
        if self.threshold is None:
            self._drop_oldest(len(self._losses) - self.n_converge)
            if len(self._losses) < self.n_converge or min(self._losses) < self._losses[0]:
                self._mean = {name: t.clone() for name, t in self._segments[-1].items()}
                return
            self.threshold = (1 + self.tolerance_ratio) * sum(self._losses) / self.n_converge
        # A segment counts once it is clear that the valley did not end there.
        while not self.ended and len(self._losses) >= self.n_tolerance:
            if self._counted and min(self._losses[: self.n_tolerance]) > self.threshold:
                self.ended = True
                self._drop_oldest(len(self._losses))
            else:
                self._counted += 1
                _count(self._valley, self._segments[0], self._counted)
                self._drop_oldest(1)
        self._mean = {name: tensor.clone() for name, tensor in self._valley.items()}
        # If training ended now, the remaining segments would count by the losses known so far.
        for i, segment in enumerate(self._segments):
            if min(self._losses[i:]) > self.threshold:
                break
            _count(self._mean, segment, self._counted + i + 1)

    def _drop_oldest(self, count: int) -> None:
        """Drop the `count` oldest segments."""
        if count > 0:
            del self._losses[:count], self._segments[:count]

    def state_dict(self) -> dict[str, Any]:
        return {
            **super().state_dict(),
            "threshold": self.threshold,
            "ended": self.ended,
            "segment": self._segment,
            "steps": self._steps,
            "losses": self._losses,
            "segments": self._segments,
            "valley": self._valley,
            "counted": self._counted,
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        super().load_state_dict(state)
        self.threshold, self.ended = state["threshold"], bool(state["ended"])
        self._steps, self._counted = int(state["steps"]), int(state["counted"])
        self._losses = list(state["losses"])
        self._segment, self._valley, *self._segments = (
            {name: tensor.clone() for name, tensor in tensors.items()}
            for tensors in (state["segment"], state["valley"], *state["segments"])
        )


def _count(mean: dict[str, Tensor], segment: Mapping[str, Tensor], count: int) -> None:
    """Add a segment to a mean of `count` segments, including this one."""
    for name, tensor in segment.items():
        mean[name] = tensor.clone() if count == 1 else mean[name].lerp(tensor, 1 / count)


@contextlib.contextmanager
def temporary_weights(method: nn.Module, weights: Mapping[str, Tensor]) -> Iterator[None]:
    """Use other weights inside the context, and restore the method's weights after it."""
    saved = {
        name: tensor.clone() for name, tensor in method.state_dict().items() if name in weights
    }
    load_partial(method, weights)
    try:
        yield
    finally:
        load_partial(method, saved)


@torch.no_grad()
def load_partial(method: nn.Module, weights: Mapping[str, Tensor]) -> None:
    """Copy weights by name into a method, leaving the rest as it is."""
    live = method.state_dict()
    for name, tensor in weights.items():
        live[name].copy_(tensor)
