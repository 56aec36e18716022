"""Several experts on one trunk: RIDE's networks (Wang et al., ICLR 2021)."""

from __future__ import annotations

from collections.abc import Iterable

import torch
from torch import Tensor, nn

from longtail.errors import LongtailError
from longtail.nn import fast_cnn, resnet_cifar


class Experts(nn.Module):
    """Early layers that all experts share, and later ones of their own; their features stand side
    by
    side.

    `longtail.nn.CosineExperts` is the head for them: it gives each expert a classifier and averages
    the logits.

    >>> experts = Experts(nn.Identity(), [nn.Linear(4, 2) for _ in range(3)])
    >>> experts(torch.zeros(5, 4)).shape
    torch.Size([5, 6])
    """

    def __init__(self, trunk: nn.Module, branches: Iterable[nn.Module]) -> None:
        super().__init__()
        self.trunk, self.branches = trunk, nn.ModuleList(branches)

    def forward(self, image: Tensor) -> Tensor:
        """Features (N, experts * dim)."""
        shared = self.trunk(image)
        return torch.cat([branch(shared) for branch in self.branches], 1)


def resnet32_experts(
    size: int, *, experts: int = 3, width: int = 16, slim: float = 0.75
) -> nn.Module:
    """ResNet-32 whose last two stages exist once for each expert, `slim` times as wide: 24 and 48
    channels in RIDE.
    """
    two, four = _slimmed(experts, slim, 2 * width, 4 * width)
    whole = resnet_cifar.CifarResNet(5, width)
    trunk = nn.Sequential(whole.stem, *whole.stages[:5])
    branches = [_resnet_branch(width, two, four) for _ in range(experts)]
    return Experts(trunk, branches)


def fast_cnn_experts(
    size: int, *, experts: int = 3, width: int = 32, slim: float = 0.75
) -> nn.Module:
    """The fast CNN whose last two blocks exist once for each expert, `slim` times as wide."""
    (four,) = _slimmed(experts, slim, 4 * width)
    whole = fast_cnn.FastCNN(size, width=width)
    trunk = nn.Sequential(whole.border, whole.stem, whole.blocks[0])
    branches = [
        nn.Sequential(
            fast_cnn.Block(width, four),
            fast_cnn.Block(four, four),
            nn.AdaptiveMaxPool2d(1),
            nn.Flatten(),
        )
        for _ in range(experts)
    ]
    return Experts(trunk, branches)


def _slimmed(experts: int, slim: float, *widths: int) -> list[int]:
    if experts < 2:
        raise LongtailError(
            f"expected at least two experts, got {experts}: one alone is the plain network"
        )
    if not 0 < slim <= 1:
        raise LongtailError(
            f"expected experts of a width in (0, 1] of the plain network's, got slim {slim}"
        )
    return [max(1, round(slim * width)) for width in widths]


def _resnet_branch(width: int, two: int, four: int) -> nn.Module:
    blocks: list[nn.Module] = []
    for before, after in ((width, two), (two, four)):
        blocks += [
            resnet_cifar.Block(before, after, stride=2),
            *(resnet_cifar.Block(after, after, stride=1) for _ in range(4)),
        ]
    branch = nn.Sequential(*blocks, nn.AdaptiveAvgPool2d(1), nn.Flatten())
    resnet_cifar.initialise(branch)
    return branch
