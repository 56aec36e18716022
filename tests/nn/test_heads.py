import pytest
import torch

from longtail.nn import (
    HEADS,
    Classifier,
    Cosine,
    CosineExperts,
    Head,
    Linear,
    TokenHeads,
    build,
    build_head,
)


def test_linear_scales_weight_and_bias() -> None:
    head, features = Linear(4, 3, scale=0.25), torch.randn(5, 4)
    assert torch.allclose(head(features), (features @ head.weight.T + head.bias) / 4)
    assert Linear(4, 3, bias=False).bias is None


def test_cosine_sees_directions_only() -> None:
    head, features = Cosine(4, 3, scale=2.0), torch.randn(5, 4)
    slow = torch.tensor(
        [[2 * float(f @ w / (f.norm() * w.norm())) for w in head.weight.detach()] for f in features]
    )
    assert torch.allclose(head(features), slow, atol=1e-6)
    assert torch.allclose(head(7 * features), slow, atol=1e-6)


def test_experts_answer_with_the_mean_of_their_own_features() -> None:
    head, features = CosineExperts(6, 3, experts=2, scale=30.0), torch.randn(5, 6)
    first, second = head.apart(features)
    assert torch.equal(first, head.parts[0](features[:, :3]))
    assert torch.equal(second, head.parts[1](features[:, 3:]))
    assert torch.allclose(head(features), (first + second) / 2)


def test_experts_that_are_none_are_refused() -> None:
    with pytest.raises(ValueError, match="expected at least two experts, got 1"):
        CosineExperts(4, 3, experts=1)
    with pytest.raises(ValueError, match="got dim 4 and 3 experts"):
        CosineExperts(4, 3)


@pytest.mark.parametrize("name", HEADS)
def test_a_head_comes_back_from_its_spec(name: str) -> None:
    head = build_head({"name": name, "dim": 12, "classes": 3, "scale": 0.5})
    assert build_head(head.spec).spec == head.spec


def test_unknown_heads_are_refused() -> None:
    with pytest.raises(
        ValueError, match=r"unknown head 'cosin': did you mean cosine.*Known: cosine, .*linear"
    ):
        build_head({"name": "cosin"})


def test_two_tokens_answer_with_the_mean_of_their_own_features() -> None:
    head, features = TokenHeads(6, 3), torch.randn(5, 6)
    cls, dist = (
        features[:, :3] @ head.cls.weight.T + head.cls.bias,
        features[:, 3:] @ head.dist.weight.T + head.dist.bias,
    )
    named = head.named(features)
    assert torch.allclose(named["cls"], cls, atol=1e-6)
    assert torch.allclose(named["dist"], dist, atol=1e-6)
    assert torch.allclose(head(features), (cls + dist) / 2, atol=1e-6)
    with pytest.raises(ValueError, match="dim must be even, got 7"):
        TokenHeads(7, 3)


def test_a_classifier_tells_the_parts_of_its_head_apart() -> None:
    image = torch.rand(2, 3, 8, 8)
    network = build({"name": "fast_cnn", "size": 8, "width": 8}).eval()
    parts: dict[str, Head] = {
        "linear": Linear(32, 3),
        "experts": CosineExperts(32, 3, experts=2),
        "tokens": TokenHeads(32, 3),
    }
    heads = {name: Classifier(network, head).heads(image) for name, head in parts.items()}
    assert [list(own) for own in heads.values()] == [
        ["logits"],
        ["logits", "expert1", "expert2"],
        ["logits", "cls", "dist"],
    ]
    for name, head in parts.items():
        assert torch.equal(heads[name]["logits"], Classifier(network, head)(image))


def test_directions_begin_at_length_one() -> None:
    assert torch.allclose(Cosine(64, 10).weight.norm(dim=1), torch.ones(10)), (
        "the rate at which they turn falls with their length"
    )


def test_cosines_are_not_rounded_under_autocast() -> None:
    head, features = Cosine(8, 3, scale=30.0), torch.randn(4, 8)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        rounded = head(features)
    assert torch.equal(rounded, head(features))
