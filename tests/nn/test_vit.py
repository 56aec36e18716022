import pytest
import torch
from torch import Tensor
from torch.utils.flop_counter import FlopCounterMode

from longtail.nn import build
from longtail.nn.vit import Tokens, vit_mini


@pytest.mark.parametrize(("size", "patch"), [(32, 4), (64, 8), (224, 28), (8, 1), (28, 2), (4, 1)])
def test_the_patch_grows_with_the_image(size: int, patch: int) -> None:
    network = vit_mini(size, width=16, depth=1)
    assert network.patch_embed.patch_size == (patch, patch)  # type: ignore[union-attr]


@pytest.mark.parametrize(
    ("size", "patch", "advice"),
    [
        (15, 2, "choose size 14 or 16, or a patch that divides 15"),
        (8, 16, "choose size 16, or a patch"),
        (8, 0, "choose a patch that divides 8"),
        (4096, 1, "choose a larger patch or a smaller size"),
    ],
)
def test_a_size_that_the_patch_does_not_divide_is_refused_with_others(
    size: int, patch: int, advice: str
) -> None:
    with pytest.raises(ValueError, match=f"got size {size} and patch {patch}: {advice}"):
        vit_mini(size, patch=patch, width=16, depth=1)


def test_features_may_be_the_mean_of_the_patches() -> None:
    image = torch.rand(2, 3, 8, 8)
    for pool, behind in (("avg", False), ("avg_norm", True)):
        network = vit_mini(8, width=16, depth=1, pool=pool).eval()
        torch.nn.init.uniform_(network.fc_norm.weight if behind else network.norm.weight)  # type: ignore[union-attr, arg-type]
        mean = network.forward_features(image)[:, 1:].mean(1)  # type: ignore[operator]
        assert torch.allclose(network(image), network.fc_norm(mean) if behind else mean, atol=1e-6)  # type: ignore[operator]
        assert isinstance(network.norm, torch.nn.Identity) is behind


def test_an_unknown_way_to_pool_names_the_known_ones() -> None:
    with pytest.raises(
        ValueError,
        match=(
            r"unknown pooling mode 'average': did you mean avg.* Known: avg, avg_norm, token,"
            r" tokens"
        ),
    ):
        vit_mini(8, width=16, depth=1, pool="average")


def test_paths_are_dropped_more_often_in_later_blocks() -> None:
    network = vit_mini(8, width=16, depth=3, drop_path=0.2, layer_scale=1e-4)
    blocks = list(network.blocks)  # type: ignore[arg-type]
    assert [getattr(block.drop_path1, "drop_prob", 0.0) for block in blocks] == pytest.approx(
        [0.0, 0.1, 0.2]
    )
    assert (blocks[0].ls1.gamma == 1e-4).all()


def test_features_are_the_class_token_after_the_norm() -> None:
    network = vit_mini(8, width=16, depth=1).eval()
    image = torch.rand(2, 3, 8, 8)
    tokens = network.forward_features(image)  # type: ignore[operator]
    assert torch.equal(network(image), tokens[:, 0])
    assert torch.allclose(tokens.mean(-1), torch.zeros(2, 65), atol=1e-5)


def test_a_distillation_token_stands_beside_the_class_token() -> None:
    network = vit_mini(8, width=16, depth=1, pool="tokens").eval()
    assert isinstance(network, Tokens)
    image = torch.rand(2, 3, 8, 8)
    tokens = network.transformer.forward_features(image)  # type: ignore[operator]
    assert tokens.shape == (2, 66, 16)
    assert torch.equal(network(image), torch.cat([tokens[:, 0], tokens[:, 1]], 1))
    with pytest.raises(ValueError, match="has no distillation token"):
        Tokens(vit_mini(8, width=16, depth=1))


@pytest.mark.parametrize("name", ["vit_mini", "timm:deit_tiny_distilled_patch16_224"])
def test_in_training_the_last_block_computes_what_is_read_and_nothing_else(name: str) -> None:
    spec = {"name": name, "size": 32, "pool": "tokens"} | (
        {"width": 16, "depth": 2, "layer_scale": 0.5} if name == "vit_mini" else {}
    )
    network = build(spec)
    image, direction = torch.rand(3, 3, 32, 32), torch.randn(3, network.dim)
    for key, parameter in network.named_parameters():
        if "qkv.weight" in key:
            # Attention at the start is nearly uniform, and then queries and keys hardly matter
            parameter.data.mul_(20)

    def learnt(training: bool) -> tuple[Tensor, dict[str, Tensor], int]:
        network.train(training).zero_grad()
        with FlopCounterMode(display=False) as counter:
            features = network(image)
        # Not their squares: behind a norm these are constant
        (features * direction).sum().backward()
        return (
            features,
            {
                key: parameter.grad.clone()
                for key, parameter in network.named_parameters()
                if parameter.grad is not None
            },
            counter.get_total_flops(),
        )

    features, gradients, cost = learnt(training=True)
    complete, expected, whole_cost = learnt(training=False)
    assert torch.allclose(features, complete, atol=1e-5)
    assert gradients.keys() == expected.keys()
    for key, gradient in gradients.items():
        assert (gradient - expected[key]).norm() < 1e-4 * expected[key].norm(), key
    assert cost < whole_cost
