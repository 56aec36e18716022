import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from longtail.nn.pairs import ComposedPairs, GraphPairs, PairEmbedding, feasibility

PAIRS = torch.tensor([[0, 0], [1, 0], [1, 2], [2, 1], [0, 1]])


def words() -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(3)
    return torch.randn(3, 4, generator=generator), torch.randn(3, 4, generator=generator)


def test_the_graph_equals_dense_products_by_hand() -> None:
    attribute, obj = words()
    graph = GraphPairs(PAIRS, attribute, obj, dim=5, hidden=7).eval()
    near = torch.eye(3 + 3 + 5)
    for number, (a, o) in enumerate(PAIRS.tolist()):
        for one, other in ((a, 3 + o), (a, 6 + number), (3 + o, 6 + number)):
            near[one, other] = near[other, one] = 1.0
    near = torch.diag(1 / near.sum(1)) @ near
    means = torch.stack([(attribute[a] + obj[o]) / 2 for a, o in PAIRS.tolist()])
    nodes = torch.cat([attribute, obj, means])
    hidden = (near @ (nodes @ graph.first.weight.T) + graph.first.bias).clamp(min=0)
    rows = (near @ (hidden @ graph.second.weight.T) + graph.second.bias)[6:]
    assert torch.allclose(graph(), rows / rows.norm(dim=1, keepdim=True), atol=1e-6)
    graph.train()
    assert not torch.equal(graph(), graph())  # dropout


def test_a_composed_row_is_one_layer_on_both_vectors() -> None:
    attribute, obj = words()
    composed = ComposedPairs(PAIRS, attribute, obj, dim=5)
    both = torch.cat([attribute[1], obj[2]])
    row = composed.compose.weight @ both + composed.compose.bias
    assert torch.allclose(composed()[2], F.normalize(row, dim=0), atol=1e-6)


@pytest.mark.parametrize("kind", [ComposedPairs, GraphPairs])
def test_parts_give_the_rows_of_known_pairs_and_of_new_ones(kind: type[PairEmbedding]) -> None:
    keywords = {"hidden": 7} if kind is GraphPairs else {}
    embedding = kind(PAIRS, *words(), dim=5, **keywords).eval()  # type: ignore[arg-type, call-arg]
    rows, bias = embedding.parts().rows(PAIRS)
    assert torch.allclose(rows, embedding(), atol=1e-6)
    assert not bias.any()
    new, _ = embedding.parts().rows(torch.tensor([[2, 2]]))
    assert torch.allclose(new.norm(dim=1), torch.ones(1))


def test_learned_vectors_are_parameters() -> None:
    assert "attribute" in dict(ComposedPairs(PAIRS, *words(), dim=5).named_parameters())
    assert "attribute" not in dict(GraphPairs(PAIRS, *words(), dim=5).named_parameters())


def test_feasibility_equals_a_slow_one() -> None:
    attribute, obj = words()
    pairs = torch.cartesian_prod(torch.arange(3), torch.arange(3))
    listed = {(0, 0), (1, 0), (1, 2), (2, 1)}
    seen = torch.tensor([tuple(pair) in listed for pair in pairs.tolist()])

    def cosine(vectors: Tensor, one: int, other: int) -> float:
        return float(F.cosine_similarity(vectors[one], vectors[other], dim=0))

    expected = []
    for a, o in pairs.tolist():
        objects = [cosine(obj, o, other) for first, other in listed if first == a and other != o]
        attributes = [
            cosine(attribute, a, other) for other, second in listed if second == o and other != a
        ]
        score = (max([-1.0, *objects]) + max([-1.0, *attributes])) / 2
        expected.append(1.0 if (a, o) in listed else score)
    result = feasibility(attribute, obj, pairs, seen)
    assert torch.allclose(result, torch.tensor(expected), atol=1e-6)
    alone = feasibility(attribute, obj, pairs, pairs.sum(1) == 99)
    assert torch.equal(alone, torch.full((9,), -1.0))
