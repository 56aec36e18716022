"""Optimizers that can be combined, as in `sam(clipped(sgd(lr=0.1), norm=1.0), rho=0.8)`.

Each is a function from a method to its optimizer; fit calls it once the method is on its device.
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
    """Group trainable parameters by weight decay and learning rate.

    Each group has an `lr_scale`, a factor of the learning rate: `sgd`, `adamw` and `from_timm`
    below apply it, and `Run` does for other optimizers.

    Args:
        method: the module to train.
        weight_decay: of all parameters but norms, biases and `undecayed` ones.
        scales: `lr_scale` of submodules by name, such as {"neck": 0.1}.
        layer_decay: with d, the last of n blocks has the scale d, the first d ** n, the embedding
            d ** (n + 1) and what follows the blocks 1 (LiVT, BEiT).
        undecayed: names of further parameters without weight decay.
    """
    if not weight_decay >= 0:
        raise LongtailError(f"expected a weight decay of 0 or more, got {weight_decay}")
    if not 0 < layer_decay <= 1:
        raise LongtailError(
            f"expected a layer decay in (0, 1], got {layer_decay}: 1 gives all layers the same"
            " learning rate"
        )
    named = [(name, p) for name, p in method.named_parameters() if p.requires_grad]
    if not named:
        raise LongtailError(
            "the method has no trainable parameter: unfreeze at least one (requires_grad)"
        )
    scales = scales or {}
    for prefix in scales:
        if not any(_within(name, prefix) for name, _ in named):
            known = sorted({name.partition(".")[0] for name, _ in named})
            raise LongtailError(
                f"`scales` names {prefix!r}, which is no trainable submodule: known are"
                f" {', '.join(known)}"
            )
    depth = 1 + max((_block(name) for name, _ in named), default=-1)
    if layer_decay != 1 and not (
        depth
        and any(re.search(r"(?:^|\.)patch_embed\.", name) for name, _ in method.named_parameters())
    ):
        raise LongtailError(
            f"layer decay needs a vision transformer, got {layer_decay} for another network:"
            " leave it"
            " at 1"
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


def with_lr(groups: list[dict[str, Any]], lr: float) -> list[dict[str, Any]]:
    """Replace each group's `lr_scale` by its `lr`, so that any training loop or scheduler works."""
    return [{"lr": lr * group.pop("lr_scale"), **group} for group in groups]


def _within(name: str, part: str) -> bool:
    return f"{name}.".startswith(f"{part}.")


def _block(name: str) -> int:
    match = re.search(r"(?:^|\.)blocks\.(\d+)\.", name)
    return int(match.group(1)) if match else -1


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
    """Stochastic gradient descent with momentum.

    Args:
        lr: the learning rate before the schedule.
        momentum: of the gradient.
        nesterov: whether to use Nesterov momentum.
        weight_decay: of all parameters but norms, biases and tokens.
        scales: factors of `lr` for submodules, such as {"neck": 0.1}.
    """

    def build(method: nn.Module) -> Optimizer:
        groups = with_lr(parameter_groups(method, weight_decay, scales=scales), lr)
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
    """AdamW, with layer-wise learning-rate decay for transformers.

    Args:
        lr: the learning rate before the schedule.
        betas: decay rates of the running averages of the gradient and its square.
        weight_decay: of all parameters but norms, biases and `undecayed` ones.
        scales: factors of `lr` for submodules, such as {"neck": 0.1}.
        layer_decay: see `parameter_groups`.
        undecayed: names of further parameters without weight decay.
    """

    def build(method: nn.Module) -> Optimizer:
        groups = parameter_groups(
            method, weight_decay, scales=scales, layer_decay=layer_decay, undecayed=undecayed
        )
        return torch.optim.AdamW(with_lr(groups, lr), lr, betas=betas)

    return build


class Lars(Optimizer):
    """SGD with momentum whose step for each weight matrix is as long as the matrix is large.

    LARS (You et al. 2017) as MoCo v3 has it: g = gradient + decay * w, scaled by
    trust * |w| / |g|; vectors (norms, biases) are neither scaled nor decayed.

    Args:
        params: Parameters, or groups of them.
        lr: The learning rate.
        momentum: Of the scaled gradient.
        weight_decay: Of matrices and filters.
        trust: Length of a step as a share of the length of the weights.
    """

    def __init__(
        self,
        params: Any,
        lr: float,
        *,
        momentum: float = 0.9,
        weight_decay: float = 0.0,
        trust: float = 0.001,
    ) -> None:
        defaults = {"lr": lr, "momentum": momentum, "weight_decay": weight_decay, "trust": trust}
        super().__init__(params, defaults)

    @torch.no_grad()
    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        outcome = None
        if closure is not None:
            with torch.enable_grad():
                outcome = closure()
        for group in self.param_groups:
            for p in group["params"]:
                if p.grad is None:
                    continue
                update = p.grad
                if p.ndim > 1:
                    update = update.add(p, alpha=group["weight_decay"])
                    ratio = group["trust"] * p.norm() / update.norm()
                    # A weight or a gradient of zero gives no ratio.
                    update = update * torch.where(ratio.isfinite() & (ratio > 0), ratio, 1.0)
                state = self.state[p]
                if "momentum" not in state:
                    state["momentum"] = torch.zeros_like(p)
                state["momentum"].mul_(group["momentum"]).add_(update)
                p.sub_(group["lr"] * state["momentum"])
        return outcome


def lars(
    *,
    lr: float,
    momentum: float = 0.9,
    weight_decay: float = 1e-6,
    trust: float = 0.001,
    scales: Mapping[str, float] | None = None,
) -> Build:
    """LARS, for batches of thousands of images.

    Args:
        lr: the learning rate before the schedule.
        momentum: of the scaled gradient.
        weight_decay: of all parameters but norms, biases and tokens.
        trust: length of a step as a share of the length of the weights.
        scales: factors of `lr` for submodules, such as {"neck": 0.1}.
    """

    def build(method: nn.Module) -> Optimizer:
        groups = with_lr(parameter_groups(method, weight_decay, scales=scales), lr)
        return Lars(groups, lr, momentum=momentum, trust=trust)

    return build


def from_timm(
    name: str, *, lr: float, weight_decay: float = 0.0, layer_decay: float = 1.0, **keywords: Any
) -> Build:
    """Any optimizer of timm by its name, such as "lamb".

    Args:
        name: as in `timm.optim.list_optimizers()`.
        lr: the learning rate before the schedule.
        weight_decay: of all parameters but norms, biases and tokens.
        layer_decay: see `parameter_groups`.
        keywords: of the optimizer.
    """

    def build(method: nn.Module) -> Optimizer:
        from timm.optim import create_optimizer_v2

        groups = with_lr(parameter_groups(method, weight_decay, layer_decay=layer_decay), lr)
        optimizer: Optimizer = create_optimizer_v2(groups, opt=name, lr=lr, **keywords)
        return optimizer

    return build


class Wrapper(Optimizer):
    """Wraps an optimizer: groups, state and checkpoints are those of the inner optimizer."""

    def __init__(self, inner: Optimizer) -> None:
        # Not Optimizer.__init__: it would copy the groups, which must be shared with `inner`.
        self.inner = inner
        self.defaults = inner.defaults

    # Optimizer's version would copy groups and state, and wrap `step` again for every instance.
    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)

    def __getattr__(self, name: str) -> Any:  # everything else, such as hooks
        if name == "inner":  # read while a copy is being made, before it has attributes
            raise AttributeError(name)
        return getattr(self.inner, name)

    @property
    def param_groups(self) -> list[dict[str, Any]]:  # type: ignore[override]
        return self.inner.param_groups

    @property
    def state(self) -> Any:  # type: ignore[override]
        return self.inner.state

    def parameters(self) -> list[Tensor]:
        """Every parameter that has a gradient."""
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
        raise LongtailError(f"the norm to clip to must be positive, got {norm}")

    def wrap(method: nn.Module) -> Optimizer:
        return Clipped(build(method), norm)

    return wrap


class ResetAt(Wrapper):
    """Forgets momentum and running averages before one step, as if the optimizer were new.

    The number of steps so far is in the first parameter group, so that a checkpoint has it.
    """

    def __init__(self, inner: Optimizer, at: int) -> None:
        super().__init__(inner)
        self.at = at
        self.param_groups[0].setdefault("steps_done", 0)

    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        first = self.param_groups[0]
        if first["steps_done"] == self.at:
            self.inner.state.clear()
        first["steps_done"] += 1
        return self.inner.step(closure) if closure else self.inner.step()


def reset_at(build: Build, *, step: int) -> Build:
    """Reset the state of an optimizer before a step, counted from 0."""

    def wrap(method: nn.Module) -> Optimizer:
        return ResetAt(build(method), step)

    return wrap
