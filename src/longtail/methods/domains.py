"""Domain generalisation: cross entropy, a penalty between domains, and mixed styles."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from typing import Any

from torch import Tensor, nn

from longtail.core import Clock, Outcome
from longtail.errors import LongtailError
from longtail.losses import CrossEntropy
from longtail.losses.domains import DomainPenalty
from longtail.methods.classify import Classify
from longtail.nn import Head, Neck, Network
from longtail.nn.hidden import after, stages
from longtail.nn.mixstyle import MixStyle
from longtail.nn.networks import takes_vectors


class AcrossDomains(Classify):
    """Train a classifier on several domains for another one: ERM, CORAL, IRM, V-REx, MixStyle.

    Batches have the column "domain". The penalty compares the domains of each stream of the neck
    separately: rows with and without BatchFormer never count as one domain. (In the released code
    for IRM with BatchFormer, the compared parts are mixtures of domains and streams.)

    Args:
        network: from images to features (N, dim).
        head: from features to logits.
        penalty: one of `longtail.losses.domains`; none is ERM.
        penalty_weight: its weight from `anneal` of training on; before, it is 1.
        anneal: share of training.
        style: applied after these stages of the network, with `style_stages`.
        style_stages: positions in `nn.hidden.stages(network)`, from 0 on.
        dropout: between the neck and the head.
        freeze_batchnorm: whether batch norms of the network keep their statistics.
        neck: applied during training only, such as `Streams(BatchFormer(dim))`.
    """

    def __init__(
        self,
        network: Network,
        head: Head,
        *,
        penalty: DomainPenalty | None = None,
        penalty_weight: float = 1.0,
        anneal: float = 0.0,
        style: MixStyle | None = None,
        style_stages: Sequence[int] = (0, 1),
        dropout: float = 0.0,
        freeze_batchnorm: bool = False,
        neck: Neck | None = None,
    ) -> None:
        super().__init__(network, head, CrossEntropy(), neck=neck)
        self.penalty, self.penalty_weight, self.anneal = penalty, penalty_weight, anneal
        self.style, self.dropout = style, nn.Dropout(dropout)
        self.freeze_batchnorm, self.style_stages = freeze_batchnorm, tuple(style_stages)
        if style is not None:
            _check_stages(network, self.style_stages)

    def forward(self, batch: Any, clock: Clock) -> Outcome:
        """One term for each stream of the neck, and one for its penalty."""
        domain = batch["domain"]
        with self._mixed_styles(domain):
            features = self.network(batch["image"])
        streamed = self.neck(features, batch["target"], domain)
        features, streams, (target, domain) = streamed
        logits = self.head(self.dropout(features))
        losses = {
            name: self.loss(logits[rows], target[rows]) for name, (rows, _) in streams.items()
        }
        terms, notes = streamed.weighted(losses)
        weight = 1.0 if clock.progress < self.anneal else self.penalty_weight
        for name, (rows, stream_weight) in streams.items():
            if self.penalty is not None and stream_weight != 0:
                penalty = self.penalty(features[rows], logits[rows], target[rows], domain[rows])
                terms[f"{name}_penalty"] = stream_weight * weight * penalty
        return Outcome(terms, notes)

    def _mixed_styles(self, domain: Tensor) -> contextlib.AbstractContextManager[None]:
        style = self.style
        if style is None:
            return contextlib.nullcontext()
        chosen = [stages(self.network)[number] for number in self.style_stages]  # type: ignore[arg-type]
        return after(chosen, lambda maps: style(maps, domain))

    def train(self, mode: bool = True) -> AcrossDomains:
        """Set the mode; frozen batch norms stay in eval mode."""
        super().train(mode)
        if self.freeze_batchnorm:
            for module in self.network.modules():
                if isinstance(module, nn.modules.batchnorm._BatchNorm):
                    module.eval()
        return self


def _check_stages(network: Network, chosen: Sequence[int]) -> None:
    if takes_vectors(network):
        raise LongtailError(
            "MixStyle needs feature maps, and this data has feature vectors: use a dataset of"
            " images, or another method"
        )
    known = len(stages(network))
    if not chosen or not all(0 <= number < known for number in chosen):
        raise LongtailError(
            f"{network.spec['name']} has the stages 1 to {known}, got"
            f" {', '.join(str(number + 1) for number in chosen) or 'none'} for MixStyle"
        )
