"""A map for every kind of network, or the reason why there is none."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn

from longtail.analysis import saliency_map
from longtail.nn import Classifier, Linear, build
from longtail.nn.experts import Experts


def classifier(name: str, **keywords: Any) -> nn.Module:
    torch.manual_seed(0)
    network = build({"name": name, "size": 32, **keywords})
    # In training mode, as deployed networks may be
    return Classifier(network.eval(), Linear(network.dim, 10))


@pytest.mark.parametrize(
    ("network", "kind"),
    [
        ({"name": "resnet32"}, "Grad-CAM"),
        ({"name": "fast_cnn"}, "Grad-CAM"),
        ({"name": "fast_cnn_experts"}, "Grad-CAM"),
        ({"name": "vit_mini", "depth": 2, "width": 16}, "attention rollout"),
        ({"name": "vit_mini", "depth": 2, "width": 16, "pool": "avg"}, "Grad-CAM"),
        ({"name": "vit_mini", "depth": 2, "width": 16, "pool": "avg_norm"}, "Grad-CAM"),
        ({"name": "timm:resnet10t"}, "Grad-CAM"),
        ({"name": "timm:test_vit"}, "attention rollout"),
    ],
)
def test_every_kind_of_network_has_a_saliency_map(network: dict[str, Any], kind: str) -> None:
    made = classifier(**network).requires_grad_(False)
    before = {name: value.clone() for name, value in made.state_dict().items()}
    maps, used = saliency_map(made, torch.rand(5, 3, 32, 32), target=torch.arange(5))
    assert used == kind
    assert maps is not None
    assert maps.shape[0] == 5
    assert maps.ndim == 3
    assert maps.shape[1] == maps.shape[2] > 1
    assert bool(torch.isfinite(maps).all())
    assert float(maps.min()) >= 0
    assert all(torch.equal(value, before[name]) for name, value in made.state_dict().items())
    assert not [
        module for module in made.modules() if module._forward_hooks or module._forward_pre_hooks
    ]


def test_experts_share_a_saliency_map() -> None:
    made = classifier("fast_cnn_experts", experts=2)
    image, label = torch.rand(2, 3, 32, 32), torch.zeros(2, dtype=torch.long)
    before, _ = saliency_map(made, image, target=label)
    experts: Any = next(module for module in made.modules() if isinstance(module, Experts))
    with torch.no_grad():
        for weight in experts.branches[0].parameters():
            weight.zero_()
    after, _ = saliency_map(made, image, target=label)
    assert before is not None
    assert after is not None
    assert not torch.allclose(before, after)  # the first expert counts, not only the last


class Flat(nn.Module):
    """No map anywhere."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(3, 10)

    def forward(self, image: Tensor) -> Tensor:
        logits: Tensor = self.linear(image.mean((2, 3)))
        return logits


class Last(nn.Module):
    """Maps with the channels last, as Swin has them."""

    def __init__(self) -> None:
        super().__init__()
        self.mix, self.linear = nn.Linear(3, 6), nn.Linear(6, 10)

    def forward(self, image: Tensor) -> Tensor:
        logits: Tensor = self.linear(self.mix(image.permute(0, 2, 3, 1)).mean((1, 2)))
        return logits


@pytest.mark.parametrize(
    ("network", "reason"), [(Flat(), "has no feature maps"), (Last(), "from this network")]
)
def test_a_network_without_maps_says_why(network: nn.Module, reason: str) -> None:
    maps, kind = saliency_map(
        network, torch.rand(2, 3, 8, 8), target=torch.zeros(2, dtype=torch.long)
    )
    assert maps is None
    assert kind.startswith("no maps: ")
    assert reason in kind
