"""Classify images into pairs of an attribute and an object, of which some are never seen."""

from __future__ import annotations

from abc import abstractmethod
from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from longtail.core import Clock, Labelled, Method, Outcome
from longtail.nn import Classifier, Embedded, Linear, Neck, Network, Streamed
from longtail.nn.neck import checked
from longtail.nn.networks import Vectors
from longtail.nn.pairs import ComposedPairs, PairEmbedding, PairParts, feasibility

NeckAt = Literal["network", "layers"]
EXCLUDED = -1e3
"""Added to the products of pairs that cannot be predicted."""


class PairMethod(Method[Labelled]):
    """What methods for pairs share: a network, a neck, and a head with a row for each pair.

    The neck stands after the network or, with `neck_at` "layers", before the last layers of an
    `Embedded` one. A backbone inside of `Vectors` is frozen: it stays in eval mode, batch-norm
    included.
    """

    def __init__(
        self, network: Network, *, scale: float, neck: Neck | None, neck_at: NeckAt
    ) -> None:
        super().__init__()
        self.network, self.neck, self.scale = network, checked(neck), scale
        self.neck_at = neck_at
        for backbone in self._frozen():
            backbone.requires_grad_(False)
        self.train()

    def train(self, mode: bool = True) -> PairMethod:
        """Set the mode of all parts but a frozen backbone."""
        super().train(mode)
        for backbone in self._frozen():
            backbone.eval()
        return self

    def _frozen(self) -> list[Network]:
        vectors = (module for module in self.network.modules() if isinstance(module, Vectors))
        return [module.backbone for module in vectors if module.backbone is not None]

    def embed(self, image: Tensor, *aligned: Tensor) -> tuple[Tensor, Streamed]:
        """The embedded images (N or 2N, dim), and the output of the neck."""
        if self.neck_at == "network":
            streamed: Streamed = self.neck(self.network(image), *aligned)
            return streamed.features, streamed
        assert isinstance(self.network, Embedded)
        streamed = self.neck(self.network.network(image), *aligned)
        return self.network.layers(streamed.features), streamed

    @abstractmethod
    def rows(self) -> tuple[Tensor, Tensor | None]:
        """The embeddings (C, dim) of all pairs, and their biases (C,) if there are any."""

    @abstractmethod
    def parts(self) -> PairParts:
        """What the row of any pair is computed from, also of a pair that the data lacks."""

    def predict(self, image: Tensor) -> Tensor:
        """Logits (N, C) of all pairs, seen and unseen."""
        return self.scale * F.linear(self.network(image), *self.rows())

    @torch.no_grad()
    def deploy(self) -> Classifier:
        """The network with the matrix of pair embeddings as its head."""
        weight, bias = self.rows()
        head = Linear(weight.shape[1], len(weight), bias=bias is not None, scale=self.scale)
        head.to(weight)
        head.weight.copy_(weight)
        if bias is not None:
            head.bias.copy_(bias)
        return Classifier(self.network, head.requires_grad_(False))


class MatchPairs(PairMethod):
    """Match images with the embeddings of pairs, by cross entropy over the seen ones.

    Args:
        network: from images to embeddings (N, dim).
        pairs: the embeddings (C, dim) of all pairs, such as `GraphPairs` or `ComposedPairs`.
        seen: (C,), whether a pair has training images.
        scale: factor of the products.
        neck: applied in training only, such as `Streams(BatchFormer(dim))`.
        neck_at: after the network, or before the last layers of an `Embedded` one.

    Naeem et al., "Learning Graph Embeddings for Compositional Zero-shot Learning", CVPR 2021.
    """

    seen: Tensor
    position: Tensor

    def __init__(
        self,
        network: Network,
        pairs: PairEmbedding,
        seen: Tensor,
        *,
        scale: float = 1.0,
        neck: Neck | None = None,
        neck_at: NeckAt = "network",
    ) -> None:
        super().__init__(network, scale=scale, neck=neck, neck_at=neck_at)
        self.pairs = pairs
        self.register_buffer("seen", seen.clone(), persistent=False)
        self.register_buffer("position", seen.long().cumsum(0) - 1, persistent=False)

    def forward(self, batch: Labelled, clock: Clock) -> Outcome:
        """One term for each stream of the neck; without a neck, "class"."""
        target = self.position[batch["target"]]
        features, streamed = self.embed(batch["image"], target)
        logits = self.scale * F.linear(features, self.pairs()[self.seen])
        return _terms(logits, streamed)

    def rows(self) -> tuple[Tensor, Tensor | None]:
        """The embeddings of all pairs."""
        return self.pairs(), None

    def parts(self) -> PairParts:
        """What the row of any pair is computed from."""
        return self.pairs.parts()


class MatchOpenPairs(PairMethod):
    """Match images with all pairs of an attribute and an object, most of them implausible.

    Unseen pairs compete with the seen ones in the loss, with a margin of -`margin` times their
    feasibility, which grows over the first `ramp` of training. The feasibility is computed once an
    epoch. Pairs with a feasibility below `threshold` are not predicted.

    Args:
        network: from images to unit embeddings (N, dim).
        pairs: the embeddings (C, dim) of all pairs.
        seen: (C,), whether a pair has training images.
        scale: factor of the cosines.
        margin: factor of the feasibility.
        ramp: share of training in which the margin grows.
        neck: applied in training only.
        neck_at: after the network, or before the last layers of an `Embedded` one.

    Mancini et al., "Open World Compositional Zero-Shot Learning", CVPR 2021.
    """

    seen: Tensor
    feasibility: Tensor
    threshold: Tensor

    def __init__(
        self,
        network: Network,
        pairs: ComposedPairs,
        seen: Tensor,
        *,
        scale: float = 20.0,
        margin: float = 0.4,
        ramp: float = 0.3,
        neck: Neck | None = None,
        neck_at: NeckAt = "network",
    ) -> None:
        super().__init__(network, scale=scale, neck=neck, neck_at=neck_at)
        self.pairs, self.margin, self.ramp = pairs, margin, ramp
        self.register_buffer("seen", seen.clone(), persistent=False)
        self.register_buffer("feasibility", torch.ones(len(seen)))
        self.register_buffer("threshold", torch.tensor(-torch.inf))
        self.update_feasibility()

    @torch.no_grad()
    def update_feasibility(self) -> None:
        """Compute the feasibility of all pairs from the current embeddings of their parts."""
        pairs = self.pairs
        scores = feasibility(pairs.attribute, pairs.object, pairs.pairs, self.seen)
        self.feasibility.copy_(scores)

    def forward(self, batch: Labelled, clock: Clock) -> Outcome:
        """One term for each stream of the neck; without a neck, "class"."""
        features, streamed = self.embed(batch["image"], batch["target"])
        share = min(1.0, clock.progress / self.ramp) if self.ramp else 1.0
        margin = (self.margin * share * self.feasibility).masked_fill(self.seen, 0.0)
        logits = self.scale * (F.linear(features, self.pairs()) - margin)
        return _terms(logits, streamed)

    def after_step(self, outcome: Outcome, clock: Clock) -> None:
        """Compute the feasibility after the last step of an epoch."""
        if (clock.step + 1) % max(1, clock.steps // clock.epochs) == 0:
            self.update_feasibility()

    def rows(self) -> tuple[Tensor, Tensor | None]:
        """The embeddings of all pairs, and a large negative bias of implausible ones."""
        bias = torch.where(self.feasibility < self.threshold, EXCLUDED, 0.0)
        rows = self.pairs()
        return rows, bias.to(rows)

    def parts(self) -> PairParts:
        """What the row of any pair is computed from."""
        return self.pairs.parts()


class ClassifyParts(PairMethod):
    """Two classifiers, for the attribute and for the object; a pair's score is their product.

    The logarithm of the product of two softmax probabilities is, up to a constant of the image, the
    sum of two logits: so the head of the pairs is linear as well.

    Args:
        network: from images to features (N, dim).
        pairs: (C, 2), the numbers of attribute and object of each pair.
        attributes: number of attributes.
        objects: number of objects.
        neck: applied before the two classifiers.
    """

    pairs: Tensor

    def __init__(
        self,
        network: Network,
        pairs: Tensor,
        *,
        attributes: int,
        objects: int,
        neck: Neck | None = None,
    ) -> None:
        super().__init__(network, scale=1.0, neck=neck, neck_at="network")
        self.register_buffer("pairs", pairs.clone(), persistent=False)
        self.attribute = nn.Linear(network.dim, attributes)
        self.object = nn.Linear(network.dim, objects)

    def forward(self, batch: Labelled, clock: Clock) -> Outcome:
        """The terms "attribute" and "object" of each stream of the neck."""
        a, o = self.pairs[batch["target"]].unbind(1)
        features, streamed = self.embed(batch["image"], a, o)
        terms, notes = dict[str, Tensor](), dict[str, Tensor]()
        heads = {"attribute": self.attribute, "object": self.object}
        for (part, head), target in zip(heads.items(), streamed.aligned, strict=True):
            losses = {
                name: F.cross_entropy(head(features[rows]), target[rows])
                for name, (rows, _) in streamed.streams.items()
            }
            weighted, logged = streamed.weighted(losses)
            for stream in losses:
                name = part if stream == "class" else f"{part}/{stream}"
                terms |= {name: weighted[stream]} if stream in weighted else {}
                notes |= {name: logged[stream]} if stream in logged else {}
        return Outcome(terms, notes)

    def rows(self) -> tuple[Tensor, Tensor | None]:
        """The sums of the weights, and of the biases, of each pair's attribute and object."""
        return self.parts().rows(self.pairs)

    def parts(self) -> PairParts:
        """The weights and biases of both classifiers."""
        return PairParts(
            self.attribute.weight,
            self.object.weight,
            self.attribute.bias,
            self.object.bias,
            unit=False,
        )


def _terms(logits: Tensor, streamed: Streamed) -> Outcome:
    (target,) = streamed.aligned
    losses = {
        name: F.cross_entropy(logits[rows], target[rows])
        for name, (rows, _) in streamed.streams.items()
    }
    return Outcome(*streamed.weighted(losses))
