"""Cross entropy, plain and with the prior added to the logits."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from longtail.losses.reduction import (
    at_least_float32,
    check_classes,
    check_smoothing,
    check_tau,
    is_hard,
    prior,
    row_factors,
    to_soft_targets,
    weighted_mean,
)

NO_CLASS = -(2**62)  # torch skips rows with its `ignore_index`, -100; here no row is skipped


class CrossEntropy(nn.Module):
    """Minus the log-probability of the target.

    With class weights, smoothed targets are weighted like any soft target (`torch` divides by the
    weight of the hard class instead).

    >>> CrossEntropy()(torch.zeros(2, 4), torch.tensor([0, 3]))
    tensor(1.3863)
    """

    def __init__(self, *, smoothing: float = 0.0) -> None:
        super().__init__()
        check_smoothing(smoothing)
        self.smoothing = smoothing

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
        logits = at_least_float32(logits)
        # Of a smoothed target, each class has a different weight
        if is_hard(target, logits) and (weight is None or not self.smoothing):
            plain = weight is None and rows is None
            losses = F.cross_entropy(
                logits,
                target,
                reduction="mean" if plain else "none",
                label_smoothing=self.smoothing,
                ignore_index=NO_CLASS,
            )
            if plain:
                return losses
            return (losses * row_factors(target, logits, weight=weight, rows=rows)).sum()
        return weighted_mean(
            -F.log_softmax(logits, 1),
            to_soft_targets(target, logits, smoothing=self.smoothing),
            weight=weight,
            rows=rows,
        )


class LogitAdjusted(CrossEntropy):
    """Cross entropy of logits + tau * log prior, so that the logits alone are unbiased.

    Logit adjustment (Menon et al. 2021). At tau = 1 it is Balanced Softmax (Ren et al. 2020), which
    adds log counts: the same up to a constant, which does not change the softmax (LiVT, theorem 1).
    Both names are this class.

    >>> LogitAdjusted(torch.tensor([3, 1]))(torch.zeros(1, 2), torch.tensor([1]))  # log 4
    tensor(1.3863)
    """

    bias: Tensor

    def __init__(self, counts: Tensor, *, tau: float = 1.0, smoothing: float = 0.0) -> None:
        super().__init__(smoothing=smoothing)
        check_tau(tau)
        self.register_buffer(
            "bias", (tau * prior(counts).log()).to(torch.get_default_dtype()), persistent=False
        )

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
        check_classes(logits, self.bias)
        return super().forward(
            at_least_float32(logits) + self.bias,
            target,
            weight=weight,
            rows=rows,
            features=features,
        )


BalancedSoftmax = LogitAdjusted
"""Another name of `LogitAdjusted`: with tau 1 they are the same (Ren et al. 2020)."""
