import json

import pytest
import torch
from torch import nn

from longtail.nn import Classifier, CosineExperts, build
from longtail.nn.experts import Experts

STEM = 3 * 64 * 49 + 2 * 64


def basic_blocks() -> tuple[int, int]:
    """Parameters of the shared stages of ResNet-10, and of those of an expert."""

    def block(before: int, after: int) -> int:
        shortcut = before * after + 2 * after if before != after else 0
        return 9 * before * after + 9 * after * after + 4 * after + shortcut

    return STEM + block(64, 64) + block(64, 128), block(128, 192) + block(192, 384)


def bottlenecks() -> tuple[int, int]:
    """Parameters of the shared stages of ResNet-50, and of those of an expert."""

    def stage(before: int, width: int, blocks: int) -> int:
        after = 4 * width
        inner = 9 * width * width + width * after + 4 * width + 2 * after
        first = before * width + inner + before * after + 2 * after
        return first + (blocks - 1) * (after * width + inner)

    trunk = STEM + stage(64, 64, 3) + stage(256, 128, 4)
    return trunk, stage(512, 192, 6) + stage(768, 384, 3)


@pytest.mark.parametrize(
    ("name", "dims", "widths"),
    [
        ("resnet32_experts", 3 * 48, [16] * 11 + [24] * 10 + [48] * 10),
        ("fast_cnn_experts", 3 * 96, None),
    ],
)
def test_experts_share_a_trunk_and_have_narrower_ends(
    name: str, dims: int, widths: list[int] | None
) -> None:
    network = build({"name": name})
    body = network.body
    assert isinstance(body, Experts)
    assert network.dim == dims
    # RIDE: 16 shared, 24 and 48 apart, thirty-one convolutions on the way through an expert
    if widths is not None:
        on_the_way = [
            m
            for part in (body.trunk, body.branches[1])
            for m in part.modules()
            if isinstance(m, nn.Conv2d)
        ]
        assert [m.out_channels for m in on_the_way] == widths


@pytest.mark.parametrize("name", ["resnet32_experts", "fast_cnn_experts"])
def test_an_expert_is_the_plain_network_where_nothing_is_slimmed(name: str) -> None:
    network, plain = (
        build({"name": name, "size": 16, "width": 4, "slim": 1.0}),
        build({"name": name[: -len("_experts")], "size": 16, "width": 4}),
    )
    experts, body = network.body, plain.body
    assert isinstance(experts, Experts)
    parameters = [*experts.trunk.parameters(), *experts.branches[2].parameters()]
    with torch.no_grad():
        for mine, theirs in zip(body.parameters(), parameters, strict=True):  # type: ignore[union-attr]
            mine.copy_(theirs)
    image = torch.rand(3, 3, 16, 16)
    assert torch.allclose(network(image).chunk(3, 1)[2], plain(image), atol=1e-6)


@pytest.mark.parametrize(
    ("name", "dims", "trunk", "expert"),
    [
        # convolutions and norms of torchvision's ResNets, counted by hand
        ("resnet10_experts", 3 * 384, *basic_blocks()),
        ("resnet50_experts", 3 * 4 * 384, *bottlenecks()),
    ],
)
def test_experts_of_large_images_share_two_of_four_stages(
    name: str, dims: int, trunk: int, expert: int
) -> None:
    network = build({"name": name, "size": 64})
    body = network.body
    assert isinstance(body, Experts)
    assert network.dim == dims
    assert network.spec["mean"] == [0.485, 0.456, 0.406]
    assert sum(p.numel() for p in body.trunk.parameters()) == trunk
    assert [sum(p.numel() for p in branch.parameters()) for branch in body.branches] == [expert] * 3
    assert body.trunk(torch.zeros(1, 3, 64, 64)).shape[2:] == (8, 8)
    first, second = (dict(branch.named_parameters()) for branch in body.branches[:2])
    assert not torch.equal(first["0.0.conv1.weight"], second["0.0.conv1.weight"])


def test_experts_differ_and_answer_with_their_mean() -> None:
    network = build({"name": "fast_cnn_experts", "size": 8, "width": 8, "experts": 2}).eval()
    head = CosineExperts(network.dim, 5, experts=2)
    classifier, image = Classifier(network, head).eval(), torch.rand(3, 3, 8, 8)
    first, second = head.apart(network(image))
    assert not torch.allclose(first, second)
    assert torch.equal(classifier(image), torch.stack([first, second]).mean(0))
    repeated = build(json.loads(json.dumps(classifier.spec))).eval()
    repeated.load_state_dict(classifier.state_dict())
    assert torch.equal(repeated(image), classifier(image))


@pytest.mark.parametrize("name", ["resnet32_experts", "fast_cnn_experts"])
def test_bad_input_is_refused(name: str) -> None:
    with pytest.raises(ValueError, match="at least two experts, got 1"):
        build({"name": name, "experts": 1})
    with pytest.raises(ValueError, match=r"must be in .*, got 0"):
        build({"name": name, "slim": 0})
