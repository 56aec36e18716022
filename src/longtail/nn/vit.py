"""Vision transformers for small images, built from timm's modules."""

from __future__ import annotations

from functools import partial
from typing import Any

from torch import Tensor, nn
from torch.nn import functional as F

from longtail.errors import LongtailError
from longtail.naming import unknown

MOST_TOKENS = 65_536  # of an image: gradients of attention over more need terabytes

POOLS: dict[str, dict[str, Any]] = {
    "token": {"global_pool": "token", "fc_norm": False},
    "avg": {"global_pool": "avg", "fc_norm": False},
    "avg_norm": {"global_pool": "avg", "fc_norm": True},
    "tokens": {"global_pool": "token", "fc_norm": False},
}
"""Pooling modes, as keywords of timm."""


def pooling(pool: str) -> dict[str, Any]:
    """timm's keywords for a pooling mode.

    "token" is the class token after the last norm, "avg" the mean of the patch tokens after it;
    "avg_norm" applies the norm after the mean, as in fine-tuning of masked autoencoders. "tokens"
    is the class token and the distillation token (see `Tokens`).
    """
    if pool not in POOLS:
        raise unknown("pooling mode", pool, POOLS)
    return POOLS[pool]


def check_drop_path(rate: float) -> None:
    """Require a drop path rate in [0, 1)."""
    if not 0 <= rate < 1:
        raise LongtailError(f"expected a drop path in [0, 1), got {rate}: a common value is 0.1")


class Tokens(nn.Module):
    """A transformer with a distillation token (DeiT, Touvron et al. 2021).

    Its features are those of the class token, then those of the distillation token; timm's forward
    returns their mean. `longtail.nn.TokenHeads` is the head for both.

    >>> import torch
    >>> vit_mini(8, width=16, depth=1, pool="tokens")(torch.zeros(2, 3, 8, 8)).shape
    torch.Size([2, 32])
    """

    def __init__(self, transformer: nn.Module) -> None:
        super().__init__()
        if not hasattr(transformer, "dist_token"):
            raise LongtailError(
                "this transformer has no distillation token: use vit_mini, vit_tiny or a timm model"
                " with one, such as timm:deit_tiny_distilled_patch16_224"
            )
        self.transformer = transformer

    def forward(self, image: Tensor) -> Tensor:
        """Features (N, 2 * width)."""
        body: Any = self.transformer
        if not (self.training and _plain(body)):
            return body.forward_features(image)[:, :2].flatten(1)  # type: ignore[no-any-return]
        tokens = body.norm_pre(body.patch_drop(body._pos_embed(body.patch_embed(image))))
        *earlier, last = body.blocks
        for block in earlier:
            tokens = block(tokens)
        return body.norm(_front(last, tokens, 2)).flatten(1)  # type: ignore[no-any-return]


def _plain(transformer: Any) -> bool:
    """Whether `_front` can compute the last block, and only the block's output is needed."""
    from timm.layers.attention import Attention
    from timm.models.vision_transformer import Block

    last = transformer.blocks[-1]
    return (
        type(last) is Block
        and type(last.attn) is Attention
        and getattr(last.attn, "gate", None) is None
        and not transformer.grad_checkpointing
        and not last._forward_hooks  # which need its output for all tokens (see `nn.hidden`)
    )


def _front(block: Any, tokens: Tensor, count: int) -> Tensor:
    """The output of a block for its first tokens, (N, count, width).

    The others are attended to, but have no query, projection or MLP: in the last block, where only
    the first tokens are used, that would be five sixths of the work.
    """
    attention, rows = block.attn, block.norm1(tokens)
    width = attention.qkv.out_features // 3
    weights = attention.qkv.weight.split([width, 2 * width])
    biases = (
        (None, None) if attention.qkv.bias is None else attention.qkv.bias.split([width, 2 * width])
    )

    def heads(projected: Tensor) -> Tensor:
        return projected.unflatten(-1, (-1, attention.head_dim)).transpose(1, 2)  # type: ignore[no-any-return]  # (N, heads, T, head_dim)

    query = heads(F.linear(rows[:, :count], weights[0], biases[0]))
    key, value = (heads(part) for part in F.linear(rows, weights[1], biases[1]).chunk(2, -1))
    mixed = F.scaled_dot_product_attention(
        attention.q_norm(query),
        attention.k_norm(key),
        value,
        dropout_p=attention.attn_drop.p,
        scale=attention.scale,
    )
    attended = attention.proj_drop(attention.proj(attention.norm(mixed.transpose(1, 2).flatten(2))))
    front = tokens[:, :count] + block.drop_path1(block.ls1(attended))
    return front + block.drop_path2(block.ls2(block.mlp(block.norm2(front))))  # type: ignore[no-any-return]


def vit(
    size: int,
    *,
    patch: int | None = None,
    width: int,
    depth: int,
    heads: int,
    pool: str = "token",
    drop_path: float = 0.0,
    layer_scale: float | None = None,
) -> nn.Module:
    """A plain vision transformer.

    Args:
        size: the side of the images in pixels.
        patch: the side of a patch; the default is the largest with at least 8 patches in a row.
        width: of the tokens.
        depth: the number of blocks.
        heads: attention heads of each block.
        pool: see `pooling`.
        drop_path: of the last block; it increases linearly from 0 in the first.
        layer_scale: the initial value of each block's layer scale; None for none.
    """
    # Here, because timm and torchvision take seconds to import
    from timm.models.deit import VisionTransformerDistilled
    from timm.models.vision_transformer import VisionTransformer

    check_drop_path(drop_path)
    if patch is None:
        patch = max((p for p in range(1, size // 8 + 1) if size % p == 0), default=1)
    if patch < 1:
        raise LongtailError(
            f"the patch must be at least one pixel, got size {size} and patch {patch}: choose a"
            f" patch that divides {size}"
        )
    if size % patch:
        sizes = " or ".join(
            str(near) for near in (size - size % patch, size - size % patch + patch) if near
        )
        raise LongtailError(
            f"expected an image size divisible by the patch, got size {size} and patch {patch}: "
            f"choose size {sizes}, or a patch that divides {size}"
        )
    if (size // patch) ** 2 > MOST_TOKENS:
        raise LongtailError(
            f"expected at most {MOST_TOKENS:,} patches, got size {size} and patch {patch}: choose a"
            " larger patch or a smaller size"
        )
    if heads < 1 or width % heads:
        raise LongtailError(
            f"the width must be divisible by the heads, got width {width} and heads {heads}:"
            " choose a"
            f" divisor of {width}"
        )
    distilled = pool == "tokens"
    transformer = (VisionTransformerDistilled if distilled else VisionTransformer)(
        img_size=size,
        patch_size=patch,
        embed_dim=width,
        depth=depth,
        num_heads=heads,
        num_classes=0,
        drop_path_rate=drop_path,
        init_values=layer_scale,
        **pooling(pool),
    )
    return Tokens(transformer) if distilled else transformer


vit_mini = partial(vit, width=128, depth=6, heads=4)
"""A ViT of 1.2 M parameters, with 64 patches at 32 pixels by default; see `vit`."""

vit_tiny = partial(vit, width=192, depth=12, heads=3)
"""ViT-Ti of DeiT (Touvron et al. 2021), 5.4 M parameters, with 64 patches at 32 pixels by default;
see `vit`.
"""
