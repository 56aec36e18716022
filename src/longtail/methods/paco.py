"""Parametric contrastive learning (PaCo, Cui et al., ICCV 2021)."""

from __future__ import annotations

import copy

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from longtail.core import Clock, LabelledViews, Method, Outcome
from longtail.errors import LongtailError
from longtail.losses.paco import ParametricContrastive
from longtail.nn import Classifier, Linear, Neck, Network, Queue, Streamed
from longtail.nn.neck import checked


class Projected(nn.Module):
    """A network with a projector of two layers to unit vectors (N, dim)."""

    def __init__(self, network: Network, dim: int) -> None:
        super().__init__()
        self.network = network
        self.projector = nn.Sequential(
            nn.Linear(network.dim, network.dim, bias=False),
            nn.BatchNorm1d(network.dim),
            nn.ReLU(),
            nn.Linear(network.dim, dim),
        )

    def project(self, features: Tensor) -> Tensor:
        """Unit vectors (N, dim) for features (N, network.dim)."""
        return F.normalize(self.projector(features), dim=1)


class PaCo(Method[LabelledViews]):
    """Classify the first view of each image, and contrast it with second views and a queue.

    The keys come from a momentum copy of network and projector and go into a queue; both are
    updated after the step only. The rows of the head are the centres of the classes: they are
    contrasted together with the images, and they classify. The network and the head are deployed.

    Args:
        network: from images to features.
        head: its rows are the class centres.
        loss: the parametric contrastive loss.
        dim: width of the projections.
        size: rows of the queue.
        momentum: of the copy.
        neck: such as `Streams(BatchFormer(dim))`. One module is applied to queries, to keys and
            before the centres, as in BatchFormer's appendix, and is trained by the queries alone.
            The keys of the plain rows enter the queue.

    >>> from longtail.nn import build
    >>> network = build({"name": "fast_cnn", "size": 8, "width": 8})
    >>> loss = ParametricContrastive(torch.tensor([9, 3, 1]))
    >>> method = PaCo(network, Linear(network.dim, 3), loss, dim=8, size=16)
    >>> batch = {"view1": torch.rand(4, 3, 8, 8), "view2": torch.rand(4, 3, 8, 8)}
    >>> batch |= {"target": torch.tensor([0, 0, 1, 2]), "position": torch.arange(4)}
    >>> outcome = method(batch, Clock(0, 1, 0, 1))
    >>> list(outcome.terms), outcome.carry["keys"].shape
    (['class'], torch.Size([4, 8]))
    """

    def __init__(
        self,
        network: Network,
        head: Linear,
        loss: ParametricContrastive,
        *,
        dim: int = 32,
        size: int = 1024,
        momentum: float = 0.999,
        neck: Neck | None = None,
    ) -> None:
        super().__init__()
        if not 0 <= momentum < 1:
            raise LongtailError(f"expected a momentum in [0, 1), got {momentum}")
        self.query, self.head, self.loss = Projected(network, dim), head, loss
        self.key = copy.deepcopy(self.query).requires_grad_(False)
        self.queue, self.labels = Queue(dim, size), Queue(1, size)
        # -1 is no class: the initial random rows are not positives of any image. Integers, which
        # are not converted when the method becomes bfloat16.
        self.labels.stored = torch.full((size, 1), -1)
        self.momentum, self.neck = momentum, checked(neck)

    def forward(self, batch: LabelledViews, clock: Clock) -> Outcome:
        """One term for each stream of the neck; without a neck, "class"."""
        streamed: Streamed = self.neck(self.query.network(batch["view1"]), batch["target"])
        features, streams, (target,) = streamed
        with torch.no_grad():
            keys = self.key.project(self.neck(self.key.network(batch["view2"])).features)
        losses = self.loss.per_sample(
            self.head(features),
            target,
            anchors=self.query.project(features),
            others=torch.cat([keys, self.queue()]),
            labels=torch.cat([target, self.labels().flatten()]),
        )
        means = {name: losses[rows].mean() for name, (rows, _) in streams.items()}
        # Plain rows come first.
        return Outcome(
            *streamed.weighted(means),
            carry={"keys": keys[: len(batch["target"])], "target": batch["target"]},
        )

    @torch.no_grad()
    def after_step(self, outcome: Outcome, clock: Clock) -> None:
        """Update the momentum copy, and push the keys into the queue."""
        torch._foreach_lerp_(
            list(self.key.parameters()), list(self.query.parameters()), 1 - self.momentum
        )
        self.queue.push(outcome.carry["keys"])
        self.labels.push(outcome.carry["target"][:, None])

    def predict(self, image: Tensor) -> Tensor:
        """Logits of the network and the head, without the neck."""
        return self.head(self.query.network(image))  # type: ignore[no-any-return]

    def deploy(self) -> Classifier:
        """The network and the head; they share their weights with this method."""
        return Classifier(self.query.network, self.head)
