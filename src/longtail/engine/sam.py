"""Sharpness-aware minimisation as an optimizer: two looks at one batch, one step."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import nn
from torch.nn.modules.batchnorm import _BatchNorm
from torch.optim import Optimizer

from longtail.engine.optim import Build, Wrapper
from longtail.errors import LongtailError


@contextlib.contextmanager
def _batch_statistics_kept(method: nn.Module) -> Iterator[None]:
    norms = [m for m in method.modules() if isinstance(m, _BatchNorm) and m.track_running_stats]
    saved = [[buffer.clone() for buffer in m.buffers(recurse=False)] for m in norms]
    try:
        yield
    finally:
        for m, buffers in zip(norms, saved, strict=True):
            for buffer, kept in zip(m.buffers(recurse=False), buffers, strict=True):
                buffer.copy_(kept)


class SAM(Wrapper):
    """Steps with the gradient at w + rho * g / |g| (Foret et al. 2021, algorithm 1) and reports the
    look at w.

    Weights come back from clones, for w + e - e is not w in floating point and processes would
    drift apart; batch-norm statistics move in the first look only. The closure clears the gradient,
    computes the loss and calls `backward`; in a loop of your own, seed it if both looks are to draw
    the same dropout."""

    def __init__(self, inner: Optimizer, method: nn.Module, rho: float) -> None:
        super().__init__(inner)
        self.method, self.rho = method, rho

    @torch.no_grad()
    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        if closure is None:
            raise LongtailError(
                "SAM looks twice at a batch and needs a closure that computes the gradient: pass"
                " one to step"
            )
        with torch.enable_grad():
            clean = closure()
        moved = self.parameters()
        gradients = [p.grad for p in moved if p.grad is not None]
        norm = torch.stack(torch._foreach_norm(gradients)).norm()
        saved = [p.clone() for p in moved]
        torch._foreach_add_(moved, torch._foreach_mul(gradients, self.rho / (norm + 1e-12)))
        try:
            with torch.enable_grad(), _batch_statistics_kept(self.method):
                closure()
        finally:  # also where the second look fails and the caller goes on
            torch._foreach_copy_(moved, saved)
        self.inner.step()
        return clean


def sam(build: Build, *, rho: float) -> Build:
    """Seek flat minima: wrap any optimizer with sharpness-aware minimisation of radius `rho`."""
    if rho <= 0:
        raise LongtailError(f"expected a positive radius rho, got {rho}")

    def wrap(method: nn.Module) -> Optimizer:
        return SAM(build(method), method, rho)

    return wrap
