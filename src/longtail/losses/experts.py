"""Keeping experts apart (RIDE, Wang et al., ICLR 2021)."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from longtail.errors import LongtailError
from longtail.losses.reduction import at_least_float32, prior


class Diversity(nn.Module):
    """Push each expert away from the mean of all: `factor` times the divergence, summed over
    experts
    (RIDE).

    For experts k with logits z_k and mean z, factor * mean(T) ** 2 * sum_k KL(softmax(z / T) ||
    softmax(z_k / T)), averaged over rows. A negative factor rewards difference: -0.45 for CIFAR,
    -0.2 for ImageNet-LT. `temperature` (C,) has one number for each class, see
    `expert_temperature`; without it, 1. The mean is held fixed, as in the released code; summed
    over experts its gradient is zero anyway.

    >>> Diversity(-1.0)(torch.tensor([[[0.0, 0.0]], [[0.0, 0.0]]]))  # two experts that agree
    tensor(-0.)
    >>> bool(Diversity(-1.0)(torch.tensor([[[2.0, 0.0]], [[0.0, 2.0]]])) < 0)
    True
    """

    def __init__(self, factor: float = -0.45) -> None:
        super().__init__()
        self.factor = factor

    def forward(self, logits: Tensor, *, temperature: Tensor | None = None) -> Tensor:
        """For logits (experts, N, C)."""
        if logits.ndim != 3 or len(logits) < 2:
            raise LongtailError(
                "expected logits (experts, N, C) of at least two experts, got"
                f" {tuple(logits.shape)}"
            )
        return self.factor * sum_of_divergences(
            logits.detach().mean(0), logits, temperature=temperature
        )


def sum_of_divergences(
    aim: Tensor, logits: Tensor, *, temperature: Tensor | float | None = None
) -> Tensor:
    """mean(T) ** 2 * sum over experts of KL(softmax(aim / T) || softmax(logits / T)), averaged over
    rows.

    For an aim (N, C) and logits (experts, N, C). A factor of T squared keeps gradients of one size
    whatever T is (Hinton et al. 2015).

    >>> aim, logits = torch.tensor([[0.0, 0.0]]), torch.tensor([[[0.0, 0.0]], [[1.0986, 0.0]]])
    >>> sum_of_divergences(aim, logits)  # log(2 / sqrt(3))
    tensor(0.1438)
    """
    aim, logits = at_least_float32(aim), at_least_float32(logits)
    divisor = torch.as_tensor(
        1.0 if temperature is None else temperature, dtype=logits.dtype, device=logits.device
    )
    wanted, found = (F.log_softmax(own / divisor, -1) for own in (aim, logits))
    divergence = (wanted.exp() * (wanted - found)).sum(-1)
    return divisor.mean().square() * divergence.mean(-1).sum()


def expert_temperature(counts: Tensor, factor: float = 0.05) -> Tensor:
    """A temperature for each class, 1 for the most frequent: (factor * C * prior + 1 - factor) /
    its
    maximum (RIDE).

    RIDE uses it after re-weighting began, with a factor of 0.05 for CIFAR, 0.02 for ImageNet-LT and
    0.015 for iNaturalist.

    >>> expert_temperature(torch.tensor([3, 1]), 0.5).tolist()  # 1.25 and 0.75, over 1.25
    [1.0, 0.6000000238418579]
    """
    if not 0 <= factor < 1:
        raise LongtailError(
            f"expected a factor in [0, 1), got {factor}: 0 gives every class the temperature 1"
        )
    raw = factor * len(counts) * prior(counts) + 1 - factor
    return (raw / raw.max()).to(torch.get_default_dtype())
