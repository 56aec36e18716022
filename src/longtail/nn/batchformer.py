"""Attention over the batch while training, so that rare classes learn from their neighbours (Hou et
al., CVPR 2022).
"""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor, nn

from longtail.errors import LongtailError
from longtail.nn.neck import Neck, PassThrough, Stream, Streamed
from longtail.processes import first_row, gather, world_size


class BatchFormer(nn.Module):
    """Let the images of a batch attend to each other, in training only (BatchFormer, equations 1-2
    and
    Algorithm 1).

    Gives the rows as they came, then the same rows after attention, and doubles whatever is aligned
    with them (targets, domains). One classifier learns from both, so that at inference, where this
    is the identity, nothing is missing.

    `scope="global"` attends over the rows of all processes; otherwise each process attends over its
    own. Controls: `attention="self"` lets each row see itself only, and `.requires_grad_(False)`
    keeps the random initial weights (`Frozen` would make it the identity).

    >>> batchformer = BatchFormer(8)
    >>> features, target = batchformer(torch.randn(3, 8), torch.tensor([0, 1, 2]))
    >>> features.shape, target.tolist()
    (torch.Size([6, 8]), [0, 1, 2, 0, 1, 2])
    >>> batchformer.eval()(torch.randn(3, 8))[0].shape
    torch.Size([3, 8])
    """

    def __init__(
        self,
        dim: int,
        *,
        heads: int = 4,
        layers: int = 1,
        dropout: float = 0.5,
        hidden: int | None = None,
        attention: Literal["batch", "self"] = "batch",
        scope: Literal["local", "global"] = "local",
    ) -> None:
        super().__init__()
        if dim % heads:
            raise LongtailError(
                f"expected a dim divisible by heads, got dim {dim} and heads {heads}: take a"
                f" divisor of {dim}"
            )
        if layers < 1:
            raise LongtailError(f"expected at least one layer, got {layers}")
        if attention not in ("batch", "self") or scope not in ("local", "global"):
            raise LongtailError(
                f"expected attention batch or self and scope local or global, got {attention!r} and"
                f" {scope!r}"
            )
        # Not nn.TransformerEncoder: it copies one layer, so that all would start equal.
        self.layers = nn.ModuleList(
            nn.TransformerEncoderLayer(dim, heads, hidden or dim, dropout) for _ in range(layers)
        )
        self.dim, self.attention, self.scope = dim, attention, scope

    def attend(self, features: Tensor) -> Tensor:
        """The rows after attention, without the plain ones."""
        start, rows = 0, features.to(next(self.parameters()).dtype)
        if self.scope == "global" and world_size() > 1:
            start, rows = first_row(rows), gather(rows)
        alone = (
            ~torch.eye(len(rows), dtype=torch.bool, device=rows.device)
            if self.attention == "self"
            else None
        )
        rows = rows.unsqueeze(1)  # (sequence, batch of one, dim): the batch is the sequence
        for layer in self.layers:
            rows = layer(rows, src_mask=alone)
        return rows.squeeze(1)[start : start + len(features)].to(features.dtype)

    def forward(self, features: Tensor, *aligned: Tensor) -> tuple[Tensor, ...]:
        """Double the rows in training: plain first, then attended. Leave everything as it is in
        eval.
        """
        if features.ndim != 2 or features.shape[1] != self.dim:
            raise LongtailError(f"expected features (N, {self.dim}), got {tuple(features.shape)}")
        for tensor in aligned:
            if tensor.ndim == 0 or len(tensor) != len(features):
                raise LongtailError(
                    f"expected aligned tensors of {len(features)} rows, as the features, got shape"
                    f" {tuple(tensor.shape)}"
                )
        if not self.training:
            return (features, *aligned)
        return (
            torch.cat([features, self.attend(features)]),
            *(torch.cat([tensor, tensor]) for tensor in aligned),
        )


class Streams(Neck):
    """BatchFormer as a neck: loss = plain * mean loss of the plain rows + attended * mean loss of
    the
    attended rows.

    Algorithm 1 is (0.5, 0.5); the released code (1.5, 1.5); without the shared classifier (0, 1); a
    loss-scale control (1.5, 0), where the BatchFormer has nothing to learn from and is frozen.

    >>> neck = Streams(BatchFormer(8))
    >>> features, streams, (target,) = neck(torch.randn(3, 8), torch.tensor([0, 1, 2]))
    >>> streams["attended"]
    Stream(rows=slice(3, 6, None), weight=0.5)
    """

    def __init__(
        self, batchformer: BatchFormer, *, plain: float = 0.5, attended: float = 0.5
    ) -> None:
        super().__init__()
        if min(plain, attended) < 0 or plain + attended == 0:
            raise LongtailError(
                f"expected weights of at least 0, one of them positive, got plain {plain} and"
                f" attended {attended}"
            )
        self.batchformer, self.plain, self.attended = batchformer, plain, attended
        if attended == 0:
            batchformer.requires_grad_(False)

    def forward(self, features: Tensor, *aligned: Tensor) -> Streamed:
        """Two streams in training, the rows as they came in eval, and where the BatchFormer alone
        is in eval.
        """
        if not (self.training and self.batchformer.training):
            return PassThrough()(features, *aligned)  # type: ignore[no-any-return]
        doubled, *rest = self.batchformer(features, *aligned)
        count = len(features)
        streams = {
            "plain": Stream(slice(0, count), self.plain),
            "attended": Stream(slice(count, 2 * count), self.attended),
        }
        return Streamed(doubled, streams, tuple(rest))
