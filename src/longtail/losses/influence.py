"""Influence-balanced loss: rows with a large influence on the boundary are weighted down."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from longtail.errors import LongtailError
from longtail.losses.reduction import (
    at_least_float32,
    check_classes,
    is_hard,
    prior,
    row_factors,
    to_soft_targets,
    weighted_mean,
)


class InfluenceBalanced(nn.Module):
    """Cross entropy divided by the influence of the row, with rarer classes weighted up.

    IB (Park et al. 2021). The influence is |softmax - target|_1 * |features|_1: the size of the
    gradient in the last layer. For a mixed target, the influence is computed for each of its
    classes as if the row were of that class: the influence of the mixture would vanish at the
    mixture, where the loss does not. Class weights are proportional to 1 / counts and sum to C.
    `alpha` scales the loss. As in the released code, the gradient also flows through the influence,
    so that the weight of a well-classified row does not grow without bound.

    >>> loss = InfluenceBalanced(torch.tensor([1, 1]), alpha=1.0, epsilon=0.0)
    >>> features = torch.tensor([[2.0, -2.0]])
    >>> loss(torch.zeros(1, 2), torch.tensor([1]), features=features)  # log 2 / (1 * 4)
    tensor(0.1733)
    """

    columns: Tensor

    def __init__(self, counts: Tensor, *, alpha: float = 1000.0, epsilon: float = 1e-3) -> None:
        super().__init__()
        inverse = 1 / prior(counts)
        self.register_buffer(
            "columns",
            (inverse * len(counts) / inverse.sum()).to(torch.get_default_dtype()),
            persistent=False,
        )
        self.alpha, self.epsilon = alpha, epsilon

    def forward(
        self,
        logits: Tensor,
        target: Tensor,
        *,
        weight: Tensor | None = None,
        rows: Tensor | None = None,
        features: Tensor | None = None,
    ) -> Tensor:
        """The mean over rows; see `longtail.losses.reduction` for `weight` and `rows`.

        `features` (N, dim) are required.
        """
        if features is None or len(features) != len(logits):
            got = "none" if features is None else f"{len(features)} rows"
            raise LongtailError(
                f"this loss needs the features of the {len(logits)} rows, the input of the"
                " head, got"
                f" {got}: pass features="
            )
        check_classes(logits, self.columns)
        logits = at_least_float32(logits)
        size = at_least_float32(features).abs().flatten(1).sum(1, keepdim=True)
        log_share, columns = F.log_softmax(logits, 1), self.columns
        hard = is_hard(target, logits)
        if hard:
            log_share, columns = log_share.gather(1, target[:, None]), columns[target][:, None]
        else:
            target = to_soft_targets(target, logits)
            # A masked class has an infinite loss, whose gradient is none even where it is not used
            log_share = log_share.masked_fill(target == 0, -1.0)
        # |softmax - one_hot(c)|_1 is 1 - p_c at c, and 1 - p_c summed over all other classes.
        influence = 2 * (1 - log_share.exp()) * size
        losses = columns * -log_share * self.alpha / (influence + self.epsilon)
        if hard:
            return (losses[:, 0] * row_factors(target, logits, weight=weight, rows=rows)).sum()
        return weighted_mean(losses, target, weight=weight, rows=rows)
