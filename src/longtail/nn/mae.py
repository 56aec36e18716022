"""Masked autoencoders: a transformer reconstructs hidden patches of an image (He et al. 2022)."""

from __future__ import annotations

from functools import partial
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from longtail.errors import LongtailError
from longtail.nn.fast_vit import Stem
from longtail.nn.networks import Backbone, Network


def sincos_positions(width: int, grid: int, *, prefix: int = 1) -> Tensor:
    """Fixed sine-cosine position embeddings (1, prefix + grid * grid, width) of a grid of patches.

    The `prefix` tokens before the patches have zeros.

    A quarter of the width each: sines and cosines of the column, then of the row, at wavelengths
    from 2 pi to 20,000 pi.

    >>> sincos_positions(8, 2)[0, 2].round(decimals=3).tolist()  # row 0, column 1
    [0.8410000205039978, 0.009999999776482582, 0.5400000214576721, 1.0, 0.0, 0.0, 1.0, 1.0]
    """
    if width % 4:
        near = max(4, round(width / 4) * 4)
        raise LongtailError(
            "the width must be divisible by 4 for position embeddings in two dimensions, got"
            f" {width}: choose {near}"
        )
    frequencies = 10000.0 ** (-torch.arange(width // 4, dtype=torch.float64) / (width // 4))
    row, column = torch.meshgrid(*[torch.arange(grid, dtype=torch.float64)] * 2, indexing="ij")
    angles = [axis.flatten()[:, None] * frequencies for axis in (column, row)]
    waves = torch.cat([wave for angle in angles for wave in (angle.sin(), angle.cos())], dim=1)
    return torch.cat([torch.zeros(prefix, width, dtype=torch.float64), waves])[None].to(
        torch.get_default_dtype()
    )


class Masked(NamedTuple):
    """The visible patches of each image, and how to restore their order."""

    visible: Tensor  # (N, V, D), in random order
    hidden: Tensor  # bool (N, L): which patches are missing
    # (N, L): the position of each patch among the visible ones followed by the hidden ones
    restore: Tensor


def visible_patches(patches: int, ratio: float) -> int:
    """The number of `patches` that stay visible if the share `ratio` is hidden, rounded down.

    >>> visible_patches(64, 0.75), visible_patches(10, 0.9)
    (16, 1)
    """
    if not 0 < ratio < 1:
        raise LongtailError(
            f"expected a mask ratio between 0 and 1, got {ratio}: a common value is 0.75"
        )
    visible = int(patches * (1 - ratio) + 1e-9)  # 10 * (1 - 0.9) is a little less than 1
    if not 0 < visible < patches:
        raise LongtailError(
            f"the mask ratio {ratio} hides all or none of {patches} patches: choose another"
            " ratio or"
            " smaller patches"
        )
    return visible


def random_masking(tokens: Tensor, ratio: float) -> Masked:
    """Hide a random share `ratio` of the patches of each image.

    >>> masked = random_masking(torch.zeros(2, 8, 3), 0.75)
    >>> masked.visible.shape, masked.hidden.sum(1).tolist()
    (torch.Size([2, 2, 3]), [6, 6])
    """
    rows, patches, dim = tokens.shape
    visible = visible_patches(patches, ratio)
    order = torch.rand(rows, patches, device=tokens.device).argsort(1)
    restore = order.argsort(1)
    return Masked(
        tokens.gather(1, order[:, :visible, None].expand(-1, -1, dim)), restore >= visible, restore
    )


def to_patches(image: Tensor, patch: int) -> Tensor:
    """Cut images (N, 3, H, W) into patches (N, L, patch * patch * 3), row by row.

    Within a patch, the channels of a pixel are adjacent.

    >>> to_patches(torch.arange(12.0).view(1, 3, 2, 2), 1).tolist()
    [[[0.0, 4.0, 8.0], [1.0, 5.0, 9.0], [2.0, 6.0, 10.0], [3.0, 7.0, 11.0]]]
    """
    rows, channels, height, width = image.shape
    cut = image.reshape(rows, channels, height // patch, patch, width // patch, patch)
    return cut.permute(0, 2, 4, 3, 5, 1).reshape(rows, -1, patch * patch * channels)


def to_images(patches: Tensor, patch: int) -> Tensor:
    """Put the patches of square images back together: the inverse of `to_patches`.

    >>> image = torch.rand(2, 3, 8, 8)
    >>> torch.equal(to_images(to_patches(image, 4), 4), image)
    True
    """
    rows, count, pixels = patches.shape
    side = round(count**0.5)
    cut = patches.reshape(rows, side, side, patch, patch, pixels // patch**2)
    return cut.permute(0, 5, 1, 3, 2, 4).reshape(rows, -1, side * patch, side * patch)


def transformer(network: Network) -> Any:
    """The timm vision transformer inside a network, with its patches, blocks and tokens."""
    # Here, because timm and torchvision take seconds to import
    from timm.models.vision_transformer import VisionTransformer

    if not isinstance(network, Backbone) or not isinstance(network.body, VisionTransformer):
        name = network.spec.get("name") if isinstance(network, Network) else type(network).__name__
        raise LongtailError(
            f"{name} is not a vision transformer: use vit_mini, vit_tiny or one of timm, such as"
            " timm:vit_base_patch16_224"
        )
    return network.body


def check_patches(network: Network) -> None:
    """Raise for a transformer whose tokens are not patches of the image, which cannot be masked."""
    embed = transformer(network).patch_embed
    grid, patch, size = embed.grid_size[0], embed.patch_size[0], embed.img_size[0]
    if grid * patch != size or not isinstance(embed.proj, nn.Conv2d):
        raise LongtailError(
            "the tokens of the encoder must be patches of the image, got"
            f" {network.spec.get('name')} with {grid} patches of {patch} in a row of {size} pixels:"
            " use a plain transformer, such as timm:vit_base_patch16_224"
        )


def initialise(network: Network) -> Network:
    """Initialise a vision transformer, in place, as masked autoencoders are; return it.

    Linear layers, including the patch embedding, are Xavier uniform; the position embeddings are
    sines and cosines.

    >>> from longtail.nn import build
    >>> spec = {"name": "vit_mini", "size": 8, "patch": 4, "width": 16, "depth": 1}
    >>> network = initialise(build(spec))
    >>> network.body.pos_embed[0, 0].abs().sum().item()  # the class token has no position
    0.0
    """
    body = transformer(network)
    check_patches(network)
    grid = body.patch_embed.grid_size[0]
    body.apply(_linear_maps)
    with torch.no_grad():
        # Drawn separately: flattening weights in channels-last order would make a copy
        patches = body.patch_embed.proj.weight
        patches.copy_(
            nn.init.xavier_uniform_(torch.empty_like(patches.flatten(1))).view(patches.shape)
        )
        for token in (body.cls_token, body.reg_token):
            if token is not None:
                nn.init.normal_(token, std=0.02)
        body.pos_embed.copy_(
            sincos_positions(body.embed_dim, grid, prefix=body.pos_embed.shape[1] - grid * grid)
        )
    return network


def _linear_maps(module: nn.Module) -> None:
    if isinstance(module, nn.Linear):
        nn.init.xavier_uniform_(module.weight)
        if module.bias is not None:
            nn.init.zeros_(module.bias)


class Decoder(nn.Module):
    """A small transformer from the encoder's tokens to the pixels of every patch.

    The input for hidden patches is one trainable token.

    Args:
        dim: width of the encoder's tokens.
        grid: patches in a row.
        pixels: values of a patch, patch * patch * 3.
        width: of the decoder's tokens.
        depth: the number of blocks.
        heads: attention heads of each block.
        prefix: tokens before the patches, such as the class token.

    A class token and one visible patch of four:

    >>> decoder = Decoder(16, grid=2, pixels=48, width=8, depth=1, heads=2)
    >>> decoder(torch.zeros(3, 2, 16), torch.arange(4).expand(3, 4)).shape
    torch.Size([3, 4, 48])
    """

    positions: Tensor

    def __init__(
        self,
        dim: int,
        *,
        grid: int,
        pixels: int,
        width: int = 512,
        depth: int = 8,
        heads: int = 16,
        prefix: int = 1,
    ) -> None:
        super().__init__()
        from timm.models.vision_transformer import Block

        # Without a block, hidden patches cannot attend to the image, and the encoder gets no
        # gradient
        if depth < 1 or width < 1:
            raise LongtailError(
                f"the decoder needs at least one block and a positive width, got depth {depth} and"
                f" width {width}"
            )
        if heads < 1 or width % heads:
            raise LongtailError(
                f"the decoder's width must be divisible by its heads, got width {width} and heads"
                f" {heads}: choose a divisor of {width}"
            )
        norm: Any = partial(nn.LayerNorm, eps=1e-6)
        self.embed = nn.Linear(dim, width)
        self.mask_token = nn.Parameter(torch.empty(1, 1, width))
        self.blocks = nn.Sequential(
            *(Block(width, heads, qkv_bias=True, norm_layer=norm) for _ in range(depth))
        )
        self.norm = norm(width)
        self.pixels = nn.Linear(width, pixels)
        self.register_buffer("positions", sincos_positions(width, grid, prefix=prefix))
        self.prefix = prefix
        self.apply(_linear_maps)
        nn.init.normal_(self.mask_token, std=0.02)

    def forward(self, tokens: Tensor, restore: Tensor) -> Tensor:
        """Pixels (N, L, patch * patch * 3) from the visible tokens; `restore` as in `Masked`."""
        tokens = self.embed(tokens)
        prefix, visible = tokens[:, : self.prefix], tokens[:, self.prefix :]
        hidden = self.mask_token.to(tokens.dtype).expand(
            len(tokens), restore.shape[1] - visible.shape[1], -1
        )
        patches = torch.cat([visible, hidden], 1).gather(
            1, restore[..., None].expand(-1, -1, visible.shape[2])
        )
        tokens = self.blocks(torch.cat([prefix, patches], 1) + self.positions)
        return self.pixels(self.norm(tokens)[:, self.prefix :])  # type: ignore[no-any-return]


class Reconstruction(NamedTuple):
    """The output of a masked autoencoder."""

    loss: Tensor
    predicted: Tensor  # (N, L, patch * patch * 3): every patch, of mean 0 and deviation 1
    hidden: Tensor  # bool (N, L)


class MaskedAutoencoder(nn.Module):
    """Reconstruct the hidden patches of an image from the visible ones.

    He et al. 2022; LiVT, equation 4. The encoder gets the visible patches only. The loss is the
    squared error on hidden patches, each normalised to mean 0 and standard deviation 1.

    Args:
        network: a vision transformer with a norm after its blocks (`pool` "avg" or "token"); its
            position embeddings are frozen here.
        ratio: the share of patches to hide.
        width: of the decoder; 512 in the paper.
        depth: blocks of the decoder; 8 in the paper.
        heads: attention heads of the decoder.

    >>> from longtail.nn import build
    >>> spec = {"name": "vit_mini", "size": 8, "patch": 2, "width": 16, "depth": 1, "pool": "avg"}
    >>> network = initialise(build(spec))
    >>> autoencoder = MaskedAutoencoder(network, width=8, depth=1, heads=2)
    >>> result = autoencoder(torch.rand(3, 3, 8, 8))
    >>> result.predicted.shape, result.hidden.sum(1).tolist()
    (torch.Size([3, 16, 12]), [12, 12, 12])
    """

    def __init__(
        self,
        network: Network,
        *,
        ratio: float = 0.75,
        width: int = 512,
        depth: int = 8,
        heads: int = 16,
    ) -> None:
        super().__init__()
        body = transformer(network)
        if not isinstance(body.fc_norm, nn.Identity):
            pool = network.spec.get("pool")
            raise LongtailError(
                f"the encoder needs a norm after its blocks, got pool {pool!r}: build it with pool"
                " 'avg' or 'token'"
            )
        check_patches(network)
        self.patch, grid = body.patch_embed.patch_size[0], body.patch_embed.grid_size[0]
        visible_patches(grid * grid, ratio)  # raises for an invalid ratio
        assert isinstance(network, Backbone)
        self.network, self.ratio = network, ratio
        body.pos_embed.requires_grad_(False)
        self.decoder = Decoder(
            body.embed_dim,
            grid=grid,
            pixels=3 * self.patch**2,
            width=width,
            depth=depth,
            heads=heads,
            prefix=body.num_prefix_tokens,
        )

    def encode(self, normal: Tensor) -> tuple[Tensor, Masked]:
        """The prefix tokens and those of the visible patches; `normal` are normalised images."""
        body = transformer(self.network)
        if isinstance(body.patch_embed, Stem):
            return self._encode_convolved(normal)
        tokens = body._pos_embed(body.patch_embed(normal))
        prefix, patches = tokens[:, : body.num_prefix_tokens], tokens[:, body.num_prefix_tokens :]
        masked = random_masking(patches, self.ratio)
        return body.norm(body.blocks(body.norm_pre(torch.cat([prefix, masked.visible], 1)))), masked

    def _encode_convolved(self, normal: Tensor) -> tuple[Tensor, Masked]:
        """`encode` for tokens that overlap: hidden pixels are zero before the stem (equation 4)."""
        body, pixels = transformer(self.network), to_patches(normal, self.patch)
        masked = random_masking(pixels, self.ratio)
        shown = to_images(pixels.masked_fill(masked.hidden[..., None], 0.0), self.patch)
        tokens = body._pos_embed(body.patch_embed(shown))
        prefix, patches = tokens[:, : body.num_prefix_tokens], tokens[:, body.num_prefix_tokens :]
        order = masked.restore.argsort(1)[:, : masked.visible.shape[1], None]
        visible = patches.gather(1, order.expand(-1, -1, patches.shape[2]))
        tokens = body.blocks(body.norm_pre(torch.cat([prefix, visible], 1)))
        return body.norm(tokens), Masked(visible, masked.hidden, masked.restore)

    def forward(self, image: Tensor) -> Reconstruction:
        """Mask, encode and reconstruct images (N, 3, size, size) in [0, 1]."""
        normal = self.network.normalize(image)
        tokens, masked = self.encode(normal)
        predicted = self.decoder(tokens, masked.restore)
        patches, mean, deviation = self._patches(normal)
        error = (predicted - (patches - mean) / deviation).square().mean(-1)
        return Reconstruction(
            (error * masked.hidden).sum() / masked.hidden.sum(), predicted, masked.hidden
        )

    def _patches(self, normal: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """The patches, and the mean and standard deviation of each."""
        patches = to_patches(normal, self.patch)
        return (
            patches,
            patches.mean(-1, keepdim=True),
            (patches.var(-1, keepdim=True) + 1e-6).sqrt(),
        )

    @torch.no_grad()
    def show(self, image: Tensor) -> tuple[Tensor, Tensor]:
        """The images with hidden patches in grey, and with hidden patches reconstructed.

        Reconstructed patches get the mean and standard deviation of the true ones, which the
        autoencoder does not predict.
        """
        result, normalize = self(image), self.network.normalize
        _, mean, deviation = self._patches(normalize(image))
        reconstructed = (
            to_images(result.predicted.to(image.dtype) * deviation + mean, self.patch)
            * normalize.std
            + normalize.mean
        )
        hidden = to_images(result.hidden[..., None].expand(-1, -1, 3 * self.patch**2), self.patch)
        return torch.where(hidden, 0.5, image), torch.where(
            hidden, reconstructed.clamp(0, 1), image
        )
