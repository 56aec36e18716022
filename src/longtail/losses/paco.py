"""Contrast with centres that are learnt (PaCo, Cui et al., ICCV 2021)."""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from longtail.errors import LongtailError
from longtail.losses.reduction import at_least_float32, check_classes, prior


class ParametricContrastive(nn.Module):
    """Find the own class among the centres, and images of the own class among others (PaCo, Cui et
    al.
    2021).

    One softmax over the centres, (logits + log prior) / `centre_temperature`, and over what is
    contrasted, whose exponentials count `gamma` times: cosines / `temperature` with the other
    anchors and with `others` (keys of this batch, the queue). The loss of an anchor is the mean of
    minus the log-probabilities of its class, of weight `beta`, and of each image of its class, of
    weight `alpha`.

    With `alpha` and `gamma` 0 it is Balanced Softmax:

    >>> loss = ParametricContrastive(torch.tensor([3, 1]), alpha=0.0, gamma=0.0)
    >>> anchors, others = torch.tensor([[1.0, 0.0]]), torch.tensor([[0.0, 1.0]])
    >>> loss(torch.zeros(1, 2), torch.tensor([1]), anchors=anchors, others=others, labels=torch.tensor([0]))  # log 4
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
                f"expected alpha and gamma of at least 0 and a positive beta, got {alpha}, {gamma}"
                f" and {beta}"
            )
        if temperature <= 0 or centre_temperature <= 0:
            raise LongtailError(
                f"expected positive temperatures, got {temperature} and {centre_temperature}"
            )
        self.register_buffer(
            "bias", prior(counts).log().to(torch.get_default_dtype()), persistent=False
        )
        self.alpha, self.beta, self.gamma = alpha, beta, gamma
        self.temperature, self.centre_temperature = temperature, centre_temperature

    def per_sample(
        self, logits: Tensor, target: Tensor, *, anchors: Tensor, others: Tensor, labels: Tensor
    ) -> Tensor:
        """The loss of each anchor: logits (N, C), target (N,), unit rows `anchors` (N, D) and
        `others`
        (M, D), and their `labels` (M,).

        An anchor is never contrasted with itself. A label that is no class, such as -1, is
        nobody's."""
        if len(logits) != len(anchors) or len(target) != len(anchors) or len(others) != len(labels):
            sizes = (
                f"{len(logits)}, {len(target)}, {len(anchors)}, and {len(others)}, {len(labels)}"
            )
            raise LongtailError(
                "expected logits, target and anchors of one length, and others and labels of one"
                f" length, got {sizes}"
            )
        check_classes(logits, self.bias)
        centres = (at_least_float32(logits) + self.bias) / self.centre_temperature
        # A temperature of 0.05 magnifies what bf16 rounds
        with torch.autocast(anchors.device.type, enabled=False):
            contrasted = (
                at_least_float32(anchors)
                @ at_least_float32(torch.cat([anchors, others])).T
                / self.temperature
            )
        oneself = torch.eye(*contrasted.shape, dtype=torch.bool, device=contrasted.device)
        # log(0) is -inf: what has no gamma is not in the softmax.
        louder = (
            contrasted + math.log(self.gamma)
            if self.gamma
            else torch.full_like(contrasted, -torch.inf)
        )
        total = torch.cat([centres, louder.masked_fill(oneself, -torch.inf)], 1).logsumexp(
            1, keepdim=True
        )
        same = (target[:, None] == torch.cat([target, labels.to(target.dtype)])) & ~oneself
        positives = torch.cat(
            [self.beta * F.one_hot(target, logits.shape[1]), self.alpha * same], 1
        ).to(total.dtype)
        return (positives * (total - torch.cat([centres, contrasted], 1))).sum(1) / positives.sum(1)

    def forward(
        self, logits: Tensor, target: Tensor, *, anchors: Tensor, others: Tensor, labels: Tensor
    ) -> Tensor:
        """The mean over anchors; see `each`."""
        return self.per_sample(logits, target, anchors=anchors, others=others, labels=labels).mean()
