import pytest
import torch

from longtail.nn import HEADS, Cosine, Linear, build_head


def test_linear_scales_weight_and_bias() -> None:
    head, features = Linear(4, 3, scale=0.25), torch.randn(5, 4)
    assert torch.allclose(head(features), (features @ head.weight.T + head.bias) / 4)
    assert Linear(4, 3, bias=False).bias is None


def test_cosine_sees_directions_only() -> None:
    head, features = Cosine(4, 3, scale=2.0), torch.randn(5, 4)
    slow = torch.tensor([[2 * float(f @ w / (f.norm() * w.norm())) for w in head.weight.detach()] for f in features])
    assert torch.allclose(head(features), slow, atol=1e-6)
    assert torch.allclose(head(7 * features), slow, atol=1e-6)


@pytest.mark.parametrize("name", HEADS)
def test_a_head_comes_back_from_its_spec(name: str) -> None:
    head = build_head({"name": name, "dim": 4, "classes": 3, "scale": 0.5})
    assert build_head(head.spec).spec == head.spec


def test_unknown_heads_are_refused() -> None:
    with pytest.raises(ValueError, match=r"no head is called 'cosin': known are linear, cosine; did you mean cosine\?"):
        build_head({"name": "cosin"})
