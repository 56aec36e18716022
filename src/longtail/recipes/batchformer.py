"""BatchFormer and its controls as keywords of other recipes (Hou et al., CVPR 2022)."""

from __future__ import annotations

from typing import Literal

from longtail.errors import LongtailError
from longtail.nn import BatchFormer, Neck, PassThrough, Streams

Use = Literal["off", "on", "frozen", "self"]


def neck(
    dim: int,
    use: Use,
    *,
    plain: float = 0.5,
    attended: float = 0.5,
    loss_scale: float = 1.0,
    heads: int = 4,
    layers: int = 1,
    scope: Literal["local", "global"] = "local",
) -> Neck:
    """What stands before the head: nothing, BatchFormer, or one of its controls.

    "frozen" keeps BatchFormer's random initial weights, "self" lets each image attend to itself alone. The loss is `loss_scale` *
    (`plain` * the loss without BatchFormer + `attended` * the loss with it); "off" it is `loss_scale` * the loss.
    """
    if use == "off":
        if (plain, attended) != (0.5, 0.5):
            raise LongtailError(
                f"expected --batchformer on with --plain and --attended, got it off with {plain} and {attended}: "
                "switch it on, or scale the plain loss with --loss-scale"
            )
        if (layers, scope) != (1, "local"):
            raise LongtailError(
                f"expected --batchformer on with its layers and scope, got it off with {layers} and {scope}: switch it on"
            )
        return PassThrough(loss_scale)
    batchformer = BatchFormer(
        dim, heads=heads, layers=layers, attention="self" if use == "self" else "batch", scope=scope
    )
    if use == "frozen":
        batchformer.requires_grad_(False)
    return Streams(batchformer, plain=loss_scale * plain, attended=loss_scale * attended)


def rates(own: Neck, rate: float, *, usual: float = 0.1) -> dict[str, float]:
    """The neck's learning rate as a share of the network's, where it has anything to learn; elsewhere none but the usual one is meant."""
    if any(p.requires_grad for p in own.parameters()):
        return {"neck": rate}
    if rate != usual:
        raise LongtailError(
            f"expected --batchformer-rate with a BatchFormer that learns, got {rate} with none: switch it on, or leave it out"
        )
    return {}
