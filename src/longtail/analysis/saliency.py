"""Where any network looks: the one way that suits it."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from longtail.analysis.gradcam import grad_cam, last_map
from longtail.analysis.transformers import answering, attention_maps, rollout, transformer_of
from longtail.errors import LongtailError
from longtail.nn.experts import Experts


def saliency_map(network: nn.Module, image: Tensor, *, answer: Tensor) -> tuple[Tensor | None, str]:
    """Maps (N, H, W) of at least 0, and what they are; None and the reason for a network that has
    none.

    Attention rollout to the tokens that answer, where a vision transformer answers with tokens;
    Grad-CAM for the answer elsewhere."""
    # A deployed network may be a new module around trained ones, and modules begin in training mode
    network.eval()
    device = next(network.parameters()).device
    try:
        transformer = transformer_of(network)
    except LongtailError:
        transformer = None
    try:
        if transformer is None:
            experts = next((own for own in network.modules() if isinstance(own, Experts)), None)
            # What all of them look at
            layer = last_map(network, image[:1].to(device)) if experts is None else experts.trunk
            _check_channels_first(network, layer, image[:1].to(device))
        elif transformer.global_pool == "token":
            tokens = answering(transformer)
            # Attention is large
            parts = [attention_maps(network, part.to(device)) for part in image.split(4)]
            return (
                torch.cat(
                    [rollout(own.attention, prefix=own.prefix)[:, :tokens].mean(1) for own in parts]
                ).cpu(),
                "attention rollout",
            )
        else:
            layer = transformer.blocks[-1].norm1
        prefix = None if transformer is None else transformer.num_prefix_tokens
        return (
            grad_cam(
                network, image.to(device), target=answer.to(device), layer=layer, prefix=prefix
            ).cpu(),
            "Grad-CAM",
        )
    except LongtailError as error:
        return None, f"no maps: {error}"


def _check_channels_first(network: nn.Module, layer: nn.Module, image: Tensor) -> None:
    shapes: list[torch.Size] = []
    handle = layer.register_forward_hook(lambda module, inputs, output: shapes.append(output.shape))
    try:
        with torch.no_grad():
            network(image)
    finally:
        handle.remove()
    if shapes[0][2] != shapes[0][3]:  # images are square
        raise LongtailError(
            f"expected maps (N, C, H, W) for Grad-CAM, got {tuple(shapes[0])} from this network"
        )
