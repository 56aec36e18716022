"""BatchFormer: attention over the images of a batch during training (Hou et al., CVPR 2022)."""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor, nn

from longtail.deprecated import renamed_keywords
from longtail.errors import LongtailError
from longtail.nn.neck import Neck, PassThrough, Stream, Streamed
from longtail.processes import first_row, gather, world_size


class BatchFormer(nn.Module):
    """Let the images of a batch attend to each other, during training only.

    BatchFormer, equations 1-2 and Algorithm 1. Returns the input rows, then the same rows after
    attention, and doubles the tensors aligned with them (targets, domains). One classifier learns
    from both, so that at inference, where this module is the identity, nothing is missing.

    Args:
        dim: width of the features, which are (N, dim).
        heads: attention heads; must divide `dim`.
        layers: encoder layers.
        dropout: in the encoder layers.
        hidden: width of the MLP; the default is `dim`.
        attention: "batch"; as a control, "self" lets each row attend to itself alone.
        scope: "local" attends over the rows of each process, "global" over those of all processes.

    As another control, `.requires_grad_(False)` keeps the random initial weights (`Frozen` would
    make the module the identity).

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
                f"dim must be divisible by heads, got dim {dim} and heads {heads}: choose a divisor"
                f" of {dim}"
            )
        if layers < 1:
            raise LongtailError(f"expected at least one layer, got {layers}")
        if attention not in ("batch", "self") or scope not in ("local", "global"):
            raise LongtailError(
                "attention must be 'batch' or 'self' and scope 'local' or 'global', got"
                f" {attention!r}"
                f" and {scope!r}"
            )
        # Not nn.TransformerEncoder: it copies one layer, so all would have equal initial weights.
        self.layers = nn.ModuleList(
            nn.TransformerEncoderLayer(dim, heads, hidden or dim, dropout) for _ in range(layers)
        )
        self.dim, self.attention, self.scope = dim, attention, scope

    def attend(self, features: Tensor) -> Tensor:
        """Return the rows after attention, (N, dim)."""
        start, rows = 0, features.to(next(self.parameters()).dtype)
        if self.scope == "global" and world_size() > 1:
            start, rows = first_row(rows), gather(rows)
        mask = (
            ~torch.eye(len(rows), dtype=torch.bool, device=rows.device)
            if self.attention == "self"
            else None
        )
        rows = rows.unsqueeze(1)  # (sequence, batch of one, dim): the batch is the sequence
        for layer in self.layers:
            rows = layer(rows, src_mask=mask)
        return rows.squeeze(1)[start : start + len(features)].to(features.dtype)

    def forward(self, features: Tensor, *aligned: Tensor) -> tuple[Tensor, ...]:
        """Return the plain rows, then the rows after attention; in eval mode, the input.

        Args:
            features: (N, dim).
            aligned: tensors of N rows, which are doubled as well.
        """
        if features.ndim != 2 or features.shape[1] != self.dim:
            raise LongtailError(f"expected features (N, {self.dim}), got {tuple(features.shape)}")
        for tensor in aligned:
            if tensor.ndim == 0 or len(tensor) != len(features):
                raise LongtailError(
                    f"aligned tensors must have {len(features)} rows, as the features, got shape"
                    f" {tuple(tensor.shape)}"
                )
        if not self.training:
            return (features, *aligned)
        return (
            torch.cat([features, self.attend(features)]),
            *(torch.cat([tensor, tensor]) for tensor in aligned),
        )


class Streams(Neck):
    """BatchFormer as a neck with two streams: the plain rows and the rows after attention.

    The loss is `plain_weight` * the mean loss of the plain rows + `batchformer_weight` * the mean
    loss of the rows after attention. Algorithm 1 is (0.5, 0.5); the released code (1.5, 1.5);
    without the shared classifier (0, 1); a loss-scale control (1.5, 0), where the BatchFormer gets
    no gradient and is frozen.

    >>> neck = Streams(BatchFormer(8))
    >>> features, streams, (target,) = neck(torch.randn(3, 8), torch.tensor([0, 1, 2]))
    >>> streams["attended"]
    Stream(rows=slice(3, 6, None), weight=0.5)
    """

    @renamed_keywords(plain="plain_weight", attended="batchformer_weight")
    def __init__(
        self,
        batchformer: BatchFormer,
        *,
        plain_weight: float = 0.5,
        batchformer_weight: float = 0.5,
    ) -> None:
        super().__init__()
        if min(plain_weight, batchformer_weight) < 0 or plain_weight + batchformer_weight == 0:
            raise LongtailError(
                "both weights must be at least 0, and one of them positive, got plain_weight"
                f" {plain_weight} and batchformer_weight {batchformer_weight}"
            )
        self.batchformer = batchformer
        self.plain_weight, self.batchformer_weight = plain_weight, batchformer_weight
        if batchformer_weight == 0:
            batchformer.requires_grad_(False)

    def forward(self, features: Tensor, *aligned: Tensor) -> Streamed:
        """Two streams in training; the input if this neck or the BatchFormer is in eval mode."""
        if not (self.training and self.batchformer.training):
            return PassThrough()(features, *aligned)  # type: ignore[no-any-return]
        doubled, *rest = self.batchformer(features, *aligned)
        count = len(features)
        streams = {
            "plain": Stream(slice(0, count), self.plain_weight),
            "attended": Stream(slice(count, 2 * count), self.batchformer_weight),
        }
        return Streamed(doubled, streams, tuple(rest))
