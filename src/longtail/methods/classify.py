"""Train a classifier: a network, a head, a loss, and optionally a neck."""

from __future__ import annotations

import inspect

from torch import Tensor, nn

from longtail.core import Clock, Labelled, Method, Outcome
from longtail.errors import LongtailError
from longtail.nn import Classifier, Frozen, Head, Neck, Network, Streamed
from longtail.nn.neck import checked


class Classify(Method[Labelled]):
    """Train a classifier with any loss of `longtail.losses`.

    Args:
        network: from images (N, 3, size, size) to features (N, dim); `Frozen` for a linear probe.
        head: from features to logits.
        loss: takes (logits, target, *, weight, rows, features).
        neck: applied during training only, such as `Streams(BatchFormer(dim))`; its streams are
            logged as separate terms, those of weight 0 as notes.
        weights: class weights as a function of the clock, such as `schedules.Deferred`.

    >>> import torch
    >>> from longtail.losses import CrossEntropy
    >>> from longtail.nn import Linear, build
    >>> network = build({"name": "fast_cnn", "size": 8, "width": 8})
    >>> method = Classify(network, Linear(network.dim, 10), CrossEntropy())
    >>> image, target = torch.rand(4, 3, 8, 8), torch.tensor([0, 1, 2, 3])
    >>> batch: Labelled = {"image": image, "target": target, "position": torch.arange(4)}
    >>> list(method(batch, Clock(0, 1, 0, 1)).terms)
    ['class']
    """

    def __init__(
        self,
        network: Network | Frozen,
        head: Head,
        loss: nn.Module,
        *,
        neck: Neck | None = None,
        weights: nn.Module | None = None,
    ) -> None:
        super().__init__()
        named = inspect.signature(loss.forward).parameters
        if not {"weight", "features"} <= {*named} and not any(
            p.kind is p.VAR_KEYWORD for p in named.values()
        ):
            raise LongtailError(
                "expected a loss (logits, target, *, weight, rows, features), got"
                f" {type(loss).__name__}, which takes {', '.join(named)}: use one of"
                " longtail.losses, such as CrossEntropy"
            )
        self.network, self.head, self.loss = network, head, loss
        self.neck, self.weights = checked(neck), weights

    def forward(self, batch: Labelled, clock: Clock) -> Outcome:
        """One term for each stream of the neck; without a neck, "class"."""
        streamed: Streamed = self.neck(self.network(batch["image"]), batch["target"])
        features, streams, (target,) = streamed
        logits = self.head(features)
        weight = self.weights(clock) if self.weights is not None else None
        losses = {
            name: self.loss(logits[rows], target[rows], weight=weight, features=features[rows])
            for name, (rows, _) in streams.items()
        }
        return Outcome(*streamed.weighted(losses))

    def predict(self, image: Tensor) -> Tensor:
        """Logits of the network and the head, without the neck."""
        return self.head(self.network(image))  # type: ignore[no-any-return]

    def deploy(self) -> Classifier:
        """The network and the head; they share their weights with this method."""
        network = self.network.module if isinstance(self.network, Frozen) else self.network
        if not isinstance(network, Network):
            raise LongtailError(
                f"expected a network built from a spec, got {type(network).__name__}: use"
                " longtail.nn.build"
            )
        return Classifier(
            network, self.head, confidence=getattr(self.loss, "confidence", "softmax")
        )
