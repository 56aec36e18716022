"""Balanced softmax, with logits that are also asked to be log-densities."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from longtail.losses.reduction import at_least_float32, prior, to_soft_targets
from longtail.losses.softmax import LogitAdjusted


class LADE(LogitAdjusted):
    """Balanced softmax and a regulariser that takes the label distribution out of the logits (Hong
    et
    al. 2021, equation 20).

    For class c, with f_c its logit and Z_c = mean_i (1 / C) / prior(y_i) * exp f_c(x_i) over the
    batch, the regulariser (equation 16) is

        sum_c prior_c * (log Z_c + lam * (log Z_c) ** 2 - mean of f_c over the rows of class c)

    so that f_c becomes log p(x | c) / p(x) of balanced data. It is a term of the whole batch, times
    `alpha`: `weight` and `rows` act on the cross entropy alone. A class without rows in the batch
    has no mean and only its Z_c; soft targets share out their rows. Z_c is a mean over balanced
    data by importance sampling; the released code divides by the prior of the class c in the place
    of the row's.

    >>> LADE(torch.tensor([3, 1]), alpha=0.0)(torch.zeros(1, 2), torch.tensor([1]))  # log 4
    tensor(1.3863)
    >>> LADE(torch.tensor([1, 1]), alpha=1.0)(torch.zeros(2, 2), torch.tensor([0, 1]))  # zeros are densities already: log 2 alone
    tensor(0.6931)
    """

    prior: Tensor

    def __init__(
        self, counts: Tensor, *, alpha: float = 0.1, lam: float = 0.1, smoothing: float = 0.0
    ) -> None:
        super().__init__(counts, smoothing=smoothing)
        self.register_buffer("prior", prior(counts).to(torch.get_default_dtype()), persistent=False)
        self.alpha, self.lam = alpha, lam

    def forward(
        self,
        logits: Tensor,
        target: Tensor,
        *,
        weight: Tensor | None = None,
        rows: Tensor | None = None,
        features: Tensor | None = None,
    ) -> Tensor:
        """The mean over rows, and the regulariser; see `longtail.losses.reduction` for `weight` and
        `rows`.
        """
        logits = at_least_float32(logits)
        return super().forward(
            logits, target, weight=weight, rows=rows
        ) + self.alpha * self.regulariser(logits, target)

    def regulariser(self, logits: Tensor, target: Tensor) -> Tensor:
        """How far exp(logits) is from densities on balanced data; a scalar."""
        share = to_soft_targets(target, logits)
        # Not a product of matrices, which autocast would round
        balanced = (share / (len(self.prior) * self.prior)).sum(1).log()
        spread = (logits + balanced[:, None]).logsumexp(0) - math.log(len(logits))
        of_class = (share * logits).sum(0) / share.sum(0).clamp_min(1e-8)
        return (self.prior * (spread + self.lam * spread.square() - of_class)).sum()
