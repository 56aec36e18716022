"""Diverse experts on a shared trunk (RIDE, Wang et al., ICLR 2021)."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor, nn

from longtail.core import Clock, Labelled, Method, Outcome
from longtail.losses.experts import Diversity, sum_of_divergences
from longtail.nn import Classifier, CosineExperts, Frozen, Neck, Network
from longtail.nn.neck import checked
from longtail.nn.networks import check_head


class Ride(Method[Labelled]):
    """Train diverse experts, and predict the mean of their logits.

    Args:
        network: with concatenated features of the experts, such as "resnet32_experts".
        head: a classifier for each expert.
        loss: summed over experts; LDAM in RIDE.
        diversity: the divergence of the experts from their mean, added to the loss.
        neck: one for all experts, such as `Streams(BatchFormer(dim))`; each stream has all losses.
        weights: class weights of the loss as a function of the clock, such as `schedules.Deferred`.
        temperature: class temperatures of the diversity as a function of the clock.
        teacher: adds the divergence of the experts' mean from its logits.
        distill_temperature: of that divergence.

    >>> from longtail.losses import LDAM
    >>> from longtail.nn import build
    >>> network = build({"name": "fast_cnn_experts", "size": 8, "width": 8, "experts": 2})
    >>> head = CosineExperts(network.dim, 3, experts=2)
    >>> loss = LDAM(torch.tensor([9, 3, 1]), max_margin=15.0, scale=1.0)
    >>> method = Ride(network, head, loss, diversity=Diversity(-0.45))
    >>> image, target = torch.rand(4, 3, 8, 8), torch.tensor([0, 0, 1, 2])
    >>> batch: Labelled = {"image": image, "target": target, "position": torch.arange(4)}
    >>> list(method(batch, Clock(0, 1, 0, 1)).terms)
    ['class', 'class_diversity']
    >>> list(method.eval().heads(image))
    ['logits', 'expert1', 'expert2']
    """

    def __init__(
        self,
        network: Network,
        head: CosineExperts,
        loss: nn.Module,
        *,
        diversity: Diversity,
        neck: Neck | None = None,
        weights: nn.Module | None = None,
        temperature: nn.Module | None = None,
        teacher: Frozen | None = None,
        distill_temperature: float = 1.0,
    ) -> None:
        super().__init__()
        check_head(network, head)
        self.network, self.head, self.loss, self.diversity = network, head, loss, diversity
        self.neck, self.weights, self.temperature = checked(neck), weights, temperature
        self.teacher, self.distill_temperature = teacher, distill_temperature

    def forward(self, batch: Labelled, clock: Clock) -> Outcome:
        """For each stream its loss, "STREAM_diversity" and, with a teacher, "STREAM_distill"."""
        target, weight, temperature = (
            batch["target"],
            self._at(self.weights, clock),
            self._at(self.temperature, clock),
        )
        teacher_logits = self.teacher(batch["image"]) if self.teacher is not None else None
        # One neck for all experts, and each expert's rows attend to each other only.
        parts = [
            self.neck(rows) for rows in self.network(batch["image"]).chunk(len(self.head.parts), 1)
        ]
        logits = torch.stack(
            [head(part.features) for head, part in zip(self.head.parts, parts, strict=True)]
        )
        terms, notes = {}, {}
        for name, (rows, factor) in parts[0].streams.items():
            stream_logits = logits[:, rows]
            classes = torch.stack(
                [self.loss(expert, target, weight=weight) for expert in stream_logits]
            ).sum()
            if factor == 0:
                notes[name] = classes.detach()
                continue
            terms[name] = factor * classes
            terms[f"{name}_diversity"] = factor * self.diversity(
                stream_logits, temperature=temperature
            )
            if teacher_logits is not None:
                terms[f"{name}_distill"] = factor * sum_of_divergences(
                    teacher_logits,
                    stream_logits.mean(0, keepdim=True),
                    temperature=self.distill_temperature,
                )
        return Outcome(terms, notes=notes)

    @staticmethod
    def _at(part: nn.Module | None, clock: Clock) -> Tensor | None:
        return None if part is None else part(clock)

    def predict(self, image: Tensor) -> Tensor:
        """The mean of the experts' logits."""
        return self.head(self.network(image))  # type: ignore[no-any-return]

    def heads(self, image: Tensor) -> Mapping[str, Tensor]:
        """The output of `predict` as "logits", and the logits of each expert."""
        return self.deploy().heads(image)

    def deploy(self) -> Classifier:
        """The network and the head; they share their weights with this method."""
        return Classifier(self.network, self.head)
