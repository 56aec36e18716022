import json

import pytest
import torch
from torch import nn

from longtail.nn import Classifier, CosineExperts, build
from longtail.nn.experts import Experts


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
    own = [*experts.trunk.parameters(), *experts.branches[2].parameters()]
    with torch.no_grad():
        for mine, theirs in zip(body.parameters(), own, strict=True):  # type: ignore[union-attr]
            mine.copy_(theirs)
    image = torch.rand(3, 3, 16, 16)
    assert torch.allclose(network(image).chunk(3, 1)[2], plain(image), atol=1e-6)


def test_experts_differ_and_answer_with_their_mean() -> None:
    network = build({"name": "fast_cnn_experts", "size": 8, "width": 8, "experts": 2}).eval()
    head = CosineExperts(network.dim, 5, experts=2)
    classifier, image = Classifier(network, head).eval(), torch.rand(3, 3, 8, 8)
    first, second = head.apart(network(image))
    assert not torch.allclose(first, second)
    assert torch.equal(classifier(image), torch.stack([first, second]).mean(0))
    again = build(json.loads(json.dumps(classifier.spec))).eval()
    again.load_state_dict(classifier.state_dict())
    assert torch.equal(again(image), classifier(image))


@pytest.mark.parametrize("name", ["resnet32_experts", "fast_cnn_experts"])
def test_bad_input_is_refused(name: str) -> None:
    with pytest.raises(ValueError, match="at least two experts, got 1"):
        build({"name": name, "experts": 1})
    with pytest.raises(ValueError, match=r"must be in .*, got 0"):
        build({"name": name, "slim": 0})
