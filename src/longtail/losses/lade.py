"""LADE: balanced softmax with a regulariser that makes the logits log-densities."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

from longtail.losses.reduction import (
    at_least_float32,
    check_classes,
    is_hard,
    prior,
    row_factors,
    to_soft_targets,
    with_gradient,
)
from longtail.losses.softmax import LogitAdjusted


class LADE(LogitAdjusted):
    """Balanced softmax and a regulariser that removes the label distribution from the logits.

    LADE (Hong et al. 2021), equation 20.

    For class c, with f_c its logit and Z_c = mean_i (1 / C) / prior(y_i) * exp f_c(x_i) over the
    batch, the regulariser (equation 16) is

        sum_c prior_c * (log Z_c + lam * (log Z_c) ** 2 - mean of f_c over the rows of class c)

    so that f_c becomes log p(x | c) / p(x) of balanced data. It is computed over the batch and
    scaled by `alpha`: `weight` and `rows` apply to the cross entropy alone. A class without rows in
    the batch has no mean and only its Z_c; a soft target counts for each class by its share. Z_c is
    a mean over balanced data by importance sampling; the released code divides by the prior of the
    class c instead of the row's class.

    >>> LADE(torch.tensor([3, 1]), alpha=0.0)(torch.zeros(1, 2), torch.tensor([1]))  # log 4
    tensor(1.3863)
    >>> loss = LADE(torch.tensor([1, 1]), alpha=1.0)
    >>> loss(torch.zeros(2, 2), torch.tensor([0, 1]))  # zeros are log-densities: log 2 alone
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
        """The mean over rows plus the regulariser.

        See `longtail.losses.reduction` for `weight` and `rows`.
        """
        logits = at_least_float32(logits)
        if self.alpha and not self.smoothing and is_hard(target, logits):
            check_classes(logits, self.bias)
            factors = row_factors(target, logits, weight=weight, rows=rows)
            fused = self._fused(logits, target, factors)
            if fused is not None:
                return fused
        return super().forward(
            logits, target, weight=weight, rows=rows
        ) + self.alpha * self.regulariser(logits, target)

    def _fused(self, logits: Tensor, target: Tensor, factors: Tensor) -> Tensor | None:
        """Both terms for hard targets, from one softmax.

        With p the softmax of logits + bias and n its normalisers, row i contributes exp(n_i) p_ic /
        prior(y_i) to Z_c, up to constants. None where that underflows: with extreme logits.
        """
        with torch.no_grad():
            column, prior = target[:, None], self.prior.to(logits.dtype)
            biased = logits + self.bias.to(logits.dtype)
            shares = biased.softmax(1)
            normaliser = biased.amax(1) - shares.amax(1).log()
            of_target = biased.gather(1, column)[:, 0]
            of_prior = prior.gather(0, target)
            exponent = normaliser - of_prior.log()
            largest = exponent.max()
            importance = (exponent - largest).exp()
            with torch.autocast(logits.device.type, enabled=False):  # it would round the product
                total = importance @ shares
            if total.min() < 1e-30:
                return None
            shift = largest - math.log(len(prior) * len(logits))
            spread = total.log() - self.bias + shift
            counts = torch.bincount(target, minlength=len(prior))
            of_class = self.alpha * of_prior / counts.gather(0, target)
            alone = logits.gather(1, column)[:, 0]
            value = (normaliser - of_target).dot(factors) - alone.dot(of_class)
            value += self.alpha * prior.dot(spread * (1 + self.lam * spread))
            slope = self.alpha * prior * (1 + 2 * self.lam * spread) / total
            # In place: new memory costs as much as a pass
            gradient = biased.copy_(slope).mul_(importance[:, None])
            gradient.add_(factors[:, None]).mul_(shares)
        return with_gradient(
            logits,
            value,
            gradient,
            slope=torch.ones_like(factors),
            target=target,
            drop=factors + of_class,
        )

    def regulariser(self, logits: Tensor, target: Tensor) -> Tensor:
        """The distance of exp(logits) from densities on balanced data; a scalar."""
        share = to_soft_targets(target, logits)
        # Not a matrix product, which autocast would round
        balanced = (share / (len(self.prior) * self.prior)).sum(1).log()
        shift = balanced[:, None] - math.log(len(logits))
        return _distance(logits, share, shift, prior=self.prior, lam=self.lam)


class ReleasedLADE(nn.Module):
    """LADE's regulariser alone, as the released code computes it: what LiVT compares with.

    Each logit is divided by the prior of its class, not by that of the row's class, and there is no
    cross entropy: with Z_c = mean_i exp f_c(x_i) / (C * prior_c) it is

        sum_c prior_c * (log Z_c + lam * (log Z_c) ** 2 - mean of f_c over the rows of class c)

    A term of the batch: `weight` and `rows` do not apply. See `LADE` for the paper's loss.

    >>> loss = ReleasedLADE(torch.tensor([1, 1]))
    >>> loss(torch.zeros(2, 2), torch.tensor([0, 1]))  # zeros are log-densities
    tensor(0.)
    """

    prior: Tensor

    def __init__(self, counts: Tensor, *, lam: float = 0.1) -> None:
        super().__init__()
        self.register_buffer("prior", prior(counts).to(torch.get_default_dtype()), persistent=False)
        self.lam = lam

    def forward(
        self,
        logits: Tensor,
        target: Tensor,
        *,
        weight: Tensor | None = None,
        rows: Tensor | None = None,
        features: Tensor | None = None,
    ) -> Tensor:
        """The regulariser of the batch; `weight`, `rows` and `features` have no effect."""
        logits = at_least_float32(logits)
        check_classes(logits, self.prior)
        share = to_soft_targets(target, logits)
        shift = -(logits.numel() * self.prior).log()
        return _distance(logits, share, shift, prior=self.prior, lam=self.lam)


def _distance(logits: Tensor, share: Tensor, shift: Tensor, *, prior: Tensor, lam: float) -> Tensor:
    """The regulariser with Z_c = sum_i exp(f_c(x_i) + shift), without classes masked everywhere."""
    masked = (logits == -torch.inf).all(0)
    spread = (logits.masked_fill(masked, 0.0) + shift).logsumexp(0)
    of_class = (share * logits.where(share != 0, 0.0)).sum(0) / share.sum(0).clamp_min(1e-8)
    terms = prior * (spread + lam * spread.square() - of_class)
    return terms.masked_fill(masked, 0.0).sum()
