import math

import pytest
import torch
from torch import Tensor, nn

from longtail.nn import Network, build
from longtail.nn.mae import (
    Decoder,
    MaskedAutoencoder,
    initialise,
    random_masking,
    sincos_positions,
    to_images,
    to_patches,
    transformer,
    visible_patches,
)


def encoder(**more: object) -> Network:
    torch.manual_seed(0)
    return initialise(
        build(
            {
                "name": "vit_mini",
                "size": 8,
                "patch": 2,
                "width": 16,
                "depth": 2,
                "pool": "avg",
                **more,
            }
        )
    )


def autoencoder(**more: object) -> MaskedAutoencoder:
    return MaskedAutoencoder(encoder(**more), width=8, depth=1, heads=2).double()


def test_positions_against_a_slow_reference() -> None:
    width, grid = 16, 3
    table = sincos_positions(width, grid, prefix=2)[0].double()
    assert table.shape == (2 + 9, width)
    assert not table[:2].any()
    for row in range(grid):
        for column in range(grid):
            slow = []
            for place in (column, row):
                angles = [place / 10000 ** (i / 4) for i in range(4)]
                slow += [math.sin(a) for a in angles] + [math.cos(a) for a in angles]
            assert table[2 + row * grid + column].tolist() == pytest.approx(slow, abs=1e-6)


def test_positions_need_a_width_of_four_parts() -> None:
    with pytest.raises(ValueError, match=r"divisible by 4 .*got 10"):
        sincos_positions(10, 2)


def test_masking_hides_the_largest_random_numbers_and_can_be_undone() -> None:
    tokens = torch.arange(2 * 8.0).view(2, 8, 1).expand(2, 8, 3)
    torch.manual_seed(3)
    masked = random_masking(tokens, 0.75)
    torch.manual_seed(3)
    noise = torch.rand(2, 8)
    for row in range(2):
        smallest = sorted(range(8), key=lambda patch: float(noise[row, patch]))
        assert masked.visible[row, :, 0].tolist() == [8 * row + patch for patch in smallest[:2]]
        assert masked.hidden[row].nonzero().flatten().tolist() == sorted(smallest[2:])
        complete = [
            *masked.visible[row, :, 0].tolist(),
            *[8 * row + patch for patch in smallest[2:]],
        ]
        assert [complete[place] for place in masked.restore[row].tolist()] == tokens[
            row, :, 0
        ].tolist()


def test_every_patch_is_hidden_equally_often() -> None:
    torch.manual_seed(0)
    share = random_masking(torch.zeros(4000, 8, 1), 0.75).hidden.double().mean(0)
    assert torch.allclose(share, torch.full((8,), 0.75, dtype=torch.float64), atol=0.03)


@pytest.mark.parametrize("ratio", [0.0, 1.0, -0.1, 1.5])
def test_a_ratio_outside_zero_and_one_is_refused(ratio: float) -> None:
    with pytest.raises(ValueError, match=f"mask ratio between 0 and 1, got {ratio}"):
        visible_patches(16, ratio)
    with pytest.raises(ValueError, match="mask ratio"):
        MaskedAutoencoder(encoder(), ratio=ratio, width=8, depth=1, heads=2)


def test_a_ratio_that_leaves_nothing_to_see_is_refused() -> None:
    with pytest.raises(ValueError, match=r"ratio 0.9 hides all or none of 4 patches"):
        visible_patches(4, 0.9)


@pytest.mark.parametrize("size", [{"depth": 0}, {"depth": -1}, {"width": 0}, {"width": -8}])
def test_a_decoder_without_blocks_or_width_is_refused(size: dict[str, int]) -> None:
    ((name, value),) = size.items()
    with pytest.raises(
        ValueError, match=f"at least one block and a positive width, got .*{name} {value}"
    ):
        Decoder(16, grid=2, pixels=12, **{"width": 8, "depth": 1, "heads": 2, **size})


def test_an_encoder_that_sees_the_image_through_convolutions_is_refused() -> None:
    hybrid = build({"name": "timm:vit_tiny_r_s16_p8_224", "size": 64, "pool": "avg"})
    with pytest.raises(
        ValueError,
        match=(
            r"must be patches of the image, got timm:vit_tiny_r_s16_p8_224 with \d+ patches of"
            r" \d+ in a row of 64"
        ),
    ):
        MaskedAutoencoder(hybrid, width=8, depth=1, heads=2)
    with pytest.raises(
        ValueError, match=r"must be patches of the image, got timm:vit_tiny_r_s16_p8_224"
    ):
        initialise(hybrid)


def test_patches_against_a_slow_reference() -> None:
    image = torch.randn(2, 3, 4, 6)
    patches = to_patches(image, 2)
    assert patches.shape == (2, 6, 12)
    for n in range(2):
        for at in range(6):
            top, left = at // 3 * 2, at % 3 * 2
            slow = [
                image[n, c, top + y, left + x].item()
                for y in range(2)
                for x in range(2)
                for c in range(3)
            ]
            assert patches[n, at].tolist() == slow


def slow_loss(method: MaskedAutoencoder, image: Tensor, predicted: Tensor, hidden: Tensor) -> float:
    mean, std = method.network.spec["mean"], method.network.spec["std"]
    errors: list[float] = []
    for n in range(len(image)):
        for at in range(hidden.shape[1]):
            if not hidden[n, at]:
                continue
            top, left = at // 4 * 2, at % 4 * 2
            pixels = [
                (image[n, c, top + y, left + x].item() - mean[c]) / std[c]
                for y in range(2)
                for x in range(2)
                for c in range(3)
            ]
            centre = sum(pixels) / 12
            variance = sum((p - centre) ** 2 for p in pixels) / 11
            wanted = [(p - centre) / math.sqrt(variance + 1e-6) for p in pixels]
            errors.append(
                sum((a - b) ** 2 for a, b in zip(wanted, predicted[n, at].tolist(), strict=True))
                / 12
            )
    return sum(errors) / len(errors)


def test_the_loss_is_the_error_on_hidden_patches_of_mean_0_and_deviation_1() -> None:
    method, image = autoencoder(), torch.rand(3, 3, 8, 8, dtype=torch.float64)
    outcome = method(image)
    assert outcome.loss.item() == pytest.approx(
        slow_loss(method, image, outcome.predicted, outcome.hidden), rel=1e-6
    )


def test_the_encoder_sees_visible_patches_only() -> None:
    method, image = autoencoder(), torch.rand(2, 3, 8, 8, dtype=torch.float64)
    lengths: list[int] = []
    body = transformer(method.network)
    body.blocks[0].register_forward_hook(
        lambda module, given, answer: lengths.append(given[0].shape[1])
    )
    torch.manual_seed(1)
    outcome = method(image)
    assert lengths == [1 + 4]  # the class token and a quarter of 16 patches
    changed = to_patches(image, 2)
    changed[outcome.hidden] = 0.123
    torch.manual_seed(1)
    assert torch.equal(method(to_images(changed, 2)).predicted, outcome.predicted)
    changed[~outcome.hidden] = 0.321
    torch.manual_seed(1)
    assert not torch.equal(method(to_images(changed, 2)).predicted, outcome.predicted)


def test_the_decoder_puts_every_patch_in_its_place() -> None:
    torch.manual_seed(0)
    decoder = Decoder(16, grid=2, pixels=12, width=8, depth=1, heads=2).double()
    masked = random_masking(torch.randn(3, 4, 16, dtype=torch.float64), 0.5)
    prefix = torch.randn(3, 1, 16, dtype=torch.float64)
    painted = decoder(torch.cat([prefix, masked.visible], 1), masked.restore)
    for n in range(3):
        line = [decoder.embed(prefix[n, 0])]
        for patch in range(4):
            place = int(masked.restore[n, patch])
            line.append(
                decoder.mask_token[0, 0] if place >= 2 else decoder.embed(masked.visible[n, place])
            )
        tokens = torch.stack(line) + sincos_positions(8, 2)[0].double()
        slow = decoder.pixels(decoder.norm(decoder.blocks(tokens[None])))[0, 1:]
        assert torch.allclose(painted[n], slow, atol=1e-6)
    first, second = masked.hidden[0].nonzero().flatten().tolist()
    assert not torch.allclose(painted[0, first], painted[0, second])


def test_every_norm_of_the_decoder_is_as_published() -> None:
    decoder = Decoder(16, grid=2, pixels=12, width=8, depth=2, heads=2)
    norms = [module for module in decoder.modules() if isinstance(module, nn.LayerNorm)]
    assert [norm.eps for norm in norms] == [1e-6] * 5


@pytest.mark.parametrize("before", [nn.Identity(), nn.LayerNorm(16)], ids=["none", "norm_pre"])
def test_nothing_hidden_is_the_plain_encoder(before: nn.Module) -> None:
    """Order does not matter to a transformer: with all patches visible, the tokens are those of the
    network itself, shuffled.
    """
    method, image = autoencoder(), torch.rand(2, 3, 8, 8, dtype=torch.float64)
    transformer(method.network).norm_pre = before.double()
    method.ratio = 0.01  # the smallest that hides anything
    tokens, masked = method.encode(method.network.normalize(image))
    assert tokens.shape[1] == 1 + 15
    body = transformer(method.network)
    alone = body._pos_embed(body.patch_embed(method.network.normalize(image)))
    kept = torch.stack(
        [
            row[torch.cat([torch.tensor([True]), ~hidden])]
            for row, hidden in zip(alone, masked.hidden, strict=True)
        ]
    )
    assert torch.allclose(body.norm(body.blocks(before(kept))).sum(1), tokens.sum(1), atol=1e-9)


def test_first_weights_are_those_of_a_masked_autoencoder() -> None:
    network = encoder(width=64)
    body = transformer(network)
    assert torch.equal(body.pos_embed, sincos_positions(64, 4))
    limit = math.sqrt(6 / (12 + 64))  # Xavier for the 12 pixels of a patch
    patches = body.patch_embed.proj.weight
    assert limit * 0.95 < patches.abs().max() <= limit
    qkv = body.blocks[0].attn.qkv
    limit = math.sqrt(6 / (64 + 3 * 64))
    assert limit * 0.95 < qkv.weight.abs().max() <= limit
    assert not qkv.bias.any()
    assert 0.01 < body.cls_token.std() < 0.03
    assert (
        0.005 < Decoder(16, grid=2, pixels=12, width=64, depth=1, heads=2).mask_token.std() < 0.04
    )


def test_positions_do_not_learn_in_pretraining() -> None:
    method = autoencoder()
    method(torch.rand(2, 3, 8, 8, dtype=torch.float64)).loss.backward()
    assert transformer(method.network).pos_embed.grad is None
    assert "decoder.positions" not in dict(method.named_parameters())


@pytest.mark.parametrize("name", ["test_vit", "test_vit2", "test_vit3"])
def test_timms_transformers_can_be_encoders(name: str) -> None:
    """With a class token, with registers and scaled layers, with another pooling."""
    network = build({"name": f"timm:{name}", "size": 32, "patch": 8, "pool": "avg"})
    method = MaskedAutoencoder(initialise(network), width=16, depth=1, heads=2)
    outcome = method(torch.rand(2, 3, 32, 32))
    assert outcome.predicted.shape == (2, 16, 192)
    assert outcome.loss.isfinite()


def test_a_network_that_is_no_transformer_is_refused() -> None:
    with pytest.raises(ValueError, match="fast_cnn is not a vision transformer"):
        MaskedAutoencoder(build({"name": "fast_cnn", "size": 8, "width": 8}))


def test_a_norm_behind_the_pooling_is_refused() -> None:
    with pytest.raises(ValueError, match="got pool 'avg_norm': build it with pool 'avg'"):
        MaskedAutoencoder(
            build(
                {
                    "name": "vit_mini",
                    "size": 8,
                    "patch": 2,
                    "width": 16,
                    "depth": 1,
                    "pool": "avg_norm",
                }
            )
        )


def test_a_size_that_the_patch_does_not_divide_is_refused() -> None:
    with pytest.raises(ValueError, match="got size 9 and patch 2"):
        encoder(size=9)
    with pytest.raises(ValueError, match="got size 30 and patch 8: try 24"):
        build({"name": "timm:test_vit", "size": 30, "patch": 8})


def test_a_decoder_that_cannot_share_its_width_is_refused() -> None:
    with pytest.raises(ValueError, match="got width 10 and heads 4"):
        Decoder(16, grid=2, pixels=12, width=10, depth=1, heads=4)


def test_the_figure_shows_visible_and_predicted_patches() -> None:
    method, image = autoencoder(), torch.rand(2, 3, 8, 8, dtype=torch.float64)
    torch.manual_seed(2)
    hidden = method(image).hidden
    torch.manual_seed(2)
    masked, painted = method.show(image)
    for shown in (masked, painted):
        assert torch.equal(to_patches(shown, 2)[~hidden], to_patches(image, 2)[~hidden])
    assert (to_patches(masked, 2)[hidden] == 0.5).all()
    assert painted.min() >= 0
    assert painted.max() <= 1
    assert not torch.equal(painted, masked)


def test_a_perfect_painter_paints_the_image() -> None:
    """What is shown undoes what the loss did to the pixels."""
    method, image = autoencoder(), torch.rand(2, 3, 8, 8, dtype=torch.float64)
    patches, mean, deviation = method._patches(method.network.normalize(image))

    class Perfect(nn.Module):
        def forward(self, tokens: Tensor, restore: Tensor) -> Tensor:
            return (patches - mean) / deviation

    method.decoder = Perfect()  # type: ignore[assignment]
    assert method(image).loss.item() == pytest.approx(0, abs=1e-12)
    assert torch.allclose(method.show(image)[1], image, atol=1e-9)


def test_the_first_weights_are_the_same_in_another_order_of_memory() -> None:
    plain, last = (
        build({"name": "vit_mini", "size": 8, "patch": 4, "width": 16, "depth": 1})
        for _ in range(2)
    )
    for network in (plain, last.to(memory_format=torch.channels_last)):
        torch.manual_seed(0)
        initialise(network)
    one, other = (transformer(network).patch_embed.proj.weight for network in (plain, last))
    assert not other.is_contiguous()
    assert torch.equal(one, other)
