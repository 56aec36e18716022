"""Saliency maps of any network, by the method that suits it."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from longtail.analysis.gradcam import grad_cam, last_map
from longtail.analysis.transformers import attention_maps, head_tokens, rollout, transformer_of
from longtail.deprecated import renamed_keywords
from longtail.errors import LongtailError
from longtail.nn.experts import Experts


@renamed_keywords(answer="target")
def saliency_map(network: nn.Module, image: Tensor, *, target: Tensor) -> tuple[Tensor | None, str]:
    """Non-negative maps (N, H, W) and the name of the method; None and the reason if impossible.

    Vision transformers that classify with tokens use attention rollout to these tokens; other
    networks use Grad-CAM for the class `target` (N,).
    """
    # A deployed network may be a new module around trained ones, and new modules are in train mode
    network.eval()
    device = next(network.parameters()).device
    try:
        transformer = transformer_of(network)
    except LongtailError:
        transformer = None
    try:
        if transformer is None:
            experts = next((part for part in network.modules() if isinstance(part, Experts)), None)
            # The shared trunk
            layer = last_map(network, image[:1].to(device)) if experts is None else experts.trunk
            _check_channels_first(network, layer, image[:1].to(device))
        elif transformer.global_pool == "token":
            tokens = head_tokens(transformer)
            # Few images at once: attention is large
            batches = [attention_maps(network, part.to(device)) for part in image.split(4)]
            return (
                torch.cat(
                    [
                        rollout(one.attention, prefix=one.prefix)[:, :tokens].mean(1)
                        for one in batches
                    ]
                ).cpu(),
                "attention rollout",
            )
        else:
            layer = transformer.blocks[-1].norm1
        prefix = None if transformer is None else transformer.num_prefix_tokens
        return (
            grad_cam(
                network, image.to(device), target=target.to(device), layer=layer, prefix=prefix
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
            f"Grad-CAM needs feature maps (N, C, H, W), got {tuple(shapes[0])} from this network"
        )
