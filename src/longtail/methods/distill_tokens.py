"""Two experts in one transformer: one learns from labels, the other from a teacher (DeiT-LT,
Rangwani et al., CVPR 2024).
"""

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


class Taught(Labelled):
    """Labelled images, and the class that a teacher sees in each."""

    teacher_target: Tensor


@dataclass(frozen=True)
class Release:
    """Trust in the teacher: all of it before `start` of training, then less and less, none from
    `end`
    on.

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
    """Train the class token with labels, the distillation token with a teacher's classes, half and
    half; answer with their mean logits.

    DeiT-LT, the equation of section 3.1: 1/2 CE(cls, target) + 1/2 CE(dist, teacher_target), the
    second re-weighted late by `weights`, such as `Deferred(class_balanced_weights(counts), start)`,
    by the teacher's class, as a weighted mean. `loss` is the first one. The labels come with the
    batch (`longtail.data.teacher_labels.AddTeacherLabels`); the teacher is no part of this method.
    With a `trust` below 1 the distillation token learns that share of the teacher's class and the
    rest of the target (see `Release`): the paper's stated limitation.

    Notes: `distance`, 1 - cosine between the two tokens; `agreement`, how often the teacher's class
    is the target's largest; `follows`, how often the distillation token answers with the teacher's
    class.

    >>> from longtail.nn import build
    >>> network = build({"name": "vit_mini", "size": 8, "width": 16, "depth": 1, "pool": "tokens"})
    >>> method = DistillTokens(network, TokenHeads(network.dim, 3), CrossEntropy(smoothing=0.1))
    >>> images: Labelled = {"image": torch.rand(2, 3, 8, 8), "target": torch.tensor([0, 1]), "position": torch.arange(2)}
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
                f"expected a network with a distillation token, got {network.spec['name']} without:"
                " build it with pool='tokens', which vit_mini, vit_tiny and timm's"
                " deit_*_distilled_* know"
            )
        if network.dim != head.spec["dim"]:
            raise LongtailError(
                f"expected heads for the {network.dim} features of the network, got heads for"
                f" {head.spec['dim']}"
            )
        self.network, self.head, self.loss, self.imitation = network, head, loss, CrossEntropy()
        self.weights, self.trust = weights, trust

    def forward(self, batch: Taught, clock: Clock) -> Outcome:
        """Two terms, "cls" and "dist"."""
        if "teacher_target" not in batch:
            raise LongtailError(
                "expected the teacher's classes in the batch, got none: put"
                " longtail.data.teacher_labels.AddTeacherLabels into the stage's mix"
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
            hard = target if target.ndim == 1 else target.argmax(1)
            notes = {
                "distance": 1 - F.cosine_similarity(*features.chunk(2, 1)).mean(),
                "agreement": (hard == teacher).to(features.dtype).mean(),
                "follows": (dist.argmax(1) == teacher).to(features.dtype).mean(),
            }
        return Outcome(terms, notes=notes)

    def predict(self, image: Tensor) -> Tensor:
        """The mean of both tokens' logits."""
        return self.head(self.network(image))  # type: ignore[no-any-return]

    def heads(self, image: Tensor) -> Mapping[str, Tensor]:
        """What `predict` answers as "logits", and the logits of each token as "cls" and "dist"."""
        return self.deploy().heads(image)

    def deploy(self) -> Classifier:
        """The network and both heads, sharing their weights with this method."""
        return Classifier(self.network, self.head)
