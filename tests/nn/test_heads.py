import pytest
import torch

from longtail.nn import (
    HEADS,
    Classifier,
    ClassVectors,
    Comparator,
    Cosine,
    CosineExperts,
    Head,
    Linear,
    TokenHeads,
    VectorHead,
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


def test_experts_predict_the_mean_over_their_features() -> None:
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
    more = {"class_vectors": {"width": 4}, "comparator": {"width": 4, "hidden": 8}}.get(name, {})
    head = build_head({"name": name, "dim": 12, "classes": 3, "scale": 0.5, **more})
    assert build_head(head.spec).spec == head.spec


def test_unknown_heads_are_refused() -> None:
    with pytest.raises(
        ValueError, match=r"unknown head 'cosin': did you mean cosine.*Known: .*cosine, .*linear"
    ):
        build_head({"name": "cosin"})


def test_two_tokens_predict_the_mean_over_their_features() -> None:
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


def test_two_tokens_predict_by_the_answer_that_is_chosen() -> None:
    features, plain = 5 * torch.randn(4, 6), TokenHeads(6, 3)
    assert "answer" not in plain.spec, "files of earlier versions stay as they are"
    outputs = {}
    for answer in ("logits", "probabilities", "cls", "dist"):
        head = build_head({**plain.spec, "answer": answer})
        head.load_state_dict(plain.state_dict())
        assert build_head(head.spec).spec == head.spec
        outputs[answer] = head(features)
    cls, dist = plain.named(features).values()
    slow = torch.tensor(
        [
            [(p / sum(a) + q / sum(b)) / 2 for p, q in zip(a, b, strict=True)]
            for a, b in zip(cls.exp().tolist(), dist.exp().tolist(), strict=True)
        ]
    )
    assert torch.allclose(outputs["probabilities"].exp(), slow, atol=1e-5)
    assert torch.equal(outputs["logits"], (cls + dist) / 2)
    assert torch.equal(outputs["cls"], cls)
    assert torch.equal(outputs["dist"], dist)
    with pytest.raises(ValueError, match="unknown answer 'class'"):
        TokenHeads(6, 3, answer="class")


def test_a_classifier_separates_the_parts_of_its_head() -> None:
    image = torch.rand(2, 3, 8, 8)
    network = build({"name": "fast_cnn", "size": 8, "width": 8}).eval()
    parts: dict[str, Head] = {
        "linear": Linear(32, 3),
        "experts": CosineExperts(32, 3, experts=2),
        "tokens": TokenHeads(32, 3),
    }
    heads = {name: Classifier(network, head).heads(image) for name, head in parts.items()}
    assert [list(parts) for parts in heads.values()] == [
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


def test_class_vectors_are_compared_after_a_projection() -> None:
    features, vectors = torch.randn(5, 4), torch.randn(3, 6)
    head = ClassVectors(4, 3, width=6, scale=2.0).with_vectors(vectors)
    assert isinstance(head, ClassVectors)
    rows = vectors @ head.project.weight.T
    assert torch.allclose(head(features), 2 * features @ rows.T, atol=1e-6)
    unit = ClassVectors(4, 3, width=6, unit=True)
    unit.load_state_dict(head.state_dict())
    norms = features.norm(dim=1)[:, None] * vectors.norm(dim=1)
    assert torch.allclose(unit(features), head(features) / 2 / norms, atol=1e-6)
    cosine = ClassVectors(4, 3, width=6, scale=2.0, cosine=True, bias=True).with_vectors(vectors)
    assert isinstance(cosine, ClassVectors)
    rows = vectors @ cosine.project.weight.T + cosine.project.bias
    slow = [[2 * float(f @ w / (f.norm() * w.norm())) for w in rows.detach()] for f in features]
    assert torch.allclose(cosine(features), torch.tensor(slow), atol=1e-6)


def test_a_comparator_is_a_network_on_the_concatenation_of_features_and_vector() -> None:
    features, vectors = torch.randn(5, 4), torch.randn(3, 6)
    head = Comparator(4, 3, width=6, hidden=8, scale=10.0).with_vectors(vectors)
    assert isinstance(head, Comparator)
    first = torch.cat([head.features.weight, head.project.weight], 1)
    for row, logits in zip(features, head(features), strict=True):
        for vector, logit in zip(vectors, logits, strict=True):
            hidden = first @ torch.cat([row, vector]) + head.features.bias
            hidden = torch.where(hidden > 0, hidden, 0.2 * hidden)
            slow = 10 * (head.output.weight @ hidden)
            assert torch.allclose(logit, slow, atol=1e-5)


@pytest.mark.parametrize("head", [ClassVectors(4, 3, width=6), Comparator(4, 3, width=6, hidden=8)])
def test_classes_are_added_without_changing_the_others(head: VectorHead) -> None:
    features = torch.randn(5, 4)
    head = head.with_vectors(torch.randn(3, 6))
    more = head.add_classes(torch.randn(2, 6))
    assert more(features).shape == (5, 5)
    assert torch.allclose(more(features)[:, :3], head(features))
    assert build_head(more.spec).spec == more.spec
    with pytest.raises(ValueError, match=r"expected class vectors \(classes, 6\), got \(2, 5\)"):
        head.with_vectors(torch.randn(2, 5))
