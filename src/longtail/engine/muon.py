"""Muon: steps along orthogonalised momentum for matrices and filters, AdamW for the rest."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from longtail.engine.optim import TOKENS, Build, parameter_groups, with_lr
from longtail.errors import LongtailError

COEFFICIENTS = (3.4445, -4.7750, 2.0315)  # of Jordan's quintic, which is steepest at 0


def orthogonalise(matrices: Tensor, *, steps: int = 5) -> Tensor:
    """Bring the singular values of matrices (B, R, C), R <= C, near 1 and keep their directions.

    Newton-Schulz iterations with the coefficients of Jordan et al. 2024: singular values end
    between about 0.7 and 1.2. On a CPU in float32, because bfloat16 is not supported by all; on a
    GPU in bfloat16.

    >>> matrix = torch.tensor([[[3.0, 0.0], [0.0, 2.0]]])
    >>> bool((orthogonalise(matrix).diagonal(dim1=1, dim2=2) - 1).abs().max() < 0.35)
    True
    """
    a, b, c = COEFFICIENTS
    x = matrices.to(torch.float32 if matrices.device.type == "cpu" else torch.bfloat16)
    x = x / (x.norm(dim=(1, 2), keepdim=True) + 1e-7)
    for _ in range(steps):
        gram = x @ x.mT
        x = torch.baddbmm(x, torch.baddbmm(gram, gram, gram, beta=b, alpha=c), x, beta=a)
    return x.to(matrices.dtype)


class Muon(Optimizer):
    """Momentum orthogonalised by Newton-Schulz for groups with `muon`, AdamW for the others.

    Jordan et al. 2024. A filter (out, in, height, width) is a matrix (out, in x height x width).
    Steps are scaled by sqrt(max(1, rows / columns)). Matrices of one shape are orthogonalised
    together. Weight decay is decoupled in both.
    """

    def __init__(self, groups: Sequence[dict[str, Any]], lr: float) -> None:
        defaults = {
            "lr": lr,
            "weight_decay": 0.0,
            "muon": False,
            "momentum": 0.95,
            "betas": (0.9, 0.95),
            "eps": 1e-8,
            "steps": 5,
        }
        super().__init__(groups, defaults)

    @torch.no_grad()
    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """Update all parameters that have a gradient."""
        outcome = None
        if closure is not None:
            with torch.enable_grad():
                outcome = closure()
        for group in self.param_groups:
            parameters = [p for p in group["params"] if p.grad is not None]
            if parameters:
                torch._foreach_mul_(parameters, 1 - group["lr"] * group["weight_decay"])
                (self._muon if group["muon"] else self._adamw)(group, parameters)
        return outcome

    def _muon(self, group: Mapping[str, Any], parameters: Sequence[Tensor]) -> None:
        momentum, shapes = group["momentum"], defaultdict(list)
        for p in parameters:
            assert p.grad is not None
            state = self.state[p]
            if not state:
                state["momentum"] = torch.zeros_like(p)
            state["momentum"].lerp_(p.grad, 1 - momentum)
            matrix = p.grad.lerp(state["momentum"], momentum).flatten(1)  # Nesterov
            wide = matrix.shape[0] <= matrix.shape[1]
            shapes[tuple(sorted(matrix.shape))].append((p, matrix if wide else matrix.mT, wide))
        for entries in shapes.values():
            steps = orthogonalise(torch.stack([m for _, m, _ in entries]), steps=group["steps"])
            for (p, _, wide), step in zip(entries, steps, strict=True):
                direction = step if wide else step.mT
                scale = max(1.0, direction.shape[0] / direction.shape[1]) ** 0.5
                p.add_(direction.reshape(p.shape), alpha=-group["lr"] * scale)

    def _adamw(self, group: Mapping[str, Any], parameters: Sequence[Tensor]) -> None:
        first, second = group["betas"]
        for p in parameters:
            assert p.grad is not None
            state = self.state[p]
            if not state:
                state |= {
                    "step": torch.zeros((), dtype=torch.float32),
                    "mean": torch.zeros_like(p),
                    "square": torch.zeros_like(p),
                }
            state["step"] += 1
            step = state["step"].item()
            state["mean"].lerp_(p.grad, 1 - first)
            state["square"].mul_(second).addcmul_(p.grad, p.grad, value=1 - second)
            scale = (1 - second**step) ** 0.5
            p.addcdiv_(
                state["mean"],
                (state["square"].sqrt() / scale).add_(group["eps"]),
                value=-group["lr"] / (1 - first**step),
            )


def muon(
    *,
    lr: float = 0.02,
    adamw_lr: float = 1e-3,
    weight_decay: float = 0.05,
    scales: Mapping[str, float] | None = None,
    layer_decay: float = 1.0,
    heads: Sequence[str] = ("head", "heads"),
) -> Build:
    """Muon for the matrices and filters of a network, AdamW for its head, norms, biases and tokens.

    Args:
        lr: of matrices and filters, before the schedule.
        adamw_lr: of the rest.
        weight_decay: of all parameters but norms, biases and tokens.
        scales: factors of both learning rates for submodules, such as {"neck": 0.1}.
        layer_decay: see `parameter_groups`.
        heads: submodules whose matrices are AdamW's as well.
    """
    if lr <= 0 or adamw_lr <= 0:
        raise LongtailError(f"learning rates must be positive, got {lr} and {adamw_lr}")

    def build(method: nn.Module) -> Optimizer:
        names = {id(p): name for name, p in method.named_parameters()}

        def orthogonal(p: nn.Parameter) -> bool:
            parts = names[id(p)].split(".")
            return p.ndim in (2, 4) and parts[0] not in heads and parts[-1] not in TOKENS

        groups = []
        for group in parameter_groups(method, weight_decay, scales=scales, layer_decay=layer_decay):
            for chosen, rate in ((True, lr), (False, adamw_lr)):
                parameters = [p for p in group["params"] if orthogonal(p) == chosen]
                if parameters:
                    part = {**group, "params": parameters, "muon": chosen}
                    groups += with_lr([part], rate)
        return Muon(groups, lr)

    return build
