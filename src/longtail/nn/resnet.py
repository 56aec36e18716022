"""ResNets for large images that timm does not have by name: ResNet-10, and experts on a trunk."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from torch import nn

LAYERS = {"resnet10": (1, 1, 1, 1), "resnet50": (3, 4, 6, 3)}


def resnet(name: str, *, channels: Sequence[int] = (64, 128, 256, 512)) -> Any:
    """A ResNet without its classifier: 7x7 stem, max pooling, four stages (He et al. 2016).

    Args:
        name: "resnet10", with one basic block a stage, or "resnet50".
        channels: width of the 3x3 convolutions of each stage.

    >>> import torch
    >>> resnet("resnet10")(torch.zeros(2, 3, 64, 64)).shape
    torch.Size([2, 512])
    """
    # here, because timm takes seconds to import
    from timm.models.resnet import BasicBlock, Bottleneck, ResNet

    block: Any = BasicBlock if name == "resnet10" else Bottleneck
    return ResNet(
        block, LAYERS[name], num_classes=0, channels=tuple(channels), zero_init_last=False
    )


def resnet10(size: int) -> nn.Module:
    """ResNet-10 of the long-tailed literature: 4.9 M parameters; timm's resnet10t is another."""
    body: nn.Module = resnet("resnet10")
    return body
