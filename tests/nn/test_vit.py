import pytest
import torch

from longtail.nn.vit import vit_mini


@pytest.mark.parametrize(("size", "patch"), [(32, 4), (64, 8), (224, 28), (8, 1), (28, 2), (4, 1)])
def test_the_patch_grows_with_the_image(size: int, patch: int) -> None:
    network = vit_mini(size, width=16, depth=1)
    assert network.patch_embed.patch_size == (patch, patch)  # type: ignore[union-attr]


def test_features_are_the_class_token_after_the_norm() -> None:
    network = vit_mini(8, width=16, depth=1).eval()
    image = torch.rand(2, 3, 8, 8)
    tokens = network.forward_features(image)  # type: ignore[operator]
    assert torch.equal(network(image), tokens[:, 0])
    assert torch.allclose(tokens.mean(-1), torch.zeros(2, 65), atol=1e-5)
