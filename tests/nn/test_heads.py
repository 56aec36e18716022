import pytest
import torch

from longtail.nn import HEADS, Cosine, CosineExperts, Linear, build_head


def test_linear_scales_weight_and_bias() -> None:
    head, features = Linear(4, 3, scale=0.25), torch.randn(5, 4)
    assert torch.allclose(head(features), (features @ head.weight.T + head.bias) / 4)
    assert Linear(4, 3, bias=False).bias is None


def test_cosine_sees_directions_only() -> None:
    head, features = Cosine(4, 3, scale=2.0), torch.randn(5, 4)
    slow = torch.tensor([[2 * float(f @ w / (f.norm() * w.norm())) for w in head.weight.detach()] for f in features])
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
    with pytest.raises(ValueError, match="got dim 4, which 3 does not divide"):
        CosineExperts(4, 3)


@pytest.mark.parametrize("name", HEADS)
def test_a_head_comes_back_from_its_spec(name: str) -> None:
    head = build_head({"name": name, "dim": 12, "classes": 3, "scale": 0.5})
    assert build_head(head.spec).spec == head.spec


def test_unknown_heads_are_refused() -> None:
    with pytest.raises(ValueError, match=r"no head is called 'cosin': known are linear, cosine, .*; did you mean cosine\?"):
        build_head({"name": "cosin"})
