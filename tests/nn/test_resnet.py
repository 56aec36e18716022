"""ResNet-10 of the long-tailed literature: basic blocks 1-1-1-1 behind a 7x7 stem."""

import torch
from torch import nn
from torchvision.models.resnet import BasicBlock, ResNet

from longtail.nn import build


def test_resnet10_is_torchvisions_resnet_with_one_basic_block_a_stage() -> None:
    network = build({"name": "resnet10", "size": 64}).eval()
    theirs = ResNet(BasicBlock, [1, 1, 1, 1])
    theirs.fc = nn.Identity()
    theirs.eval()
    theirs.load_state_dict(network.body.state_dict())  # type: ignore[union-attr]
    image = torch.rand(2, 3, 64, 64)
    torch.testing.assert_close(network(image), theirs(network.normalize(image)))  # type: ignore[operator]
    assert network.dim == 512
    assert sum(p.numel() for p in network.parameters()) == 4_905_792
    assert network.spec["mean"] == [0.485, 0.456, 0.406], "ImageNet's statistics"


def test_the_last_norm_of_a_block_starts_at_one() -> None:
    body = build({"name": "resnet10", "size": 32}).body
    weights = [m.weight for m in body.modules() if isinstance(m, nn.BatchNorm2d)]  # type: ignore[union-attr]
    assert all((weight == 1).all() for weight in weights)
