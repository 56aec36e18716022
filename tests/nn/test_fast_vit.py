"""The hybrid transformer: its grid, its tokens, its spec, and masking before its stem."""

from typing import Any

import pytest
import torch

from longtail.errors import LongtailError
from longtail.nn import build
from longtail.nn.fast_vit import MeanTokens, Stem
from longtail.nn.mae import MaskedAutoencoder, initialise, to_images, to_patches

SMALL: dict[str, Any] = {"name": "fast_vit", "width": 24, "depth": 2, "heads": 2}


@pytest.mark.parametrize(
    ("size", "grid", "patch"), [(8, 4, 2), (16, 4, 4), (32, 4, 8), (48, 6, 8), (64, 8, 8)]
)
def test_the_grid_grows_with_the_image(size: int, grid: int, patch: int) -> None:
    stem = Stem(img_size=size, embed_dim=6)
    assert stem.grid_size == (grid, grid)
    assert stem.patch_size == (patch, patch)
    assert stem(torch.rand(2, 3, size, size)).shape == (2, grid * grid, 6)


def test_it_has_the_parameters_that_it_says() -> None:
    network = build({"name": "fast_vit", "pool": "tokens"})
    assert 1.55e6 < sum(p.numel() for p in network.parameters()) < 1.65e6
    assert network.dim == 2 * 192


def test_each_head_reads_its_token_and_the_mean_of_the_patches() -> None:
    network: Any = build({**SMALL, "size": 16, "pool": "tokens"}).eval()
    body: Any = network.body
    assert type(network.body) is MeanTokens
    image = torch.rand(3, 3, 16, 16)
    tokens = body.transformer.forward_features(network.normalize(image))
    for position, features in enumerate(network(image).chunk(2, 1)):
        for row in range(3):
            mean = sum(tokens[row, 2 + place] for place in range(16)) / 16
            torch.testing.assert_close(features[row], tokens[row, position] + mean)
    plain: Any = build({**SMALL, "size": 16}).eval()
    tokens = plain.body.forward_features(plain.normalize(image))
    torch.testing.assert_close(plain(image), tokens[:, 0] + tokens[:, 1:].mean(1))


def test_its_spec_rebuilds_it() -> None:
    for pool in ("token", "tokens", "avg", "avg_norm"):
        network: Any = build({**SMALL, "size": 16, "pool": pool}).eval()
        other = build(network.spec).eval()
        other.load_state_dict(network.state_dict())
        image = torch.rand(2, 3, 16, 16)
        assert torch.equal(network(image), other(image))


def test_hidden_pixels_do_not_reach_the_encoder() -> None:
    torch.manual_seed(0)
    network: Any = initialise(build({**SMALL, "size": 32, "pool": "avg"})).eval()
    autoencoder = MaskedAutoencoder(network, ratio=0.75, width=8, depth=1, heads=2)
    image = torch.rand(2, 3, 32, 32)
    torch.manual_seed(1)
    tokens, masked = autoencoder.encode(network.normalize(image))
    assert tokens.shape == (2, 1 + 4, 24)
    assert masked.hidden.sum(1).tolist() == [12, 12]
    pixels = to_patches(image, 8).clone()
    pixels[masked.hidden] = 0.123
    torch.manual_seed(1)
    repeated, same = autoencoder.encode(network.normalize(to_images(pixels, 8)))
    assert torch.equal(masked.hidden, same.hidden)
    torch.testing.assert_close(tokens, repeated)
    # and the visible ones do
    pixels[~masked.hidden] = 0.5
    torch.manual_seed(1)
    assert not torch.allclose(
        tokens, autoencoder.encode(network.normalize(to_images(pixels, 8)))[0]
    )
    autoencoder.train()
    autoencoder(image).loss.backward()
    assert all(p.grad is not None for p in autoencoder.parameters() if p.requires_grad)


def test_a_patch_is_refused() -> None:
    with pytest.raises(LongtailError, match="--patch 4 has no effect with fast_vit"):
        build({**SMALL, "size": 32, "patch": 4})
