"""Parametric contrastive loss (PaCo, Cui et al., ICCV 2021)."""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from longtail.errors import LongtailError
from longtail.losses.reduction import at_least_float32, check_classes, prior


class ParametricContrastive(nn.Module):
    """Supervised contrastive loss with learnable class centres (PaCo, Cui et al. 2021).

    One softmax over the centres, (logits + log prior) / `centre_temperature`, and over the
    contrasted images, whose exponentials are multiplied by `gamma`: cosines / `temperature` with
    the other anchors and with `others` (keys of this batch and of the queue). The loss of an anchor
    is the mean of minus the log-probabilities of its class, with weight `beta`, and of each image
    of its class, with weight `alpha`.

    Args:
        counts: training images of each class, (C,).
        alpha: the weight of each image of the anchor's class.
        beta: the weight of the anchor's class.
        gamma: the factor of the contrasted images in the softmax.
        temperature: of the cosines between images.
        centre_temperature: of the logits.

    With `alpha` and `gamma` 0 it is Balanced Softmax:

    >>> loss = ParametricContrastive(torch.tensor([3, 1]), alpha=0.0, gamma=0.0)
    >>> rows = {"anchors": torch.tensor([[1.0, 0.0]]), "others": torch.tensor([[0.0, 1.0]])}
    >>> loss(torch.zeros(1, 2), torch.tensor([1]), **rows, labels=torch.tensor([0]))  # log 4
    tensor(1.3863)
    """

    bias: Tensor

    def __init__(
        self,
        counts: Tensor,
        *,
        alpha: float = 0.01,
        beta: float = 1.0,
        gamma: float = 1.0,
        temperature: float = 0.05,
        centre_temperature: float = 1.0,
    ) -> None:
        super().__init__()
        if alpha < 0 or beta <= 0 or gamma < 0:
            raise LongtailError(
                f"alpha and gamma must be at least 0 and beta positive, got alpha {alpha}, gamma"
                f" {gamma} and beta {beta}"
            )
        if temperature <= 0 or centre_temperature <= 0:
            raise LongtailError(
                f"temperatures must be positive, got temperature {temperature} and"
                f" centre_temperature {centre_temperature}"
            )
        self.register_buffer(
            "bias", prior(counts).log().to(torch.get_default_dtype()), persistent=False
        )
        self.alpha, self.beta, self.gamma = alpha, beta, gamma
        self.temperature, self.centre_temperature = temperature, centre_temperature

    def per_sample(
        self, logits: Tensor, target: Tensor, *, anchors: Tensor, others: Tensor, labels: Tensor
    ) -> Tensor:
        """The loss (N,) of each anchor.

        An anchor is never contrasted with itself.

        Args:
            logits: (N, C).
            target: class indices (N,).
            anchors: unit vectors (N, D).
            others: unit vectors (M, D) to contrast with.
            labels: class indices (M,) of `others`; -1 belongs to no class.
        """
        if len(logits) != len(anchors) or len(target) != len(anchors) or len(others) != len(labels):
            sizes = (
                f"{len(logits)}, {len(target)}, {len(anchors)}, and {len(others)}, {len(labels)}"
            )
            raise LongtailError(
                "logits, target and anchors must have the same length, and others and labels the"
                f" same length, got {sizes}"
            )
        check_classes(logits, self.bias)
        centres = (at_least_float32(logits) + self.bias) / self.centre_temperature
        # A temperature of 0.05 would magnify rounding errors of bf16
        with torch.autocast(anchors.device.type, enabled=False):
            contrasted = (
                at_least_float32(anchors)
                @ at_least_float32(torch.cat([anchors, others])).T
                / self.temperature
            )
        is_self = torch.eye(*contrasted.shape, dtype=torch.bool, device=contrasted.device)
        # With gamma 0, log(gamma) is -inf: the images are not in the softmax.
        scaled = (
            contrasted + math.log(self.gamma)
            if self.gamma
            else torch.full_like(contrasted, -torch.inf)
        )
        total = torch.cat([centres, scaled.masked_fill(is_self, -torch.inf)], 1).logsumexp(
            1, keepdim=True
        )
        same = (target[:, None] == torch.cat([target, labels.to(target.dtype)])) & ~is_self
        positives = torch.cat(
            [self.beta * F.one_hot(target, logits.shape[1]), self.alpha * same], 1
        ).to(total.dtype)
        return (positives * (total - torch.cat([centres, contrasted], 1))).sum(1) / positives.sum(1)

    def forward(
        self, logits: Tensor, target: Tensor, *, anchors: Tensor, others: Tensor, labels: Tensor
    ) -> Tensor:
        """The mean over anchors; see `per_sample`."""
        return self.per_sample(logits, target, anchors=anchors, others=others, labels=labels).mean()
