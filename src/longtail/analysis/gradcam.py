"""Saliency maps by Grad-CAM (Selvaraju et al., ICCV 2017)."""

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
    """Grad-CAM: how much every position of a feature map supports a class (equations 1-2).

    Args:
        network: Maps images to logits (N, C).
        image: A batch (N, 3, H, W).
        target: Classes (N,); by default the predicted ones.
        layer: By default the last layer with a feature map. For a transformer, pass a layer whose
            patch tokens affect the logits, such as `network.body.blocks[-1].norm1`.
        prefix: The number of tokens before the patches; by default the smallest that leaves a
            square.

    Returns:
        Non-negative maps (N, h, w) at the resolution of the layer.

    >>> pool = [nn.AdaptiveAvgPool2d(1), nn.Flatten()]
    >>> network = nn.Sequential(nn.Conv2d(3, 4, 3, padding=1), nn.ReLU(), *pool, nn.Linear(4, 2))
    >>> grad_cam(network, torch.rand(5, 3, 8, 8), target=torch.zeros(5, dtype=torch.long)).shape
    torch.Size([5, 8, 8])
    """
    layer = last_map(network, image[:1]) if layer is None else layer
    features: list[Tensor] = []

    def cut(module: nn.Module, inputs: Any, output: Tensor) -> Tensor:
        # The graph starts here, so that it exists in a frozen network and stops at this layer.
        features.append(output.detach().requires_grad_())
        return features[-1].clone()  # the next layer may modify it in place

    training = network.training
    handle = layer.register_forward_hook(cut)
    try:
        with torch.enable_grad():
            logits = network.eval()(image)
    finally:
        handle.remove()
        network.train(training)
    if len(features) != 1:
        raise LongtailError(
            f"Grad-CAM needs a layer that is called once, but it was called {len(features)} times:"
            " pass"
            " another `layer`"
        )
    chosen = logits.argmax(1) if target is None else target
    (gradient,) = torch.autograd.grad(logits.gather(1, chosen[:, None]).sum(), features[0])
    values, gradient = _as_maps(features[0].detach(), prefix), _as_maps(gradient, prefix)
    return F.relu((gradient.mean((2, 3), keepdim=True) * values).sum(1))


def _as_maps(tokens: Tensor, prefix: int | None) -> Tensor:
    """Reshape tokens (N, T, C) without the prefix to (N, C, H, W); return maps unchanged."""
    if tokens.ndim == 4:
        return tokens
    if tokens.ndim != 3:
        raise LongtailError(
            f"`layer` must return maps (N, C, H, W) or tokens (N, T, C), got {tuple(tokens.shape)}"
        )
    side = math.isqrt(tokens.shape[1] - (prefix or 0))
    return tokens[:, -side * side :].transpose(1, 2).reshape(len(tokens), -1, side, side)


def last_map(network: nn.Module, image: Tensor) -> nn.Module:
    """The last layer that returns a feature map larger than 1 x 1."""
    layers: list[nn.Module] = []

    def collect(module: nn.Module, inputs: Any, output: Any) -> None:
        if isinstance(output, Tensor) and output.ndim == 4 and min(output.shape[2:]) > 1:
            layers.append(module)

    handles = [module.register_forward_hook(collect) for module in network.modules()]
    training = network.training
    try:
        with torch.no_grad():
            network.eval()(image)
    finally:
        network.train(training)
        for handle in handles:
            handle.remove()
    if not layers:
        raise LongtailError(
            "the network has no feature maps (N, C, H, W): pass `layer`, such as"
            " network.body.blocks[-1].norm1 of a ViT"
        )
    return layers[-1]


def enlarged(maps: Tensor, size: int) -> Tensor:
    """Resize maps (N, H, W) to (N, size, size), each divided by its maximum.

    >>> enlarged(torch.tensor([[[0.0, 2.0], [0.0, 2.0]]]), 4)[0, 0].tolist()
    [0.0, 0.25, 0.75, 1.0]
    """
    large = F.interpolate(maps[:, None], size=(size, size), mode="bilinear", align_corners=False)[
        :, 0
    ]
    return large / large.amax((1, 2), keepdim=True).clamp_min(torch.finfo(large.dtype).tiny)
