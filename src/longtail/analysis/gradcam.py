"""Where a network looks (Grad-CAM, Selvaraju et al., ICCV 2017)."""

from __future__ import annotations

import math
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from longtail.errors import LongtailError


def grad_cam(
    network: nn.Module,
    image: Tensor,
    *,
    target: Tensor | None = None,
    layer: nn.Module | None = None,
    prefix: int | None = None,
) -> Tensor:
    """How much each place of a layer's map speaks for a class: maps (N, H, W) of at least 0
    (Selvaraju
    et al. 2017, equations 1-2).

    The class is `target` (N,), or what the network answers; the layer is the last one with a map,
    unless given. Transformers have tokens instead of maps: give a layer whose patch tokens still
    matter, such as `network.body.blocks[-1].norm1`, and how many tokens stand before the patches
    (`prefix`; as few as leave a square unless given).

    >>> network = nn.Sequential(nn.Conv2d(3, 4, 3, padding=1), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(4, 2))
    >>> grad_cam(network, torch.rand(5, 3, 8, 8), target=torch.zeros(5, dtype=torch.long)).shape
    torch.Size([5, 8, 8])
    """
    layer = last_map(network, image[:1]) if layer is None else layer
    seen: list[Tensor] = []

    def cut(module: nn.Module, inputs: Any, output: Tensor) -> Tensor:
        # The graph begins here, so that it exists in a frozen network, and so that nothing below is
        # differentiated.
        seen.append(output.detach().requires_grad_())
        return seen[-1].clone()  # the next layer may work in place

    training = network.training
    handle = layer.register_forward_hook(cut)
    try:
        with torch.enable_grad():
            logits = network.eval()(image)
    finally:
        handle.remove()
        network.train(training)
    if len(seen) != 1:
        raise LongtailError(
            f"expected a layer that is used once, got one used {len(seen)} times: pass another as"
            " `layer`"
        )
    chosen = logits.argmax(1) if target is None else target
    (gradient,) = torch.autograd.grad(logits.gather(1, chosen[:, None]).sum(), seen[0])
    values, gradient = _as_maps(seen[0].detach(), prefix), _as_maps(gradient, prefix)
    return F.relu((gradient.mean((2, 3), keepdim=True) * values).sum(1))


def _as_maps(tokens: Tensor, prefix: int | None) -> Tensor:
    """Maps (N, C, H, W) as they are; tokens (N, T, C) without those in front as a square of
    patches.
    """
    if tokens.ndim == 4:
        return tokens
    if tokens.ndim != 3:
        raise LongtailError(
            "expected a layer that gives maps (N, C, H, W) or tokens (N, T, C), got"
            f" {tuple(tokens.shape)}"
        )
    side = math.isqrt(tokens.shape[1] - (prefix or 0))
    return tokens[:, -side * side :].transpose(1, 2).reshape(len(tokens), -1, side, side)


def last_map(network: nn.Module, image: Tensor) -> nn.Module:
    """The layer that is the last to give a map of more than one place."""
    found: list[nn.Module] = []

    def look(module: nn.Module, inputs: Any, output: Any) -> None:
        if isinstance(output, Tensor) and output.ndim == 4 and min(output.shape[2:]) > 1:
            found.append(module)

    handles = [module.register_forward_hook(look) for module in network.modules()]
    training = network.training
    try:
        with torch.no_grad():
            network.eval()(image)
    finally:
        network.train(training)
        for handle in handles:
            handle.remove()
    if not found:
        raise LongtailError(
            "expected a network with maps (N, C, H, W), got none: pass `layer`, such as"
            " network.body.blocks[-1].norm1 of a ViT"
        )
    return found[-1]


def enlarged(maps: Tensor, size: int) -> Tensor:
    """Maps (N, H, W) as pictures (N, size, size) in [0, 1], each by its own maximum.

    >>> enlarged(torch.tensor([[[0.0, 2.0], [0.0, 2.0]]]), 4)[0, 0].tolist()
    [0.0, 0.25, 0.75, 1.0]
    """
    large = F.interpolate(maps[:, None], size=(size, size), mode="bilinear", align_corners=False)[
        :, 0
    ]
    return large / large.amax((1, 2), keepdim=True).clamp_min(torch.finfo(large.dtype).tiny)
