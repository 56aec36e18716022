"""BatchFormer and its controls as keywords of other recipes (Hou et al., CVPR 2022)."""

from __future__ import annotations

from typing import Literal

from torch import nn

from longtail.engine.run import Run
from longtail.errors import LongtailError
from longtail.nn import BatchFormer, Neck, PassThrough, Streams

SHARED_HEAD = "BatchFormer stands on inputs that are not trained: this tests the shared head only"
"""The caveat of runs on frozen features with a linear head."""

Mode = Literal["off", "on", "frozen", "self"]
Scope = Literal["local", "global"]


def batchformer_neck(
    dim: int,
    mode: Mode,
    *,
    plain_weight: float = 0.5,
    batchformer_weight: float = 0.5,
    loss_scale: float = 1.0,
    heads: int = 4,
    layers: int = 1,
    scope: Scope = "local",
) -> Neck:
    """Build what stands before the head: nothing, BatchFormer, or one of its controls.

    The loss is `loss_scale` * (`plain_weight` * the loss without BatchFormer +
    `batchformer_weight` * the loss with it); with mode "off" it is `loss_scale` * the loss.

    Args:
        dim: width of the features, which are (N, dim).
        mode: "frozen" keeps BatchFormer's random initial weights; "self" lets each image attend
            to itself alone.
        scope: with several processes, attend within the batch of each ("local") or across all.
    """
    if mode == "off":
        if (plain_weight, batchformer_weight) != (0.5, 0.5):
            raise LongtailError(
                "--plain-weight and --batchformer-weight have no effect without BatchFormer: pass "
                "--batchformer on, or scale the loss with --loss-scale"
            )
        if (layers, scope) != (1, "local"):
            raise LongtailError(
                "--batchformer-layers and --batchformer-scope have no effect without BatchFormer: "
                "pass --batchformer on, or remove them"
            )
        return PassThrough(loss_scale)
    batchformer = BatchFormer(
        dim,
        heads=heads,
        layers=layers,
        attention="self" if mode == "self" else "batch",
        scope=scope,
    )
    if mode == "frozen":
        batchformer.requires_grad_(False)
    return Streams(
        batchformer,
        plain_weight=loss_scale * plain_weight,
        batchformer_weight=loss_scale * batchformer_weight,
    )


def note_frozen_inputs(run: Run, network: nn.Module, neck: Neck) -> None:
    """Add a caveat to a run whose BatchFormer has no trained layer before it."""
    if isinstance(neck, Streams) and not any(p.requires_grad for p in network.parameters()):
        run.caveats.append(SHARED_HEAD)


def lr_scales(neck: Neck, scale: float, *, default: float = 0.1) -> dict[str, float]:
    """The neck's learning rate as a share of the network's, where it has parameters to train.

    A `scale` other than the recipe's default is refused where it would have no effect.
    """
    if any(p.requires_grad for p in neck.parameters()):
        return {"neck": scale}
    if scale != default:
        raise LongtailError(
            f"--batchformer-lr-scale {scale} has no effect without a BatchFormer that is trained: "
            "pass --batchformer on, or remove it"
        )
    return {}
