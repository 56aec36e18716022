"""Contrast with centres that are learnt (PaCo, Cui et al., ICCV 2021)."""

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
    """A network and the two layers that make its features comparable: unit rows (N, dim)."""

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
        """Unit rows (N, dim) for features (N, network.dim)."""
        return F.normalize(self.projector(features), dim=1)


class PaCo(Method[LabelledViews]):
    """Classify the first view of each image while contrasting it with second views, and with those
    of
    the last batches.

    The keys come from a copy of network and projector that follows them slowly, with `momentum`,
    and go into a queue of `size` rows; both move after the step only. The head's rows are the
    centres of the classes, contrasted together with the images, and they classify: what is deployed
    is the network and the head.

    A neck such as `Streams(BatchFormer(dim))` works on queries and on keys, and the centres see
    both its streams: one module in all three places, as BatchFormer's appendix asks, trained by the
    queries alone. Keys enter the queue as they were without it.

    >>> from longtail.nn import build
    >>> network, counts = build({"name": "fast_cnn", "size": 8, "width": 8}), torch.tensor([9, 3, 1])
    >>> method = PaCo(network, Linear(network.dim, 3), ParametricContrastive(counts), dim=8, size=16)
    >>> views = {"view1": torch.rand(4, 3, 8, 8), "view2": torch.rand(4, 3, 8, 8)}
    >>> outcome = method({**views, "target": torch.tensor([0, 0, 1, 2]), "position": torch.arange(4)}, Clock(0, 1, 0, 1))
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
        # No class: the rows that fill the queue at first are nobody's positives. Whole numbers stay
        # so when the method is made bfloat16.
        self.labels.stored = torch.full((size, 1), -1)
        self.momentum, self.neck = momentum, checked(neck)

    def forward(self, batch: LabelledViews, clock: Clock) -> Outcome:
        """One term for each stream of the neck; without one, "class"."""
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
        """The copy follows, and the keys are remembered."""
        torch._foreach_lerp_(
            list(self.key.parameters()), list(self.query.parameters()), 1 - self.momentum
        )
        self.queue.push(outcome.carry["keys"])
        self.labels.push(outcome.carry["target"][:, None])

    def predict(self, image: Tensor) -> Tensor:
        """Logits, of the network and the head alone."""
        return self.head(self.query.network(image))  # type: ignore[no-any-return]

    def deploy(self) -> Classifier:
        """The network and the head, sharing their weights with this method."""
        return Classifier(self.query.network, self.head)
