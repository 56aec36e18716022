"""Sharpness-aware minimisation as an optimizer: two passes over one batch, one step."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import torch
from torch import nn
from torch.nn.modules.batchnorm import _BatchNorm
from torch.optim import Optimizer

from longtail.engine.optim import Build, Wrapper
from longtail.errors import LongtailError


@contextlib.contextmanager
def _restore_batch_statistics(method: nn.Module) -> Iterator[None]:
    norms = [m for m in method.modules() if isinstance(m, _BatchNorm) and m.track_running_stats]
    saved = [[buffer.clone() for buffer in m.buffers(recurse=False)] for m in norms]
    try:
        yield
    finally:
        for m, buffers in zip(norms, saved, strict=True):
            for buffer, previous in zip(m.buffers(recurse=False), buffers, strict=True):
                buffer.copy_(previous)


class SAM(Wrapper):
    """Steps with the gradient at w + rho * g / |g|, and returns the outcome at w.

    Foret et al. 2021, algorithm 1. Weights are restored from clones: w + e - e is not w in floating
    point, and processes would drift apart. Batch-norm statistics change in the first pass only. The
    closure clears the gradient, computes the loss and calls `backward`; in your training loop, seed
    it if both passes should draw the same dropout masks.

    A radius that changes is a mapping from shares of training to the radius from there on. The
    share of training that is done is `progress` of the first parameter group, as our loop sets it.
    """

    def __init__(
        self, inner: Optimizer, method: nn.Module, rho: float | Mapping[float, float]
    ) -> None:
        super().__init__(inner)
        self.method, self.rho = method, rho

    def radius(self) -> float:
        """The radius of the next step."""
        if not isinstance(self.rho, Mapping):
            return self.rho
        progress = self.param_groups[0].get("progress")
        if progress is None:
            raise LongtailError(
                "a radius of SAM that changes needs the share of training that is done: set"
                ' optimizer.param_groups[0]["progress"] before each step'
            )
        return self.rho[max(share for share in self.rho if share <= progress)]

    @torch.no_grad()
    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        if closure is None:
            raise LongtailError(
                "SAM computes the gradient twice and needs a closure: pass one that clears the"
                " gradient, computes the loss and calls backward to step"
            )
        with torch.enable_grad():
            outcome = closure()
        parameters = self.parameters()
        gradients = [p.grad for p in parameters if p.grad is not None]
        norm = torch.stack(torch._foreach_norm(gradients)).norm()
        saved = [p.clone() for p in parameters]
        torch._foreach_add_(
            parameters, torch._foreach_mul(gradients, self.radius() / (norm + 1e-12))
        )
        try:
            with torch.enable_grad(), _restore_batch_statistics(self.method):
                closure()
        finally:  # also if the second pass fails and the caller continues
            torch._foreach_copy_(parameters, saved)
        self.inner.step()
        return outcome


def sam(build: Build, *, rho: float | Mapping[float, float]) -> Build:
    """Seek flat minima: wrap any optimizer with sharpness-aware minimisation of radius `rho`.

    Args:
        build: the optimizer.
        rho: the radius; or a mapping from shares of training to the radius from there on, such as
            {0.0: 0.05, 0.1: 0.5}, which has a radius for 0.
    """
    radii = list(rho.values()) if isinstance(rho, Mapping) else [rho]
    if not radii or min(radii) <= 0:
        raise LongtailError(f"rho must be positive, got {rho}")
    if isinstance(rho, Mapping) and min(rho) != 0:
        raise LongtailError(f"rho needs a radius from the start of training, 0, on, got {rho}")

    def wrap(method: nn.Module) -> Optimizer:
        return SAM(build(method), method, rho)

    return wrap
