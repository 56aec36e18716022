"""Adapt a classifier to unlabelled images with the margin disparity discrepancy."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from longtail.core import Clock, Labelled, Method, Outcome, Schedule
from longtail.errors import LongtailError
from longtail.nn import Classifier, Embedded, Head, Neck, Streamed
from longtail.nn.neck import Stream, checked

OFFSET = 1e-6
"""Added to a probability before its logarithm, as in the released code."""


class Adapted(Labelled):
    """A batch of labelled source images, and one of target images without labels."""

    unlabelled_image: Tensor


class _Reverse(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, features: Tensor, factor: float) -> Tensor:
        ctx.factor = factor
        return features.view_as(features)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None]:
        return -ctx.factor * gradients[0], None


def reverse_gradient(features: Tensor, factor: float) -> Tensor:
    """The identity, whose gradient is multiplied by -`factor` (Ganin & Lempitsky 2015).

    >>> x = torch.ones(1, requires_grad=True)
    >>> reverse_gradient(2 * x, 0.1).backward()
    >>> round(x.grad.item(), 6)
    -0.2
    """
    reversed_: Tensor = _Reverse.apply(features, factor)
    return reversed_


def source_disparity(adversary: Tensor, logits: Tensor) -> Tensor:
    """The mean cross entropy of the adversary's logits (N, C) with the classes of `logits`."""
    return F.cross_entropy(adversary, logits.argmax(1))


def target_disparity(adversary: Tensor, logits: Tensor) -> Tensor:
    """The mean of -log(1 - p), where p is the adversary's probability of the class of `logits`."""
    chosen = adversary.softmax(1).gather(1, logits.argmax(1, keepdim=True))
    return -(1 - chosen + OFFSET).clamp_max(1.0).log().mean()


class MDD(Method[Adapted]):
    """Margin disparity discrepancy (Zhang et al. 2019): an adversary that disagrees on the target.

    A second head, the adversary, learns to agree with the classifier on source images and to
    disagree with it on target images; `gamma` weights the first, and its logarithm is the margin.
    The gradient of the adversary is reversed before the bottleneck, so that the features make this
    impossible: then the classifier cannot tell the domains apart. The loss is

        CE(h(s), y) + trade_off * (gamma * CE(h'(s), h(s)) - mean log(1 - softmax(h'(t))[h(t)]))

    Source and target images are one batch: batch norm and BatchFormer reach across both. With
    BatchFormer each stream has the complete loss, with the classes that it predicts itself.

    Args:
        network: the bottleneck and the hidden layer of the head, `Embedded(Embedded(backbone, ...),
            ...)`.
        head: from the hidden layer to logits.
        adversary: from the bottleneck to logits.
        gamma: weight of the disparity on source images.
        trade_off: weight of the disparities; with 0 the target is not adapted to.
        reversal: the factor of the reversed gradient, as a function of the clock.
        neck: applied while training, such as `Streams(BatchFormer(dim))`.
        neck_on: "bottleneck" applies the neck to the output of the bottleneck, "backbone" to its
            input, as in the released code; then batch norm normalises each stream by itself, and
            only the plain one moves its statistics.
    """

    def __init__(
        self,
        network: Embedded,
        head: Head,
        adversary: nn.Module,
        *,
        gamma: float = 4.0,
        trade_off: float = 1.0,
        reversal: Schedule,
        neck: Neck | None = None,
        neck_on: str = "bottleneck",
    ) -> None:
        super().__init__()
        if not isinstance(network.network, Embedded):
            raise LongtailError(
                "MDD needs a bottleneck and a hidden layer: "
                "Embedded(Embedded(backbone, [1024], norm='batch'), [1024])"
            )
        if neck_on not in ("bottleneck", "backbone"):
            raise LongtailError(f"neck_on must be 'bottleneck' or 'backbone', got {neck_on!r}")
        if gamma <= 0 or trade_off < 0:
            raise LongtailError(
                f"gamma must be positive and trade_off at least 0, got {gamma} and {trade_off}"
            )
        self.network, self.head, self.adversary = network, head, adversary
        self.gamma, self.trade_off, self.reversal = gamma, trade_off, reversal
        self.neck, self.neck_on = checked(neck), neck_on

    def forward(self, batch: Adapted, clock: Clock) -> Outcome:
        """Three terms for each stream: the class, and the disparities on source and target."""
        target, sources = batch["target"], len(batch["target"])
        streamed = self._features(torch.cat([batch["image"], batch["unlabelled_image"]]))
        logits = self.head(self.network.layers(streamed.features))
        reversed_ = reverse_gradient(streamed.features, self.reversal(clock))
        adversary = self.adversary(reversed_)
        losses: dict[str, dict[str, Tensor]] = {"": {}, "_source": {}, "_target": {}}
        for name, (rows, _) in streamed.streams.items():
            source, unlabelled = logits[rows][:sources], logits[rows][sources:]
            on_source, on_target = adversary[rows][:sources], adversary[rows][sources:]
            losses[""][name] = F.cross_entropy(source, target)
            losses["_source"][name] = (
                self.trade_off * self.gamma * source_disparity(on_source, source.detach())
            )
            losses["_target"][name] = self.trade_off * target_disparity(
                on_target, unlabelled.detach()
            )
        terms: dict[str, Tensor] = {}
        notes: dict[str, Tensor] = {}
        for suffix, by_stream in losses.items():
            weighted, noted = streamed.weighted(by_stream)
            terms |= {f"{name}{suffix}": value for name, value in weighted.items()}
            notes |= {f"{name}{suffix}": value for name, value in noted.items()}
        return Outcome(terms, notes)

    def _features(self, image: Tensor) -> Streamed:
        """The bottleneck's features of all streams."""
        bottleneck = self.network.network
        assert isinstance(bottleneck, Embedded)
        if self.neck_on == "bottleneck":
            return self.neck(bottleneck(image))  # type: ignore[no-any-return]
        streamed: Streamed = self.neck(bottleneck.network(image))
        return streamed._replace(
            features=_by_stream(bottleneck.layers, streamed.features, streamed.streams)
        )

    def predict(self, image: Tensor) -> Tensor:
        """Logits of the network and the head, without neck and adversary."""
        return self.head(self.network(image))  # type: ignore[no-any-return]

    def deploy(self) -> Classifier:
        """The network and the head; they share their weights with this method."""
        return Classifier(self.network, self.head)


def _by_stream(layers: nn.Module, features: Tensor, streams: Mapping[str, Stream]) -> Tensor:
    """Apply layers to each stream by itself; only the first moves the statistics of batch norm."""
    parts = []
    for number, (rows, _) in enumerate(streams.values()):
        with _still_statistics(layers) if number else contextlib.nullcontext():
            parts.append(layers(features[rows]))
    return torch.cat(parts)


@contextlib.contextmanager
def _still_statistics(module: nn.Module) -> Iterator[None]:
    """Let batch norms normalise by their batch without moving their running statistics."""
    norms = [part for part in module.modules() if isinstance(part, _BatchNorm)]
    before = [norm.momentum for norm in norms]
    try:
        for norm in norms:
            norm.momentum = 0.0
        yield
    finally:
        for norm, momentum in zip(norms, before, strict=True):
            norm.momentum = momentum
