"""Binary cross entropies: one sigmoid per class, summed over classes, averaged over rows."""

from __future__ import annotations

import math
from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from longtail.deprecated import renamed_keywords
from longtail.errors import LongtailError
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
    with_gradient,
)
from longtail.losses.weights import class_balanced_weights


class BinaryCrossEntropy(nn.Module):
    """The binary cross entropy of each class, summed over classes.

    LiVT (Xu et al. 2023), equation 5 with w = 1. With `binarize_targets`, every class of a mixed
    target counts as 1, whatever its share (DeiT III, Touvron et al. 2022).

    >>> BinaryCrossEntropy()(torch.zeros(2, 4), torch.tensor([0, 3]))  # 4 log 2
    tensor(2.7726)
    >>> mixed, sure = torch.tensor([[0.7, 0.3, 0.0]]), torch.tensor([[9.0, 9.0, -9.0]])
    >>> round(BinaryCrossEntropy()(sure, mixed).item(), 2)
    9.0
    >>> round(BinaryCrossEntropy(binarize_targets=True)(sure, mixed).item(), 2)
    0.0
    """

    confidence = "sigmoid"  # how to read the logits of a network trained with this loss
    columns: Tensor | None  # weights (C,) of the terms of each class

    @renamed_keywords(whole="binarize_targets")
    def __init__(self, *, smoothing: float = 0.0, binarize_targets: bool = False) -> None:
        super().__init__()
        check_smoothing(smoothing)
        if binarize_targets and smoothing:
            raise LongtailError(
                "binarize_targets cannot be combined with label smoothing, which would set every"
                f" class to 1, got smoothing {smoothing}: use one of them"
            )
        self.smoothing, self.binarize_targets = smoothing, binarize_targets
        self.register_buffer("columns", None, persistent=False)

    def biased(self, logits: Tensor) -> Tensor:
        """The logits that the sigmoids are applied to."""
        return logits

    def per_sample(self, logits: Tensor, target: Tensor) -> Tensor:
        """The loss (N, C) of each row and class, for a target distribution (N, C)."""
        finite = self.biased(logits).clamp_min(torch.finfo(logits.dtype).min)  # if masked with -inf
        losses = F.binary_cross_entropy_with_logits(finite, target, reduction="none")
        return losses if self.columns is None else losses * self.columns

    def _fused(self, logits: Tensor, target: Tensor, factors: Tensor, *, equal: bool) -> Tensor:
        """The loss of hard targets, without dense targets.

        `equal` says that all factors are 1 / N.
        """
        with torch.no_grad():
            biased = self.biased(logits).to(logits.dtype)
            shares, of_target = biased.sigmoid(), biased.gather(1, target[:, None])[:, 0]
            drop = factors
            if self.columns is None:
                total = _sum_softplus(biased, shares, spare=biased is not logits).dot(factors)
            else:
                columns = self.columns.to(logits.dtype)
                if equal:
                    total = _sum_softplus(biased, shares, dim=0).dot(columns) / max(len(logits), 1)
                else:
                    total = (F.softplus(biased) @ columns).dot(factors)
                drop = factors * columns[target]
                shares.mul_(columns)
            value = total - of_target.dot(drop)
        return with_gradient(logits, value, shares, slope=factors, target=target, drop=drop)

    def forward(
        self,
        logits: Tensor,
        target: Tensor,
        *,
        weight: Tensor | None = None,
        rows: Tensor | None = None,
        features: Tensor | None = None,
    ) -> Tensor:
        """The mean over rows, which may have several classes or none.

        `weight` weights a row by its class, not the terms of a class; see
        `longtail.losses.reduction`.
        """
        logits = at_least_float32(logits)
        if not self.smoothing and is_hard(target, logits):
            factors = row_factors(target, logits, weight=weight, rows=rows)
            equal = weight is None and rows is None
            return self._fused(logits, target, factors, equal=equal)
        target = to_soft_targets(target, logits, smoothing=self.smoothing)
        labels = (target > 0).to(target.dtype) if self.binarize_targets else target
        losses = self.per_sample(logits, labels).sum(1, keepdim=True)
        return weighted_mean(
            losses, torch.ones_like(losses) if weight is None else target, weight=weight, rows=rows
        )


class BalancedBCE(BinaryCrossEntropy):
    """Binary cross entropy with the prior added to the logits (LiVT, Xu et al. 2023).

    The unadjusted logits, which are used at inference, are then unbiased over classes. The bias is
    tau * (logit(prior) - logit(test_prior)). Without a test prior it is theorem 2, which the
    released code implements; with "uniform", equation 10, which adds log(C - 1); with a
    distribution (C,), theorem 3.

    The head's bias can absorb what a uniform test prior adds, but the initial loss differs: without
    a test prior a head of zeros predicts the prior, and the loss is the sum of its binary
    entropies. The scale of the logits differs as well: without a test prior their sigmoid assumes
    that half of the images are of the class; subtract log(C - 1) for one in C, as the recipes do.
    Their order and their softmax, which is their `confidence`, are the same.

    Args:
        counts: training images of each class, (C,).
        tau: the strength of the bias.
        test_prior: the class distribution at test time, (C,) or "uniform"; see above.
        smoothing: label smoothing in [0, 1).

    >>> BalancedBCE(torch.tensor([3, 1])).bias.exp().tolist()  # odds of 3 and 1/3
    [3.0, 0.3333333134651184]
    >>> BalancedBCE(torch.tensor([5, 5, 5]), test_prior="uniform").bias.tolist()
    [0.0, 0.0, 0.0]
    """

    bias: Tensor

    def __init__(
        self,
        counts: Tensor,
        *,
        tau: float = 1.0,
        test_prior: Literal["uniform"] | Tensor | None = None,
        smoothing: float = 0.0,
    ) -> None:
        super().__init__(smoothing=smoothing)
        check_tau(tau)
        bias = prior(counts).logit()
        if isinstance(test_prior, Tensor):
            inside = bool(((test_prior > 0) & (test_prior < 1)).all())
            if (
                test_prior.shape != counts.shape
                or not inside
                or abs(float(test_prior.sum()) - 1) > 1e-4
            ):
                raise LongtailError(
                    f"expected a test prior of {len(counts)} numbers in (0, 1) that sum to 1, got"
                    f" {test_prior.tolist()}"
                )
            bias = bias - test_prior.double().logit()
        elif isinstance(test_prior, str) and test_prior == "uniform":
            bias = bias - torch.full_like(bias, 1 / len(counts)).logit()
        elif test_prior is not None:
            raise LongtailError(
                f'expected the test prior as None, "uniform" or a tensor (C,), got {test_prior!r}'
            )
        # The sigmoid of the unadjusted logits is not the probability of the class (see above)
        if test_prior is None:
            self.confidence = "softmax"
        self.register_buffer("bias", (tau * bias).to(torch.get_default_dtype()), persistent=False)

    def biased(self, logits: Tensor) -> Tensor:
        """The logits with the bias of the prior."""
        check_classes(logits, self.bias)
        return logits + self.bias


class ClassBalancedBCE(BinaryCrossEntropy):
    """Binary cross entropy whose terms are weighted by the effective number of images of the class.

    LiVT's equation 5 with the weights w of class-balanced loss (Cui et al. 2019), which sum to C.

    >>> loss = ClassBalancedBCE(torch.tensor([2, 1]), beta=0.5)
    >>> loss(torch.zeros(1, 2), torch.tensor([1]))  # (0.8 + 1.2) log 2
    tensor(1.3863)
    """

    columns: Tensor

    def __init__(self, counts: Tensor, *, beta: float = 0.9999, smoothing: float = 0.0) -> None:
        super().__init__(smoothing=smoothing)
        self.register_buffer("columns", class_balanced_weights(counts, beta), persistent=False)

    def biased(self, logits: Tensor) -> Tensor:
        """The logits as they are."""
        check_classes(logits, self.columns)
        return logits


def _sum_softplus(logits: Tensor, sigmoid: Tensor, *, dim: int = 1, spare: bool = False) -> Tensor:
    """The sum of log(1 + exp(x)) over classes or rows: one logarithm for up to 64 terms.

    log(1 + exp(x)) is max(x, 0) - log(sigmoid(|x|)). That sigmoid is at least a half, so that
    products of 64 are far from underflow. `spare` logits are overwritten: new memory costs as much
    as a pass.

    >>> _sum_softplus(torch.zeros(1, 3), torch.full((1, 3), 0.5))  # 3 log 2
    tensor([2.0794])
    """
    larger = (sigmoid - 0.5).abs_().add_(0.5)  # of sigmoid and 1 - sigmoid
    rows, classes = larger.shape
    if dim == 0:
        logs = torch.stack([part.prod(0) for part in larger.split(64)]).log_().sum(0)
    else:
        width = 32 * max(1, math.ceil(classes / 2048))  # of at most 64 factors, and vectorised
        even = classes - classes % width
        products = larger[:, :even].view(rows, even // width, width).prod(1)
        logs = products.log_().sum(1) + larger[:, even:].log().sum(1)
    del larger  # its memory is the next one's
    positive = logits.clamp_min_(0) if spare else logits.clamp_min(0)
    return positive.sum(dim) - logs
