from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

from longtail.analysis import enlarged, grad_cam
from longtail.analysis.gradcam import last_map
from longtail.nn import Classifier, Linear, Network, build


def classifier(name: str = "resnet32", **more: object) -> Classifier:
    torch.manual_seed(0)
    network = build({"name": name, "size": 16, **more})
    return Classifier(network, Linear(network.dim, 5)).eval()


def body(network: Classifier) -> nn.Module:
    assert isinstance(network.network, Network)
    return network.network.body  # type: ignore[return-value]


def slow(head: nn.Linear, maps: Tensor, target: int) -> Tensor:
    """For a global mean and a linear head the gradient is known: w_c / (H W) at every place."""
    count, channels, height, width = maps.shape
    out = torch.zeros(count, height, width)
    for i in range(count):
        for c in range(channels):
            out[i] += head.weight[target, c].item() / (height * width) * maps[i, c]
    return out.clamp_min(0)


def test_a_network_that_ends_in_a_mean_has_a_known_map() -> None:
    network = classifier(width=4)
    image = torch.rand(3, 3, 16, 16)
    complete = body(network)
    with torch.no_grad():
        maps = complete.stages(complete.stem(network.network.normalize(image)))  # type: ignore[operator]
    everything = []
    for target in range(5):
        result = grad_cam(network, image, target=torch.full((3,), target))
        assert result.shape == (3, 4, 4)
        assert torch.allclose(result, slow(network.head, maps, target), atol=1e-6)  # type: ignore[arg-type]
        everything.append(result)
    assert torch.stack(everything).any()


def test_it_explains_the_prediction_unless_given_a_class_and_changes_no_weight() -> None:
    network, image = classifier("fast_cnn", width=8), torch.rand(4, 3, 16, 16)
    network.train().requires_grad_(False)
    before = {name: tensor.clone() for name, tensor in network.state_dict().items()}
    predicted = network.eval()(image).argmax(1)
    network.train()
    assert torch.equal(grad_cam(network, image), grad_cam(network, image, target=predicted))
    assert network.training
    assert all(torch.equal(tensor, before[name]) for name, tensor in network.state_dict().items())
    assert not network.network._forward_hooks


def test_rows_do_not_depend_on_their_neighbours() -> None:
    network, image = classifier(width=4), torch.rand(3, 3, 16, 16)
    alone = torch.cat([grad_cam(network, row[None]) for row in image])
    assert torch.allclose(grad_cam(network, image), alone, atol=1e-6)


def test_the_last_map_is_the_default_and_transformers_name_a_layer() -> None:
    network = classifier(width=4)
    assert last_map(network, torch.rand(1, 3, 16, 16)) is body(network).stages
    vit = classifier("vit_mini", patch=4, width=16, depth=2)
    with pytest.raises(ValueError, match="must return maps"):
        grad_cam(vit, torch.rand(2, 3, 16, 16), layer=vit.head)
    layer = body(vit).blocks[-1].norm1  # type: ignore[index, union-attr]
    assert grad_cam(vit, torch.rand(2, 3, 16, 16), layer=layer).shape == (2, 4, 4)


class NineTokens(nn.Module):
    """Four patches behind five other tokens, as in a small transformer with registers."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Identity()

    def forward(self, image: Tensor) -> Tensor:
        """The mean of the patches as logits."""
        return self.layer(image.flatten(2).transpose(1, 2))[:, 5:].mean(1)  # type: ignore[no-any-return]


def test_tokens_before_the_patches_are_no_places() -> None:
    network, image = NineTokens(), torch.rand(2, 3, 3, 3)
    result = grad_cam(network, image, target=torch.tensor([0, 2]), layer=network.layer, prefix=5)
    patches = image.flatten(2)[:, :, 5:].unflatten(2, (2, 2))
    assert torch.allclose(result, torch.stack([patches[0, 0], patches[1, 2]]) / 4)


def test_a_network_without_maps_is_refused() -> None:
    with pytest.raises(ValueError, match="the network has no feature maps"):
        grad_cam(nn.Sequential(nn.Flatten(), nn.Linear(12, 2)), torch.rand(1, 3, 2, 2))


def test_a_layer_used_twice_is_refused() -> None:
    shared = nn.Conv2d(3, 3, 1)
    network = nn.Sequential(shared, shared, nn.AdaptiveAvgPool2d(1), nn.Flatten())
    with pytest.raises(ValueError, match="called 2 times"):
        grad_cam(network, torch.rand(1, 3, 4, 4), layer=shared)


def test_maps_reach_from_zero_to_one() -> None:
    maps = enlarged(torch.stack([torch.arange(4.0).view(2, 2), torch.zeros(2, 2)]), 8)
    assert maps.shape == (2, 8, 8)
    assert maps[0].max() == 1
    assert not maps[1].any()


@pytest.mark.parametrize("name", ["resnet32", "fast_cnn"])
def test_it_equals_captum(name: str) -> None:
    attr = pytest.importorskip("captum.attr")
    network, image, target = (
        classifier(name, width=8),
        torch.rand(3, 3, 16, 16),
        torch.tensor([0, 3, 1]),
    )
    layer = last_map(network, image[:1])
    theirs = attr.LayerGradCam(network, layer).attribute(
        image, target=target, relu_attributions=True
    )[:, 0]
    assert torch.allclose(grad_cam(network, image, target=target), theirs, atol=1e-6)
