"""Embeddings of pairs of an attribute and an object, made from those of their parts."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn


class PairParts(NamedTuple):
    """What the embedding of any pair of known parts is computed from, also of a new pair.

    The row of (a, o) is `attribute[a] + object[o]`; with `hidden`, also
    `relu(hidden[0][a] + hidden[1][o]) @ hidden[2].T`. It is scaled to length 1 if `unit`.
    """

    attribute: Tensor  # (A, D)
    object: Tensor  # (O, D)
    attribute_bias: Tensor  # (A,)
    object_bias: Tensor  # (O,)
    unit: bool
    hidden: tuple[Tensor, Tensor, Tensor] | None = None  # (A, H), (O, H), (D, H)

    def rows(self, pairs: Tensor) -> tuple[Tensor, Tensor]:
        """The embeddings (P, D) and the biases (P,) of pairs (P, 2) of part numbers."""
        a, o = pairs.unbind(1)
        rows = self.attribute[a] + self.object[o]
        if self.hidden is not None:
            first, second, weight = self.hidden
            rows = rows + F.linear(F.relu(first[a] + second[o]), weight)
        rows = F.normalize(rows, dim=1) if self.unit else rows
        return rows, self.attribute_bias[a] + self.object_bias[o]


class PairEmbedding(nn.Module, ABC):
    """Unit rows (C, dim) of C pairs, from vectors of their attributes and objects.

    Args:
        pairs: (C, 2), the numbers of attribute and object of each pair.
        attribute: (A, E), a vector of each attribute.
        object: (O, E), a vector of each object.
        learned: whether these vectors are trained.
    """

    pairs: Tensor
    attribute: Tensor
    object: Tensor

    def __init__(self, pairs: Tensor, attribute: Tensor, object: Tensor, *, learned: bool) -> None:
        super().__init__()
        self.register_buffer("pairs", pairs.clone(), persistent=False)
        for name, vectors in (("attribute", attribute), ("object", object)):
            if learned:
                self.register_parameter(name, nn.Parameter(vectors.clone()))
            else:
                self.register_buffer(name, vectors.clone(), persistent=False)

    @abstractmethod
    def forward(self) -> Tensor:
        """The rows of all pairs."""

    @abstractmethod
    def parts(self) -> PairParts:
        """What the row of any pair is computed from, without dropout."""


class ComposedPairs(PairEmbedding):
    """One linear layer on the two vectors of a pair (CompCos, Mancini et al., CVPR 2021).

    Args:
        pairs: (C, 2), the numbers of attribute and object of each pair.
        attribute: (A, D), a vector for each attribute.
        object: (O, D), a vector for each object.
        dim: Width of the embedding.
        learned: Whether the vectors are trained.

    >>> pairs = torch.tensor([[0, 0], [1, 0]])
    >>> ComposedPairs(pairs, torch.randn(2, 4), torch.randn(1, 4), dim=3)().shape
    torch.Size([2, 3])
    """

    def __init__(
        self, pairs: Tensor, attribute: Tensor, object: Tensor, *, dim: int, learned: bool = True
    ) -> None:
        super().__init__(pairs, attribute, object, learned=learned)
        self.compose = nn.Linear(attribute.shape[1] + object.shape[1], dim)

    def forward(self) -> Tensor:
        """The rows of all pairs."""
        a, o = self.pairs.unbind(1)
        both = torch.cat([self.attribute[a], self.object[o]], dim=1)
        return F.normalize(self.compose(both), dim=1)

    def parts(self) -> PairParts:
        """What the row of any pair is computed from."""
        first, second = self.compose.weight.split(
            [self.attribute.shape[1], self.object.shape[1]], dim=1
        )
        attribute = F.linear(self.attribute, first, self.compose.bias)
        return _parts(attribute, F.linear(self.object, second))


class GraphPairs(PairEmbedding):
    """Two graph convolutions over attributes, objects and pairs (CGE, Naeem et al., CVPR 2021).

    Each pair is connected with its attribute and its object, and these with each other; a pair's
    node starts from the mean of their vectors. A layer is D^-1 A X W + b, by sparse products.

    Args:
        pairs: (C, 2), the numbers of attribute and object of each pair.
        attribute: (A, E), a vector of each attribute.
        object: (O, E), a vector of each object.
        dim: width of the rows.
        hidden: width between the two layers.
        dropout: before each layer.
        learned: whether the vectors are trained.

    >>> pairs = torch.tensor([[0, 0], [1, 0]])
    >>> GraphPairs(pairs, torch.randn(2, 4), torch.randn(1, 4), dim=3, hidden=8)().shape
    torch.Size([2, 3])
    """

    edges: Tensor
    shares: Tensor

    def __init__(
        self,
        pairs: Tensor,
        attribute: Tensor,
        object: Tensor,
        *,
        dim: int,
        hidden: int = 4096,
        dropout: float = 0.5,
        learned: bool = False,
    ) -> None:
        super().__init__(pairs, attribute, object, learned=learned)
        count, others = len(attribute), len(object)
        self.nodes = count + others + len(pairs)
        a, o = pairs[:, 0], pairs[:, 1] + count
        c = torch.arange(len(pairs)) + count + others
        one_way = torch.cat([torch.stack(pair) for pair in ((a, o), (a, c), (o, c))], dim=1)
        loops = torch.arange(self.nodes).expand(2, -1)
        edges = torch.cat([one_way, one_way.flip(0), loops], dim=1).unique(dim=1)
        degree = torch.bincount(edges[0], minlength=self.nodes)
        self.register_buffer("edges", edges, persistent=False)
        self.register_buffer("shares", 1.0 / degree[edges[0]], persistent=False)
        self.first = nn.Linear(attribute.shape[1], hidden)
        self.second = nn.Linear(hidden, dim)
        self.dropout = nn.Dropout(dropout)

    def forward(self) -> Tensor:
        """The rows of all pairs."""
        with torch.autocast(self.edges.device.type, enabled=False):  # sparse products have no bf16
            hidden = F.relu(self.first(self._average(self.dropout(self._inputs()))))
            rows = F.linear(self.dropout(hidden), self.second.weight)
            rows = self._average(rows)[-len(self.pairs) :] + self.second.bias
            return F.normalize(rows, dim=1)

    def parts(self) -> PairParts:
        """What the row of any pair is computed from; a new one leaves other nodes unchanged."""
        count, others = len(self.attribute), len(self.object)
        hidden = F.relu(self.first(self._average(self._inputs())))[: count + others]
        # The neighbours of a pair are itself and its parts, each with a share of 1 / 3.
        rows = F.linear(hidden, self.second.weight / 3)
        inputs = torch.cat([self.attribute, self.object])
        halves = F.linear(inputs, self.first.weight / 2, self.first.bias / 2)
        return _parts(
            rows[:count] + self.second.bias,
            rows[count:],
            hidden=(halves[:count], halves[count:], self.second.weight / 3),
        )

    def _inputs(self) -> Tensor:
        a, o = self.pairs.unbind(1)
        return torch.cat([self.attribute, self.object, (self.attribute[a] + self.object[o]) / 2])

    def _average(self, rows: Tensor) -> Tensor:
        """The mean over each node's neighbours and itself."""
        shares = self.shares.to(rows.dtype)
        matrix = torch.sparse_coo_tensor(
            self.edges, shares, (self.nodes, self.nodes), is_coalesced=True, check_invariants=False
        )
        return torch.sparse.mm(matrix, rows)  # type: ignore[no-any-return]


def _parts(
    attribute: Tensor, object: Tensor, *, hidden: tuple[Tensor, Tensor, Tensor] | None = None
) -> PairParts:
    no_bias = (attribute.new_zeros(len(attribute)), object.new_zeros(len(object)))
    return PairParts(attribute, object, *no_bias, unit=True, hidden=hidden)


def feasibility(attribute: Tensor, object: Tensor, pairs: Tensor, seen: Tensor) -> Tensor:
    """How plausible each pair is, in [-1, 1]; seen pairs have 1.

    The mean of two similarities: the largest cosine between the pair's object and any other object
    that is seen with this attribute, and the same for the attribute; -1 where there is none
    (CompCos, Mancini et al., CVPR 2021, equations 5 to 7).

    Args:
        attribute: (A, E), embeddings of the attributes.
        object: (O, E), embeddings of the objects.
        pairs: (C, 2), the numbers of attribute and object of each pair.
        seen: (C,), whether a pair has training images.
    """
    together = torch.zeros(len(attribute), len(object), dtype=torch.bool, device=pairs.device)
    together[pairs[seen, 0], pairs[seen, 1]] = True

    def nearest(vectors: Tensor, rows: Tensor, allowed: Tensor) -> Tensor:
        unit = F.normalize(vectors, dim=1)
        similarity = (unit @ unit.T)[rows]
        others = allowed & (torch.arange(len(vectors), device=rows.device) != rows[:, None])
        return similarity.masked_fill(~others, -1.0).amax(1)

    scores = []
    for part in pairs.split(4096):  # all pairs of two vocabularies fill the memory
        a, o = part.unbind(1)
        by_object = nearest(object, o, together[a])
        by_attribute = nearest(attribute, a, together.T[o])
        scores.append((by_object + by_attribute) / 2)
    return torch.where(seen, 1.0, torch.cat(scores).clamp(min=-1.0))
