"""Class weights from class counts."""

from __future__ import annotations

import torch
from torch import Tensor

from longtail.errors import LongtailError
from longtail.losses.reduction import prior


def class_balanced_weights(counts: Tensor, beta: float = 0.9999) -> Tensor:
    """Weight each class by the inverse of its effective number of images (Cui et al. 2019).

    The weights (C,) sum to C.

    >>> class_balanced_weights(torch.tensor([10, 10, 10])).tolist()
    [1.0, 1.0, 1.0]
    >>> class_balanced_weights(torch.tensor([2, 1]), 0.5).tolist()  # 1 / 1.5 to 1 / 1
    [0.800000011920929, 1.2000000476837158]
    """
    if not 0 <= beta < 1:
        raise LongtailError(
            f"expected beta in [0, 1), got {beta}: 0 weights all classes equally, values near 1"
            " weight by inverse counts"
        )
    prior(counts)  # raises for empty classes
    weights = (1 - beta) / -torch.expm1(
        counts.double() * torch.tensor(beta, dtype=torch.float64).log()
    )
    return (weights * len(counts) / weights.sum()).to(torch.get_default_dtype())
