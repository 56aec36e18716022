"""Optimizers as parts: `sam(clipped(sgd(lr=0.1), norm=1.0), rho=0.8)` is called by fit once the
method is placed.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from longtail.errors import LongtailError

Build = Callable[[nn.Module], Optimizer]

TOKENS = ("pos_embed", "cls_token", "dist_token", "reg_token")


def parameter_groups(
    method: nn.Module,
    weight_decay: float,
    *,
    scales: Mapping[str, float] | None = None,
    layer_decay: float = 1.0,
    undecayed: Sequence[str] = TOKENS,
) -> list[dict[str, Any]]:
    """Group trainable parameters by decay and rate: no decay for norms, biases and tokens;
    `lr_scale`
    says the rest.

    `lr_scale` is a share of the rate: `sgd`, `adamw` and `from_timm` below make it one, and `Run`
    does for optimizers of your own. `scales` names submodules, such as {"neck": 0.1}. With
    `layer_decay` d, the last of n blocks has the rate d, the first d ** n, the embedding d ** (n +
    1) and what follows the blocks 1 (LiVT, BEiT)."""
    if not weight_decay >= 0:
        raise LongtailError(f"expected a weight decay of 0 or more, got {weight_decay}")
    if not 0 < layer_decay <= 1:
        raise LongtailError(
            f"expected a decay of rates over layers in (0, 1], got {layer_decay}: 1 is one rate"
            " for all"
        )
    named = [(name, p) for name, p in method.named_parameters() if p.requires_grad]
    if not named:
        raise LongtailError(
            "expected a method with something to train, got no parameter that requires a gradient"
        )
    scales = scales or {}
    for prefix in scales:
        if not any(_within(name, prefix) for name, _ in named):
            known = sorted({name.partition(".")[0] for name, _ in named})
            raise LongtailError(
                f"expected a trainable part of the method in `scales`, got {prefix!r}: known are"
                f" {', '.join(known)}"
            )
    depth = 1 + max((_block(name) for name, _ in named), default=-1)
    if layer_decay != 1 and not (
        depth
        and any(re.search(r"(?:^|\.)patch_embed\.", name) for name, _ in method.named_parameters())
    ):
        raise LongtailError(
            f"expected a vision transformer for a decay of rates over layers, got {layer_decay} for"
            " something else: leave it at 1"
        )
    groups: dict[tuple[float, float], dict[str, Any]] = {}
    for name, p in named:
        decay = 0.0 if p.ndim <= 1 or name.rpartition(".")[2] in undecayed else weight_decay
        scale = layer_decay ** (depth + 1 - _layer(name, depth))
        scale *= next((s for prefix, s in scales.items() if _within(name, prefix)), 1.0)
        group = groups.setdefault(
            (decay, scale), {"params": [], "weight_decay": decay, "lr_scale": scale}
        )
        group["params"].append(p)
    return list(groups.values())


def _rated(groups: list[dict[str, Any]], lr: float) -> list[dict[str, Any]]:
    """Groups with a rate of their own in the place of a share of it, so that any loop and scheduler
    trains them as meant.
    """
    return [{"lr": lr * group.pop("lr_scale"), **group} for group in groups]


def _within(name: str, part: str) -> bool:
    return f"{name}.".startswith(f"{part}.")


def _block(name: str) -> int:
    found = re.search(r"(?:^|\.)blocks\.(\d+)\.", name)
    return int(found.group(1)) if found else -1


def _layer(name: str, depth: int) -> int:
    if _block(name) >= 0:
        return _block(name) + 1
    embedding = re.search(
        r"(?:^|\.)(patch_embed\.|norm_pre\.|pos_embed$|cls_token$|dist_token$|reg_token$)", name
    )
    return 0 if embedding else depth + 1


def sgd(
    *,
    lr: float,
    momentum: float = 0.9,
    nesterov: bool = True,
    weight_decay: float = 5e-4,
    scales: Mapping[str, float] | None = None,
) -> Build:
    """Stochastic gradient descent with momentum."""

    def build(method: nn.Module) -> Optimizer:
        groups = _rated(parameter_groups(method, weight_decay, scales=scales), lr)
        return torch.optim.SGD(groups, lr, momentum=momentum, nesterov=nesterov)

    return build


def adamw(
    *,
    lr: float,
    betas: tuple[float, float] = (0.9, 0.999),
    weight_decay: float = 0.05,
    scales: Mapping[str, float] | None = None,
    layer_decay: float = 1.0,
    undecayed: Sequence[str] = TOKENS,
) -> Build:
    """AdamW, with layer-wise rate decay for transformers."""

    def build(method: nn.Module) -> Optimizer:
        groups = parameter_groups(
            method, weight_decay, scales=scales, layer_decay=layer_decay, undecayed=undecayed
        )
        return torch.optim.AdamW(_rated(groups, lr), lr, betas=betas)

    return build


def from_timm(
    name: str, *, lr: float, weight_decay: float = 0.0, layer_decay: float = 1.0, **keywords: Any
) -> Build:
    """Any optimizer that timm knows by name, such as "lamb"."""

    def build(method: nn.Module) -> Optimizer:
        from timm.optim import create_optimizer_v2

        groups = _rated(parameter_groups(method, weight_decay, layer_decay=layer_decay), lr)
        optimizer: Optimizer = create_optimizer_v2(groups, opt=name, lr=lr, **keywords)
        return optimizer

    return build


class Wrapper(Optimizer):
    """An optimizer around another one: groups, state and checkpoints are the inner one's."""

    def __init__(self, inner: Optimizer) -> None:
        # Not Optimizer.__init__: it would copy the groups, which must stay shared with the inner
        # optimizer.
        self.inner = inner
        self.defaults = inner.defaults

    # Optimizer's own would copy groups and state, and wrap `step` of this class anew for every
    # instance.
    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)

    def __getattr__(self, name: str) -> Any:  # of what is not here, such as hooks
        if name == "inner":  # asked for by a copy that is not filled yet
            raise AttributeError(name)
        return getattr(self.inner, name)

    @property
    def param_groups(self) -> list[dict[str, Any]]:  # type: ignore[override]
        return self.inner.param_groups

    @property
    def state(self) -> Any:  # type: ignore[override]
        return self.inner.state

    def parameters(self) -> list[Tensor]:
        """Every parameter that has a gradient now."""
        return [p for group in self.param_groups for p in group["params"] if p.grad is not None]

    def zero_grad(self, set_to_none: bool = True) -> None:
        self.inner.zero_grad(set_to_none)

    def state_dict(self) -> dict[str, Any]:
        return self.inner.state_dict()

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        self.inner.load_state_dict(state_dict)


class Clipped(Wrapper):
    """Clips the gradient's global norm before every step."""

    def __init__(self, inner: Optimizer, norm: float) -> None:
        super().__init__(inner)
        self.norm = norm

    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        outcome = closure() if closure else None
        nn.utils.clip_grad_norm_(self.parameters(), self.norm)
        self.inner.step()
        return outcome


def clipped(build: Build, *, norm: float) -> Build:
    """Clip the gradient's global norm to `norm` before every step."""
    if norm <= 0:
        raise LongtailError(f"expected a positive norm to clip to, got {norm}")

    def wrap(method: nn.Module) -> Optimizer:
        return Clipped(build(method), norm)

    return wrap
