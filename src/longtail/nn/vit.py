"""Vision transformers for small images, made of timm's parts."""

from __future__ import annotations

from typing import Any

from torch import Tensor, nn
from torch.nn import functional as F

from longtail.errors import LongtailError
from longtail.naming import unknown

POOLS: dict[str, dict[str, Any]] = {
    "token": {"global_pool": "token", "fc_norm": False},
    "avg": {"global_pool": "avg", "fc_norm": False},
    "avg_norm": {"global_pool": "avg", "fc_norm": True},
    "tokens": {"global_pool": "token", "fc_norm": False},
}
"""How tokens become features, as timm says it."""


def pooling(pool: str) -> dict[str, Any]:
    """timm's keywords for a way to pool.

    "token" is the class token after the last norm, "avg" the mean of the patch tokens after it;
    "avg_norm" takes the mean first and has its norm there, as masked autoencoders are fine-tuned.
    "tokens" is the class token and the distillation token beside it (see `Tokens`)."""
    if pool not in POOLS:
        raise unknown("way to pool", pool, POOLS)
    return POOLS[pool]


def check_drop_path(rate: float) -> None:
    """Refuse a drop path outside [0, 1)."""
    if not 0 <= rate < 1:
        raise LongtailError(f"expected a drop path in [0, 1), got {rate}: 0.1 is usual")


class Tokens(nn.Module):
    """A transformer with a distillation token (DeiT, Touvron et al. 2021): features are the class
    token's, then the distillation token's.

    timm's own forward gives their mean. `longtail.nn.TokenHeads` is the head for both.

    >>> import torch
    >>> vit_mini(8, width=16, depth=1, pool="tokens")(torch.zeros(2, 3, 8, 8)).shape
    torch.Size([2, 32])
    """

    def __init__(self, transformer: nn.Module) -> None:
        super().__init__()
        if not hasattr(transformer, "dist_token"):
            raise LongtailError(
                "expected a transformer with a distillation token, got one without: take vit_mini,"
                " vit_tiny or one of timm's, such as timm:deit_tiny_distilled_patch16_224"
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
    """Whether the last block is one that `_front` can compute, and nothing but its output is
    wanted.
    """
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
    """The first tokens behind a block, (N, count, width): the others are attended to, but have no
    query, projection or MLP.

    What a last block computes for tokens that nobody reads is five sixths of its work.
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
    patch: int | None,
    width: int,
    depth: int,
    heads: int,
    pool: str = "token",
    drop_path: float = 0.0,
    layer_scale: float | None = None,
) -> nn.Module:
    """A plain vision transformer.

    Without `patch`, its patches are the largest that leave at least 8 in a row. `drop_path` rises
    to its value from block to block; `layer_scale` is where each block's scale begins."""
    # Here, because timm and torchvision take seconds to import
    from timm.models.deit import VisionTransformerDistilled
    from timm.models.vision_transformer import VisionTransformer

    check_drop_path(drop_path)
    if patch is None:
        patch = max((p for p in range(1, size // 8 + 1) if size % p == 0), default=1)
    if patch < 1:
        raise LongtailError(
            f"expected a patch of at least one pixel, got size {size} and patch {patch}: take a"
            f" patch that divides {size}"
        )
    if size % patch:
        sizes = " or ".join(
            str(own) for own in (size - size % patch, size - size % patch + patch) if own
        )
        raise LongtailError(
            f"expected an image size divisible by the patch, got size {size} and patch {patch}: "
            f"take size {sizes}, or a patch that divides {size}"
        )
    if heads < 1 or width % heads:
        raise LongtailError(
            f"expected a width divisible by the heads, got width {width} and heads {heads}: take a"
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


def vit_mini(
    size: int,
    *,
    patch: int | None = None,
    width: int = 128,
    depth: int = 6,
    heads: int = 4,
    pool: str = "token",
    drop_path: float = 0.0,
    layer_scale: float | None = None,
) -> nn.Module:
    """A ViT of 1.2 M parameters; 64 patches at 32 pixels, unless `patch` says otherwise."""
    return vit(
        size,
        patch=patch,
        width=width,
        depth=depth,
        heads=heads,
        pool=pool,
        drop_path=drop_path,
        layer_scale=layer_scale,
    )


def vit_tiny(
    size: int,
    *,
    patch: int | None = None,
    width: int = 192,
    depth: int = 12,
    heads: int = 3,
    pool: str = "token",
    drop_path: float = 0.0,
    layer_scale: float | None = None,
) -> nn.Module:
    """ViT-Ti of DeiT (Touvron et al. 2021), 5.4 M parameters; 64 patches at 32 pixels, unless
    `patch` says otherwise.
    """
    return vit(
        size,
        patch=patch,
        width=width,
        depth=depth,
        heads=heads,
        pool=pool,
        drop_path=drop_path,
        layer_scale=layer_scale,
    )
