import torch
import torch.nn.functional as F

from longtail.core import Clock, Labelled
from longtail.methods import ClassifyParts, MatchOpenPairs, MatchPairs
from longtail.nn import Embedded, build
from longtail.nn.networks import Vectors
from longtail.nn.pairs import ComposedPairs, GraphPairs

PAIRS = torch.tensor([[0, 0], [0, 1], [1, 0], [1, 1]])
SEEN = torch.tensor([True, False, True, True])
CLOCK = Clock(0, 10, 0, 2)


def batch() -> Labelled:
    generator = torch.Generator().manual_seed(1)
    rows = torch.randn(6, 5, generator=generator)
    target = torch.tensor([0, 2, 3, 3, 0, 2])
    return {"image": rows, "target": target, "position": torch.arange(6)}


def vectors(dim: int = 4) -> Embedded:
    return Embedded(build({"name": "vectors", "size": 5}), [dim], last="unit")


def composed() -> ComposedPairs:
    return ComposedPairs(PAIRS, torch.randn(2, 3), torch.randn(2, 3), dim=4)


def test_only_seen_pairs_compete_in_the_loss() -> None:
    method = MatchPairs(vectors(), composed(), SEEN, scale=20.0)
    logits = method.predict(batch()["image"])
    assert logits.shape == (6, 4)
    seen = logits.masked_fill(~SEEN, -torch.inf)
    expected = F.cross_entropy(seen, batch()["target"])
    assert torch.allclose(method(batch(), CLOCK).loss, expected)


def test_margins_of_unseen_pairs_grow() -> None:
    method = MatchOpenPairs(vectors(), composed(), SEEN, margin=0.4, ramp=0.5)
    cosines = method.predict(batch()["image"]) / 20
    for step, share in ((0, 0.0), (2, 0.4), (5, 1.0), (9, 1.0)):
        margin = 0.4 * share * method.feasibility * ~SEEN
        expected = F.cross_entropy(20 * (cosines - margin), batch()["target"])
        assert torch.allclose(method(batch(), Clock(step, 10, 0, 2)).loss, expected)


def test_the_feasibility_follows_the_embeddings_once_an_epoch() -> None:
    method = MatchOpenPairs(vectors(), composed(), SEEN)
    before = method.feasibility.clone()
    outcome = method(batch(), CLOCK)
    with torch.no_grad():
        method.pairs.attribute.neg_()[0].mul_(-1)
        method.pairs.object[0].add_(3)
    method.after_step(outcome, Clock(3, 10, 0, 2))
    assert torch.equal(method.feasibility, before)
    method.after_step(outcome, Clock(4, 10, 0, 2))
    assert not torch.equal(method.feasibility, before)
    assert bool((method.feasibility[SEEN] == 1).all())


def test_pairs_below_the_threshold_are_not_predicted() -> None:
    method = MatchOpenPairs(vectors(), composed(), SEEN).eval()
    before = method.predict(batch()["image"])
    method.threshold.fill_(1.0)
    after = method.predict(batch()["image"])
    assert torch.equal(after[:, SEEN], before[:, SEEN])
    assert bool((after[:, ~SEEN] < -1e4).all())
    assert torch.equal(method.deploy()(batch()["image"]), after)


def test_the_sum_of_logits_ranks_pairs_as_the_product_of_probabilities() -> None:
    method = ClassifyParts(vectors(), PAIRS, attributes=2, objects=2).eval()
    image = batch()["image"]
    features = method.network(image)
    product = torch.stack(
        [
            method.attribute(features).softmax(1)[:, a] * method.object(features).softmax(1)[:, o]
            for a, o in PAIRS.tolist()
        ],
        dim=1,
    )
    assert torch.allclose(method.predict(image).softmax(1), product, atol=1e-6)
    assert list(method(batch(), CLOCK).terms) == ["attribute", "object"]


def test_a_backbone_inside_of_vectors_is_frozen() -> None:
    backbone = build({"name": "fast_cnn", "size": 8, "width": 8})
    network = Embedded(Vectors(backbone.dim, backbone=backbone), [6])
    graph = GraphPairs(PAIRS, torch.randn(2, 3), torch.randn(2, 3), dim=6, hidden=8)
    method = MatchPairs(network, graph, SEEN).train()
    assert not backbone.training
    assert not any(p.requires_grad for p in backbone.parameters())
    assert method.network.layers.training  # type: ignore[union-attr]
    image = torch.rand(6, 3, 8, 8)
    assert method({**batch(), "image": image}, CLOCK).loss.isfinite()
