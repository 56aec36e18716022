"""Losses between experts (RIDE, Wang et al., ICLR 2021)."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from longtail.errors import LongtailError
from longtail.losses.reduction import at_least_float32, prior


class Diversity(nn.Module):
    """The divergence of each expert from the mean of all, summed over experts, times `factor`.

    RIDE: for experts k with logits z_k and mean z, factor * mean(T) ** 2 * sum_k KL(softmax(z / T)
    || softmax(z_k / T)), averaged over rows. A negative factor rewards difference: -0.45 for CIFAR,
    -0.2 for ImageNet-LT. `temperature` (C,) has one number for each class, see
    `expert_temperature`; the default is 1. The mean is detached, as in the released code; summed
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
        """A scalar for logits (experts, N, C)."""
        if logits.ndim != 3 or len(logits) < 2:
            raise LongtailError(
                "expected logits (experts, N, C) of at least two experts, got"
                f" {tuple(logits.shape)}"
            )
        return self.factor * sum_of_divergences(
            logits.detach().mean(0), logits, temperature=temperature
        )


def sum_of_divergences(
    reference: Tensor, logits: Tensor, *, temperature: Tensor | float | None = None
) -> Tensor:
    """Sum over experts of KL(softmax(reference / T) || softmax(logits / T)) * mean(T) ** 2.

    The mean over rows, for reference logits (N, C) and logits (experts, N, C). The factor T squared
    makes the size of the gradients independent of T (Hinton et al. 2015).

    >>> reference = torch.tensor([[0.0, 0.0]])
    >>> logits = torch.tensor([[[0.0, 0.0]], [[1.0986, 0.0]]])
    >>> sum_of_divergences(reference, logits)  # log(2 / sqrt(3))
    tensor(0.1438)
    """
    reference, logits = at_least_float32(reference), at_least_float32(logits)
    divisor = torch.as_tensor(
        1.0 if temperature is None else temperature, dtype=logits.dtype, device=logits.device
    )
    p, q = (F.log_softmax(values / divisor, -1) for values in (reference, logits))
    divergence = (p.exp() * (p - q)).sum(-1)
    return divisor.mean().square() * divergence.mean(-1).sum()


def expert_temperature(counts: Tensor, factor: float = 0.05) -> Tensor:
    """A temperature for each class: (factor * C * prior + 1 - factor) / its maximum (RIDE).

    The most frequent class has 1. RIDE uses it once re-weighting has started, with a factor of 0.05
    for CIFAR, 0.02 for ImageNet-LT and 0.015 for iNaturalist.

    >>> expert_temperature(torch.tensor([3, 1]), 0.5).tolist()  # 1.25 and 0.75, over 1.25
    [1.0, 0.6000000238418579]
    """
    if not 0 <= factor < 1:
        raise LongtailError(
            f"expected a factor in [0, 1), got {factor}: 0 gives every class the temperature 1"
        )
    raw = factor * len(counts) * prior(counts) + 1 - factor
    return (raw / raw.max()).to(torch.get_default_dtype())
