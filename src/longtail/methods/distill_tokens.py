"""Distillation through tokens, from labels and a teacher (DeiT-LT, Rangwani et al., CVPR 2024)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from longtail.core import Clock, Labelled, Method, Outcome, Schedule, constant
from longtail.errors import LongtailError
from longtail.losses import CrossEntropy
from longtail.losses.reduction import at_least_float32, to_soft_targets
from longtail.nn import Classifier, Network, TokenHeads
from longtail.nn.networks import check_head


class Taught(Labelled):
    """Labelled images, and for each what a teacher predicts: classes (N,) or shares (N, C)."""

    teacher_target: Tensor


@dataclass(frozen=True)
class Release:
    """The weight of the teacher: 1 before `start` of training, then linearly down to 0 at `end`.

    >>> trust = Release(0.5, 0.75)
    >>> [trust(Clock(step, 8, 0, 1)) for step in (0, 4, 5, 6, 7)]
    [1.0, 1.0, 0.5, 0.0, 0.0]
    """

    start: float
    end: float = 1.0

    def __post_init__(self) -> None:
        if not 0 <= self.start < self.end <= 1:
            raise LongtailError(
                f"expected fractions of training with 0 <= start < end <= 1, got start {self.start}"
                f" and end {self.end}"
            )

    def __call__(self, clock: Clock) -> float:
        return min(1.0, max(0.0, (self.end - clock.progress) / (self.end - self.start)))


class DistillTokens(Method[Taught]):
    """Train the class token with labels and the distillation token with a teacher's labels.

    DeiT-LT, the equation of section 3.1: 1/2 CE(cls, target) + 1/2 CE(dist, teacher_target). The
    head says how both become a prediction. The teacher's labels, its class or its probabilities,
    come with the batch (`longtail.data.teacher_labels.AddTeacherLabels`); the teacher is not part
    of this method.

    Args:
        network: a transformer with a distillation token (`pool="tokens"`).
        head: the heads of both tokens.
        loss: the loss of the class token.
        weights: class weights of the distillation loss as a function of the clock, by the teacher's
            class, such as `Deferred(class_balanced_weights(counts), start)`.
        trust: the share of the teacher's label in the target of the distillation token; the rest is
            the true target. See `Release`, which addresses a limitation that the paper states.

    Notes: `distance`, 1 - cosine between the two tokens; `agreement`, how often the teacher's class
    (its most probable one) is the target's largest; `follows`, how often the distillation token
    predicts the teacher's class.

    >>> from longtail.nn import build
    >>> network = build({"name": "vit_mini", "size": 8, "width": 16, "depth": 1, "pool": "tokens"})
    >>> method = DistillTokens(network, TokenHeads(network.dim, 3), CrossEntropy(smoothing=0.1))
    >>> image, target = torch.rand(2, 3, 8, 8), torch.tensor([0, 1])
    >>> images: Labelled = {"image": image, "target": target, "position": torch.arange(2)}
    >>> outcome = method({**images, "teacher_target": torch.tensor([0, 2])}, Clock(0, 1, 0, 1))
    >>> list(outcome.terms), list(outcome.notes), outcome.notes["agreement"].item()
    (['cls', 'dist'], ['distance', 'agreement', 'follows'], 0.5)
    """

    def __init__(
        self,
        network: Network,
        head: TokenHeads,
        loss: nn.Module,
        *,
        weights: nn.Module | None = None,
        trust: Schedule = constant,
    ) -> None:
        super().__init__()
        if network.spec.get("pool") != "tokens":
            raise LongtailError(
                f"{network.spec['name']} has no distillation token: build the network with"
                " pool='tokens', which vit_mini, vit_tiny and timm's deit_*_distilled_* support"
            )
        check_head(network, head)
        self.network, self.head, self.loss, self.imitation = network, head, loss, CrossEntropy()
        self.weights, self.trust = weights, trust

    def forward(self, batch: Taught, clock: Clock) -> Outcome:
        """Two terms, "cls" and "dist"."""
        if "teacher_target" not in batch:
            raise LongtailError(
                "the batch has no teacher_target: add longtail.data.teacher_labels.AddTeacherLabels"
                " to the stage's mix"
            )
        features = self.network(batch["image"])
        cls, dist = self.head.named(features).values()
        target, teacher, trust = batch["target"], batch["teacher_target"], self.trust(clock)
        taught = teacher
        if trust < 1:
            taught = trust * to_soft_targets(teacher, at_least_float32(dist)) + (
                1 - trust
            ) * to_soft_targets(target, at_least_float32(dist))
        weight = None if self.weights is None else self.weights(clock)
        terms = {
            "cls": 0.5 * self.loss(cls, target),
            "dist": 0.5 * self.imitation(dist, taught, weight=weight),
        }
        with torch.no_grad():
            hard, predicted = (
                label if label.ndim == 1 else label.argmax(1) for label in (target, teacher)
            )
            notes = {
                "distance": 1 - F.cosine_similarity(*features.chunk(2, 1)).mean(),
                "agreement": (hard == predicted).to(features.dtype).mean(),
                "follows": (dist.argmax(1) == predicted).to(features.dtype).mean(),
            }
        return Outcome(terms, notes=notes)

    def predict(self, image: Tensor) -> Tensor:
        """The prediction of both tokens; by default the mean of their logits."""
        return self.head(self.network(image))  # type: ignore[no-any-return]

    def heads(self, image: Tensor) -> Mapping[str, Tensor]:
        """The output of `predict` as "logits", and the logits of each token as "cls" and "dist"."""
        return self.deploy().heads(image)

    def deploy(self) -> Classifier:
        """The network and both heads; they share their weights with this method."""
        return Classifier(self.network, self.head)
