"""How good features are while an encoder is trained without labels, after each epoch."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import KW_ONLY, dataclass, replace
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from longtail.core import Batches, Predict, Scorer
from longtail.losses import LogitAdjusted
from longtail.methods.probe import NearestNeighbours
from longtail.scoring.evaluators import collect
from longtail.scoring.scorer import score


@dataclass(frozen=True)
class FeatureEvaluator:
    """Evaluate features on these images by labelled images: "knn/NAME" and "linear/NAME".

    The first are the scores of nearest neighbours, the second those of a linear classifier that is
    fitted to the features of the labelled images (`fit_linear`).
    """

    batches: Batches[Mapping[str, Any]]
    labelled: Batches[Mapping[str, Any]]
    scorer: Scorer
    _: KW_ONLY
    counts: Tensor
    """Training images of each class, (C,)."""
    neighbours: int = 20

    def __call__(self, predict: Predict, /) -> dict[str, float]:
        """Scores by name; those for which there is nothing to measure are left out."""
        known, rows = collect(self.labelled, predict), collect(self.batches, predict)
        features, target = torch.from_numpy(known.logits["logits"]), torch.from_numpy(known.target)
        knn = NearestNeighbours(
            features, target, classes=len(self.counts), neighbours=self.neighbours
        )
        weight, bias = fit_linear(features, target, self.counts)
        queries, numbers = torch.from_numpy(rows.logits["logits"]), dict[str, float]()
        for name, logits in {"knn": knn(queries), "linear": queries @ weight.T + bias}.items():
            scores = score(self.scorer, replace(rows, logits={"logits": logits.numpy()}))
            numbers |= {
                f"{name}/{key}": value for key, value in scores.items() if value is not None
            }
        return numbers


@torch.no_grad()
def fit_linear(
    features: Tensor, target: Tensor, counts: Tensor, *, decay: float = 1e-3, steps: int = 60
) -> tuple[Tensor, Tensor]:
    """Fit a linear classifier with balanced softmax, and return its weight (C, dim) and bias (C,).

    Features are standardised, and the mean loss + `decay` / 2 * |weight|^2 is minimised by `steps`
    of L-BFGS from zero: no learning rate, no random numbers.

    Args:
        features: (N, dim).
        target: Class indices (N,).
        counts: Training images of each class, (C,).
        decay: Weight of the penalty.
        steps: Of L-BFGS.

    >>> features = torch.tensor([[0.0, 1.0], [0.0, 2.0], [3.0, 0.0], [4.0, 1.0]])
    >>> weight, bias = fit_linear(features, torch.tensor([0, 0, 1, 1]), torch.tensor([2, 2]))
    >>> (features @ weight.T + bias).argmax(1).tolist()
    [0, 0, 1, 1]
    """
    mean, std = features.mean(0), features.std(0, unbiased=False).clamp_min(1e-6)
    rows, loss = F.pad((features - mean) / std, (0, 1), value=1.0), LogitAdjusted(counts)
    weight = torch.zeros(len(counts), rows.shape[1], requires_grad=True)
    optimizer = torch.optim.LBFGS([weight], max_iter=steps, line_search_fn="strong_wolfe")

    def closure() -> Tensor:
        optimizer.zero_grad()
        with torch.enable_grad():
            total: Tensor = loss(rows @ weight.T, target)
            total = total + decay / 2 * weight[:, :-1].square().sum()
            total.backward()
        return total

    optimizer.step(closure)
    scaled, bias = weight.detach()[:, :-1] / std, weight.detach()[:, -1]
    return scaled, bias - scaled @ mean
