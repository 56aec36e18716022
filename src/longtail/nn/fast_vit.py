"""A transformer with a convolutional stem that trains in minutes on a CPU."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

from torch import Tensor, nn

from longtail.errors import LongtailError
from longtail.nn.fast_cnn import Block
from longtail.nn.vit import Tokens, check_drop_path, pooling


class Stem(nn.Module):
    """A 2x2 convolution, blocks that halve the image, and a convolution to a grid of tokens.

    The grid has a token for every 8 x 8 pixels: 4 x 4 tokens at 32 pixels. Smaller images have
    fewer blocks, so that they still become about 4 x 4 tokens.

    >>> import torch
    >>> Stem(img_size=32, embed_dim=24)(torch.zeros(2, 3, 32, 32)).shape
    torch.Size([2, 16, 24])
    """

    def __init__(self, *, img_size: int, embed_dim: int, **unused: Any) -> None:
        super().__init__()
        widths = (16, 32, 128) if img_size >= 32 else (16, 128) if img_size >= 16 else (16,)
        blocks = pairwise(widths)
        self.stem = nn.Sequential(
            nn.Conv2d(3, widths[0], 2), nn.GELU(), *(Block(a, b) for a, b in blocks)
        )
        self.proj = nn.Conv2d(widths[-1], embed_dim, 3, 2, 1, bias=False)
        self.norm = nn.Sequential(nn.BatchNorm2d(embed_dim), nn.GELU())
        side = 2 ** len(widths)
        self.img_size, self.patch_size = (img_size, img_size), (side, side)
        # The first convolution removes one pixel, the last one rounds up
        grid = ((img_size - 1) // 2 ** (len(widths) - 1) + 1) // 2
        self.grid_size, self.num_patches = (grid, grid), grid * grid

    def forward(self, image: Tensor) -> Tensor:
        """Tokens (N, L, embed_dim), row by row."""
        tokens: Tensor = self.norm(self.proj(self.stem(image))).flatten(2).mT
        return tokens


class MeanTokens(Tokens):
    """Class token and distillation token, each with the mean of the patch tokens added.

    >>> import torch
    >>> fast_vit(8, width=12, depth=1, pool="tokens")(torch.zeros(2, 3, 8, 8)).shape
    torch.Size([2, 24])
    """

    def forward(self, image: Tensor) -> Tensor:
        """Features (N, 2 * width)."""
        body: Any = self.transformer
        tokens = body.forward_features(image)
        return (tokens[:, :2] + tokens[:, 2:].mean(1, keepdim=True)).flatten(1)  # type: ignore[no-any-return]


def fast_vit(
    size: int,
    *,
    patch: int | None = None,
    width: int = 192,
    depth: int = 4,
    heads: int = 6,
    pool: str = "token",
    drop_path: float = 0.0,
    layer_scale: float | None = None,
) -> nn.Module:
    """A convolutional stem to 4 x 4 tokens at 32 pixels, and four blocks: 1.6 M parameters.

    The heads of the class and the distillation token read their token plus the mean of the patch
    tokens.

    Args:
        size: Side of the images in pixels.
        patch: Must be None: the stem makes the tokens.
        width: Of the tokens.
        depth: Number of blocks.
        heads: Attention heads of each block.
        pool: See `longtail.nn.vit.pooling`.
        drop_path: Stochastic depth of the last block.
        layer_scale: Initial value of the layer scales; None for none.
    """
    # Here, because timm and torchvision take seconds to import
    from timm.models.deit import VisionTransformerDistilled
    from timm.models.vision_transformer import VisionTransformer

    if patch is not None:
        raise LongtailError(
            f"--patch {patch} has no effect with fast_vit, which has a convolutional stem: remove"
            " it, or choose vit_mini"
        )
    check_drop_path(drop_path)
    if heads < 1 or width % heads:
        raise LongtailError(
            f"the width must be divisible by the heads, got width {width} and heads {heads}"
        )
    distilled = pool == "tokens"
    body: Any = (VisionTransformerDistilled if distilled else VisionTransformer)(
        img_size=size,
        embed_layer=Stem,
        embed_dim=width,
        depth=depth,
        num_heads=heads,
        mlp_ratio=2.0,
        num_classes=0,
        drop_path_rate=drop_path,
        init_values=layer_scale,
        **pooling(pool),
    )
    if pool == "token":
        body.pool = _token_and_mean
    return MeanTokens(body) if distilled else body


def _token_and_mean(tokens: Tensor, pool_type: str | None = None) -> Tensor:
    """In the place of timm's pooling of tokens (N, 1 + L, width)."""
    return tokens[:, 0] + tokens[:, 1:].mean(1)
