"""Supervised contrastive loss over unit vectors."""

from __future__ import annotations

import torch
from torch import Tensor


def supervised_contrastive(
    z: Tensor, target: Tensor, *, temperature: float, rows: Tensor | None = None
) -> Tensor:
    """Contrast each row with all others: those of its class attract it, the others repel it.

    Row i has - mean over p of log(exp(z_i . z_p / t) / sum over j != i of exp(z_i . z_j / t)),
    where p are the other rows of its class. The result is the mean over the rows that are not alone
    in their class, and 0 without any. Khosla et al., "Supervised Contrastive Learning", NeurIPS
    2020, equation 2.

    Args:
        z: unit vectors (N, dim).
        target: class indices (N,).
        temperature: t.
        rows: factors of the rows (N,), 1 unless given.

    >>> z = torch.tensor([[1.0, 0.0], [1.0, 0.0], [0.0, 1.0]])
    >>> supervised_contrastive(z, torch.tensor([0, 0, 1]), temperature=1.0)
    tensor(0.3133)
    """
    similarity = z @ z.T / temperature
    itself = torch.eye(len(z), dtype=torch.bool, device=z.device)
    log = similarity - similarity.masked_fill(itself, -torch.inf).logsumexp(1, keepdim=True)
    positive = (target[:, None] == target[None]) & ~itself
    count = positive.sum(1)
    losses = -(log * positive).sum(1) / count.clamp(min=1)
    if rows is not None:
        losses = losses * rows
    return losses.sum() / (count > 0).sum().clamp(min=1)
