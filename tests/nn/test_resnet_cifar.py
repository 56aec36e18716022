import torch
from torch import nn

from longtail.nn.resnet_cifar import Block, CifarResNet, resnet32


def test_it_has_thirty_two_layers_with_the_head() -> None:
    assert sum(isinstance(m, nn.Conv2d) for m in resnet32(32).modules()) == 31


def test_the_shortcut_takes_every_second_pixel_and_adds_zero_channels() -> None:
    x = torch.rand(1, 2, 4, 4)
    out = Block(2, 4, stride=2).shortcut(x)
    assert torch.equal(out[:, 1:3], x[:, :, ::2, ::2])
    assert not out[:, [0, 3]].any()


def test_convolutions_start_at_the_kaiming_deviation() -> None:
    torch.manual_seed(0)
    last = [m for m in CifarResNet().modules() if isinstance(m, nn.Conv2d)][-1]
    assert abs(last.weight.std().item() / (2 / (64 * 9)) ** 0.5 - 1) < 0.02
