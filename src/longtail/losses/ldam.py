"""LDAM: cross entropy with larger margins for rarer classes."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from longtail.losses.reduction import (
    at_least_float32,
    check_classes,
    is_hard,
    prior,
    row_factors,
    to_soft_targets,
    weighted_mean,
    with_gradient,
)


class LDAM(nn.Module):
    """Cross entropy with a margin of max_margin * (n_c / n_min) ** -1/4 for the target's logit.

    Label-distribution-aware margins (Cao et al. 2019). Expects cosines, such as those of
    `longtail.nn.Cosine`: the logits are multiplied by `scale` here. The loss of a soft target is
    the mean of its classes' losses, each with the margin of that class.

    >>> loss = LDAM(torch.tensor([16, 1]), max_margin=0.5, scale=1.0)
    >>> loss.margin.tolist()
    [0.25, 0.5]
    >>> loss(torch.zeros(1, 2), torch.tensor([1]))  # log(1 + exp(0.5))
    tensor(0.9741)
    """

    margin: Tensor

    def __init__(self, counts: Tensor, *, max_margin: float = 0.5, scale: float = 30.0) -> None:
        super().__init__()
        relative = prior(counts) ** -0.25
        self.register_buffer(
            "margin",
            (max_margin * relative / relative.max()).to(torch.get_default_dtype()),
            persistent=False,
        )
        self.scale = scale

    def forward(
        self,
        logits: Tensor,
        target: Tensor,
        *,
        weight: Tensor | None = None,
        rows: Tensor | None = None,
        features: Tensor | None = None,
    ) -> Tensor:
        """The mean over rows; see `longtail.losses.reduction` for `weight` and `rows`."""
        check_classes(logits, self.margin)
        logits = at_least_float32(logits)
        if is_hard(target, logits):
            factors = row_factors(target, logits, weight=weight, rows=rows)
            return self._fused(logits, target, factors)
        logits = self.scale * logits
        losses = F.softplus(_others(logits) - (logits - self.scale * self.margin))
        return weighted_mean(losses, to_soft_targets(target, logits), weight=weight, rows=rows)

    def _fused(self, logits: Tensor, target: Tensor, factors: Tensor) -> Tensor:
        """The loss of hard targets, from one softmax.

        softplus(log-sum-exp of the other classes - logit of the target + its margin) keeps its
        digits for confident predictions, where the cross entropy of all classes rounds to 0.
        """
        with torch.no_grad():
            column, scaled = target[:, None], self.scale * logits
            of_target = scaled.gather(1, column)[:, 0]
            scaled.scatter_add_(1, column, torch.full_like(of_target, -torch.inf)[:, None])
            shares = scaled.softmax(1)  # of each class among the others
            others = scaled.amax(1) - shares.amax(1).log()
            gap = others - of_target + self.scale * self.margin[target]
            slope = self.scale * factors * gap.sigmoid()
            value = (F.softplus(gap) * factors).sum()
        return with_gradient(logits, value, shares, slope=slope, target=target, drop=slope)


def _others(logits: Tensor) -> Tensor:
    """For each class, the log-sum-exp of all other classes.

    Computed from the sum over all classes and log(1 - p_c), except for the largest logit: its p_c
    may be 1, and the difference would be rounding error.
    """
    top = torch.zeros_like(logits, dtype=torch.bool).scatter(
        1, logits.argmax(1, keepdim=True), True
    )
    probability = logits.softmax(1).masked_fill(top, 0.0)
    others = logits.logsumexp(1, keepdim=True) + torch.log1p(-probability)
    return torch.where(top, logits.masked_fill(top, -torch.inf).logsumexp(1, keepdim=True), others)
