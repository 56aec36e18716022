"""Networks with several experts on a shared trunk (RIDE, Wang et al., ICLR 2021)."""

from __future__ import annotations

from collections.abc import Iterable

import torch
from torch import Tensor, nn

from longtail.errors import LongtailError
from longtail.nn import fast_cnn, resnet, resnet_cifar


class Experts(nn.Module):
    """A trunk that all experts share, and one branch per expert; their features are concatenated.

    `longtail.nn.CosineExperts` is the head for them: it has a classifier for each expert and
    averages the logits.

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
    """ResNet-32 with the last two stages repeated for each expert, `slim` times as wide.

    RIDE has 24 and 48 channels.
    """
    two, four = _slimmed(experts, slim, 2 * width, 4 * width)
    full = resnet_cifar.CifarResNet(5, width)
    trunk = nn.Sequential(full.stem, *full.stages[:5])
    branches = [_resnet_branch(width, two, four) for _ in range(experts)]
    return Experts(trunk, branches)


def fast_cnn_experts(
    size: int, *, experts: int = 3, width: int = 32, slim: float = 0.75
) -> nn.Module:
    """The fast CNN with the last two blocks repeated for each expert, `slim` times as wide."""
    (four,) = _slimmed(experts, slim, 4 * width)
    full = fast_cnn.FastCNN(size, width=width)
    trunk = nn.Sequential(full.border, full.stem, full.blocks[0])
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


def resnet10_experts(size: int, *, experts: int = 3, slim: float = 0.75) -> nn.Module:
    """ResNet-10 with the last two stages repeated for each expert, as RIDE's for ImageNet-LT.

    RIDE has 192 and 384 channels there.
    """
    return _large_experts("resnet10", experts, slim)


def resnet50_experts(size: int, *, experts: int = 3, slim: float = 0.75) -> nn.Module:
    """ResNet-50 with the last two stages repeated for each expert, as RIDE's for large images."""
    return _large_experts("resnet50", experts, slim)


def _large_experts(name: str, experts: int, slim: float) -> Experts:
    channels = (64, 128, *_slimmed(experts, slim, 256, 512))
    full = [resnet.resnet(name, channels=channels) for _ in range(experts)]
    stem = (full[0].conv1, full[0].bn1, full[0].act1, full[0].maxpool)
    trunk = nn.Sequential(*stem, full[0].layer1, full[0].layer2)
    branches = [nn.Sequential(net.layer3, net.layer4, net.global_pool) for net in full]
    return Experts(trunk, branches)


def _slimmed(experts: int, slim: float, *widths: int) -> list[int]:
    if experts < 2:
        raise LongtailError(
            f"expected at least two experts, got {experts}: use the plain network for one"
        )
    if not 0 < slim <= 1:
        raise LongtailError(
            f"slim, the relative width of the experts, must be in (0, 1], got {slim}"
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
