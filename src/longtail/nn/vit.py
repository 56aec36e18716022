"""Vision transformers for small images, made of timm's parts."""

from __future__ import annotations

from torch import nn


def vit(size: int, *, patch: int | None, width: int, depth: int, heads: int) -> nn.Module:
    """A plain vision transformer whose features are the class token after the last norm."""
    from timm.models.vision_transformer import VisionTransformer  # here, because timm and torchvision take seconds to import

    if patch is None:
        patch = max((p for p in range(1, size // 8 + 1) if size % p == 0), default=1)
    if size % patch:
        raise ValueError(f"expected an image size divisible by the patch, got size {size} and patch {patch}: take a divisor of {size}")
    if width % heads:
        raise ValueError(f"expected a width divisible by the heads, got width {width} and heads {heads}: take a divisor of {width}")
    return VisionTransformer(
        img_size=size, patch_size=patch, embed_dim=width, depth=depth, num_heads=heads, num_classes=0, global_pool="token"
    )


def vit_mini(size: int, *, patch: int | None = None, width: int = 128, depth: int = 6, heads: int = 4) -> nn.Module:
    """A ViT of 1.2 M parameters; about 64 patches unless `patch` says otherwise (4 pixels at 32)."""
    return vit(size, patch=patch, width=width, depth=depth, heads=heads)


def vit_tiny(size: int, *, patch: int | None = None, width: int = 192, depth: int = 12, heads: int = 3) -> nn.Module:
    """ViT-Ti of DeiT (Touvron et al. 2021), 5.4 M parameters; about 64 patches unless `patch` says otherwise (4 pixels at 32)."""
    return vit(size, patch=patch, width=width, depth=depth, heads=heads)
