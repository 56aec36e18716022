"""The ResNet for 32-pixel images that the long-tailed literature uses."""

from __future__ import annotations

import torch.nn.functional as F
from torch import Tensor, nn


class Block(nn.Module):
    """Two 3x3 convolutions and a shortcut without parameters (He et al. 2016, option A)."""

    def __init__(self, before: int, after: int, *, stride: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(before, after, 3, stride, 1, bias=False)
        self.norm1 = nn.BatchNorm2d(after)
        self.conv2 = nn.Conv2d(after, after, 3, 1, 1, bias=False)
        self.norm2 = nn.BatchNorm2d(after)
        self.stride, self.new = stride, after - before

    def shortcut(self, x: Tensor) -> Tensor:
        """Subsample by the stride, and pad with channels of zeros on both sides."""
        if self.stride == 1 and self.new == 0:
            return x
        return F.pad(
            x[:, :, :: self.stride, :: self.stride],
            (0, 0, 0, 0, self.new // 2, self.new - self.new // 2),
        )

    def forward(self, x: Tensor) -> Tensor:
        """Features at 1 / stride of the height and width."""
        inner = F.relu(self.norm1(self.conv1(x)))
        return F.relu(self.norm2(self.conv2(inner)) + self.shortcut(x))


class CifarResNet(nn.Module):
    """A ResNet of three stages and 6 * blocks + 2 layers (He et al. 2016, section 4.2).

    >>> import torch
    >>> CifarResNet(blocks=1)(torch.zeros(2, 3, 32, 32)).shape
    torch.Size([2, 64])
    """

    def __init__(self, blocks: int = 5, width: int = 16) -> None:
        super().__init__()
        self.stem = nn.Sequential(
            nn.Conv2d(3, width, 3, 1, 1, bias=False), nn.BatchNorm2d(width), nn.ReLU()
        )
        stages: list[nn.Module] = []
        for before, after, stride in (
            (width, width, 1),
            (width, 2 * width, 2),
            (2 * width, 4 * width, 2),
        ):
            stages += [
                Block(before, after, stride=stride),
                *(Block(after, after, stride=1) for _ in range(blocks - 1)),
            ]
        self.stages = nn.Sequential(*stages)
        initialise(self)

    def forward(self, image: Tensor) -> Tensor:
        """Features (N, 4 * width)."""
        return self.stages(self.stem(image)).mean((2, 3))  # type: ignore[no-any-return]


def initialise(network: nn.Module) -> None:
    """Initialise the weights of all convolutions as in He et al. (2015)."""
    for module in network.modules():
        if isinstance(module, nn.Conv2d):
            nn.init.kaiming_normal_(module.weight)


def resnet32(size: int, *, width: int = 16) -> nn.Module:
    """ResNet-32 as in LDAM, Balanced Softmax and RIDE: five blocks a stage."""
    return CifarResNet(5, width)
