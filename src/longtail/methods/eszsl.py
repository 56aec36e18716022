"""Zero-shot learning in closed form (ESZSL, Romera-Paredes and Torr, ICML 2015)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from longtail.core import Clock, Labelled, Method, Outcome
from longtail.nn import Adjusted, Head, Network


@dataclass(frozen=True)
class Eszsl:
    """The solutions of ESZSL for all strengths of its two ridge penalties.

    Features and class vectors have norm 1. V = (X'X + gamma I)^-1 X'YS (S'S + lambda I)^-1, where
    X (N, D) are features, S (C, A) vectors of the seen classes and Y (N, C) is 1 for the class of
    a row and -1 for all others. Scores are x' V a_c. Two eigendecompositions serve every gamma and
    lambda.

    >>> generator = torch.Generator().manual_seed(0)
    >>> x, s = torch.rand(20, 4, generator=generator), torch.rand(3, 5, generator=generator)
    >>> weight = Eszsl.fit(x, torch.arange(20) % 3, s).weight(gamma=1.0, lambda_=1.0)
    >>> weight.shape
    torch.Size([4, 5])
    """

    left: Tensor  # (D, D), eigenvectors of X'X
    right: Tensor  # (A, A), eigenvectors of S'S
    left_values: Tensor
    right_values: Tensor
    middle: Tensor  # (D, A), X'YS in the two bases

    @classmethod
    def fit(cls, features: Tensor, target: Tensor, vectors: Tensor) -> Eszsl:
        """Decompose, given features (N, D), targets (N,) and vectors (C, A) of their classes."""
        x, s = (F.normalize(rows.double(), dim=1) for rows in (features, vectors))
        y = 2 * F.one_hot(target, len(s)).double() - 1
        left_values, left = torch.linalg.eigh(x.T @ x)
        right_values, right = torch.linalg.eigh(s.T @ s)
        middle = left.T @ (x.T @ y @ s) @ right
        return cls(left, right, left_values.clamp(min=0), right_values.clamp(min=0), middle)

    def weight(self, *, gamma: float, lambda_: float) -> Tensor:
        """V (D, A)."""
        inner = self.middle / (self.left_values + gamma)[:, None] / (self.right_values + lambda_)
        return self.left @ inner @ self.right.T

    def all_scores(
        self,
        features: Tensor,
        vectors: Tensor,
        *,
        gammas: Sequence[float],
        lambdas: Sequence[float],
    ) -> Iterator[tuple[float, float, Tensor]]:
        """Each gamma and lambda, with the scores (N, C) of features (N, D) and vectors (C, A)."""
        x = F.normalize(features.double(), dim=1) @ self.left
        a = F.normalize(vectors.double(), dim=1) @ self.right
        for gamma in gammas:
            projected = (x / (self.left_values + gamma)) @ self.middle
            for lambda_ in lambdas:
                yield gamma, lambda_, (projected / (self.right_values + lambda_)) @ a.T


class CalibratedStacking(Method[Labelled]):
    """A classifier with a bias on the logits of unseen classes.

    Chao et al., "An Empirical Study and Analysis of Generalized Zero-Shot Learning", ECCV 2016:
    classifiers trained on seen classes alone prefer these; a constant corrects that.

    Args:
        network: from inputs to features.
        head: from features to logits.
        seen: (C,), whether a class has training images.
        bias: added to the logits of unseen classes.
    """

    shift: Tensor

    def __init__(self, network: Network, head: Head, seen: Tensor, *, bias: float = 0.0) -> None:
        super().__init__()
        self.network, self.head = network, head
        shift = torch.where(seen, 0.0, -bias).to(torch.get_default_dtype())
        self.register_buffer("shift", shift)

    def forward(self, batch: Labelled, clock: Clock) -> Outcome:
        """The cross entropy, without the bias: to fine-tune the solution."""
        logits = self.head(self.network(batch["image"]))
        return Outcome({"class": F.cross_entropy(logits, batch["target"])})

    def predict(self, image: Tensor) -> Tensor:
        """Logits of all classes, with the bias."""
        return self.deploy()(image)  # type: ignore[no-any-return]

    def deploy(self) -> Adjusted:
        """The network and the head, which share their weights with this method, and the bias."""
        adjusted = Adjusted(self.network, self.head, bias=self.shift)
        return adjusted.to(self.shift.device, self.shift.dtype).train(self.training)
