"""Averages of weights over training: of trainable parameters and batch-norm buffers, judged beside the raw weights."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from longtail.core import Clock
from longtail.errors import LongtailError


def averaged_tensors(method: nn.Module) -> dict[str, Tensor]:
    """The live tensors that an average follows, by their name in the method's state dict."""
    names = {name: p.data for name, p in method.named_parameters() if p.requires_grad}
    trained = {name.rpartition(".")[0] for name in names}
    for prefix, module in method.named_modules():
        # A frozen network's statistics never move; following them would only cost time. A norm without weights may be anywhere.
        if isinstance(module, _BatchNorm) and (prefix in trained or not module.affine):
            names |= {
                f"{prefix}.{key}": buffer
                for key, buffer in module.named_buffers(recurse=False)
                if buffer.is_floating_point()
            }
    return names


class _Average:
    def __init__(self) -> None:
        self._mean: dict[str, Tensor] = {}

    def _pair(self, method: nn.Module) -> tuple[list[Tensor], list[Tensor]]:
        """The means and what they follow, found anew at each step: a method may be moved, converted or unfrozen in between."""
        live = averaged_tensors(method)
        for name, tensor in live.items():
            mean = self._mean.get(name)
            self._mean[name] = tensor.clone() if mean is None else mean.to(tensor)
        return [self._mean[name] for name in live], list(live.values())

    def weights(self) -> Mapping[str, Tensor]:
        """The average, by name; empty before it has begun."""
        return self._mean

    def state_dict(self) -> dict[str, Any]:
        return {"mean": self._mean}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self._mean = {name: mean.clone() for name, mean in state["mean"].items()}


class EMA(_Average):
    """An exponential moving average, with the decay warmed up as (1 + t) / (10 + t) for step t.

    >>> model, average = nn.Linear(2, 1), EMA(0.999)
    >>> average.update(model, Clock(step=0, steps=100, epoch=0, epochs=1))  # after each step of an optimizer
    >>> with temporary_weights(model, average.weights()):
    ...     answer = model(torch.ones(1, 2))  # of the average; the model has its own weights back afterwards
    """

    def __init__(self, decay: float) -> None:
        super().__init__()
        if not 0.0 < decay < 1.0:
            raise LongtailError(f"expected a decay in (0, 1), got {decay}")
        self.decay = decay

    @torch.no_grad()
    def update(self, method: nn.Module, clock: Clock) -> None:
        """Move a little towards the current weights."""
        mean, live = self._pair(method)
        torch._foreach_lerp_(mean, live, 1 - min(self.decay, (1 + clock.step) / (10 + clock.step)))


class Uniform(_Average):
    """The plain mean of the weights after every step between two points of training (SWA; SWAD's dense average)."""

    def __init__(self, *, start: float = 0.5, end: float = 1.0) -> None:
        super().__init__()
        if not 0.0 <= start < end <= 1.0:
            raise LongtailError(
                f"expected 0 <= start < end <= 1 as fractions of training, got start {start} and end {end}"
            )
        self.start, self.end, self.seen = start, end, 0

    @torch.no_grad()
    def update(self, method: nn.Module, clock: Clock) -> None:
        """Count the current weights in."""
        if self.start <= clock.progress < self.end:
            mean, live = self._pair(method)
            self.seen += 1
            torch._foreach_lerp_(mean, live, 1 / self.seen)

    def state_dict(self) -> dict[str, Any]:
        return {**super().state_dict(), "seen": self.seen}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        super().load_state_dict(state)
        self.seen = int(state["seen"])


@contextlib.contextmanager
def temporary_weights(method: nn.Module, weights: Mapping[str, Tensor]) -> Iterator[None]:
    """Let a method use other weights for a while, then give it its own back."""
    own = {name: tensor.clone() for name, tensor in method.state_dict().items() if name in weights}
    load_partial(method, weights)
    try:
        yield
    finally:
        load_partial(method, own)


@torch.no_grad()
def load_partial(method: nn.Module, weights: Mapping[str, Tensor]) -> None:
    """Copy weights by name into a method, leaving the rest as it is."""
    live = method.state_dict()
    for name, tensor in weights.items():
        live[name].copy_(tensor)
