"""Penalties of domain generalisation: how much the domains of a batch differ."""

from __future__ import annotations

from itertools import combinations
from typing import Protocol

import torch
import torch.nn.functional as F
from torch import Tensor

from longtail.errors import LongtailError


class DomainPenalty(Protocol):
    """A number that is 0 where all domains of a batch are alike."""

    def __call__(
        self, features: Tensor, logits: Tensor, target: Tensor, domain: Tensor, /
    ) -> Tensor:
        """Compare the domains (N,) of rows with features (N, dim), logits (N, C) and classes (N,).

        All rows are of one stream: a batch with and without BatchFormer has two penalties.
        """


def coral(features: Tensor, logits: Tensor, target: Tensor, domain: Tensor) -> Tensor:
    """CORAL: the squared difference between means and between covariances of two domains.

    mean over pairs of mean((m_i - m_j)^2) + mean((C_i - C_j)^2), with m the mean (dim,) and C the
    covariance (dim, dim) of a domain's features. Sun & Saenko 2016, as in DomainBed and TLL.

    >>> features, domain = torch.tensor([[0.0], [2.0], [1.0], [3.0]]), torch.tensor([0, 0, 1, 1])
    >>> coral(features, features, domain, domain).item()
    1.0
    """
    parts = _parts(domain, 2)
    statistics = [(features[rows].mean(0), features[rows].T.cov()) for rows in parts]
    return torch.stack(
        [
            (mean - other_mean).square().mean() + (covariance - other_covariance).square().mean()
            for (mean, covariance), (other_mean, other_covariance) in combinations(statistics, 2)
        ]
    ).mean()


def irm(features: Tensor, logits: Tensor, target: Tensor, domain: Tensor) -> Tensor:
    """IRM: whether another scale of the logits would be better in one of the domains.

    mean over domains of g_1 * g_2, where g = d/dw cross_entropy(w * logits) at w = 1 of every
    second row from the first and from the second on; their product is an unbiased estimate of the
    squared gradient. Here g is written out: the mean of sum_c p_c z_c - z_y. Arjovsky et al. 2019
    (IRMv1), as in DomainBed and TLL.
    """
    gradient = (logits.softmax(1) * logits).sum(1) - logits.gather(1, target[:, None]).squeeze(1)
    return torch.stack(
        [gradient[rows[0::2]].mean() * gradient[rows[1::2]].mean() for rows in _parts(domain, 2)]
    ).mean()


def vrex(features: Tensor, logits: Tensor, target: Tensor, domain: Tensor) -> Tensor:
    """V-REx: the variance of the domains' cross entropies. Krueger et al. 2021, equation 6."""
    losses = F.cross_entropy(logits, target, reduction="none")
    return torch.stack([losses[rows].mean() for rows in _parts(domain, 1)]).var(correction=0)


def _parts(domain: Tensor, least: int) -> list[Tensor]:
    """The rows of each domain, at least `least` of each."""
    parts = [(domain == number).nonzero().squeeze(1) for number in domain.unique()]
    if len(parts) < 2 or min(map(len, parts)) < least:
        raise LongtailError(
            f"a penalty between domains needs at least two domains with {least} images in every"
            f" batch, got {[len(rows) for rows in parts]} images: increase --batch, or train on"
            " more domains"
        )
    return parts
