"""The attention and the tokens of a vision transformer: rollout, distance and rank.

DeiT-LT, figures 4b, 4c and 5.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from longtail.errors import LongtailError


class Attention(NamedTuple):
    """The attention and the tokens of a transformer for a batch of images."""

    attention: Tensor  # (N, blocks, heads, T, T): rows attend to columns, and sum to 1
    tokens: Tensor  # (N, blocks, T, dim): after each block
    prefix: int  # how many tokens stand before the patches: 1 for cls, 2 for cls and dist
    patch: int  # pixels: the side of a patch


def transformer_of(network: nn.Module) -> Any:
    """The one timm transformer inside a network."""
    # Here, because timm and torchvision take seconds to import
    from timm.models.vision_transformer import VisionTransformer

    transformers = [module for module in network.modules() if isinstance(module, VisionTransformer)]
    if len(transformers) != 1:
        raise LongtailError(
            f"expected a network with one vision transformer inside, got {len(transformers)} in"
            f" {type(network).__name__}"
        )
    return transformers[0]


def head_tokens(transformer: nn.Module) -> int:
    """How many tokens in front feed a head: 2 with a distillation token, else 1."""
    return 2 if hasattr(transformer, "dist_token") else 1


@torch.no_grad()
def attention_maps(network: nn.Module, image: Tensor) -> Attention:
    """Run a network in eval mode on images, and record every block's attention and tokens.

    The attention is computed a second time, because timm's may be fused and not accessible.

    >>> from longtail.nn import build
    >>> spec = {"name": "vit_mini", "size": 8, "patch": 4, "width": 16, "depth": 2}
    >>> maps = attention_maps(build({**spec, "pool": "tokens"}), torch.rand(3, 3, 8, 8))
    >>> maps.attention.shape, maps.tokens.shape, maps.prefix
    (torch.Size([3, 2, 4, 6, 6]), torch.Size([3, 2, 6, 16]), 2)
    """
    transformer, attention, tokens = transformer_of(network), [], []

    def before(module: Any, inputs: tuple[Tensor, ...]) -> None:
        rows = inputs[0]
        shape = (*rows.shape[:2], 3, module.num_heads, module.head_dim)
        query, key, _ = module.qkv(rows).reshape(shape).permute(2, 0, 3, 1, 4).unbind(0)
        attention.append(
            (module.scale * module.q_norm(query) @ module.k_norm(key).transpose(-2, -1)).softmax(-1)
        )

    def after(module: nn.Module, inputs: Any, output: Tensor) -> None:
        tokens.append(output)

    handles = [block.attn.register_forward_pre_hook(before) for block in transformer.blocks]
    handles += [block.register_forward_hook(after) for block in transformer.blocks]
    training = network.training
    try:
        network.eval()(image)
    finally:
        network.train(training)
        for handle in handles:
            handle.remove()
    return Attention(
        torch.stack(attention, 1),
        torch.stack(tokens, 1),
        int(transformer.num_prefix_tokens),
        int(transformer.patch_embed.patch_size[0]),
    )


def rollout(attention: Tensor, *, prefix: int) -> Tensor:
    """How much of each patch reaches each token in front, through all blocks: (N, prefix, H, W).

    Each map sums to at most 1.

    Attention rollout (Abnar & Zuidema 2020): the product over blocks of (A + 1) / 2, where A is the
    mean over heads and the 1 stands for the residual path. Map 0 is the class token's, map 1 the
    distillation token's.

    >>> alone = torch.eye(6).expand(1, 3, 2, 6, 6)  # each token attends to itself only
    >>> rollout(alone, prefix=2).abs().sum().item()
    0.0
    """
    count = attention.shape[-1]
    side = _side(count - prefix)
    mixed = (
        attention.mean(2) + torch.eye(count, dtype=attention.dtype, device=attention.device)
    ) / 2
    joint: Tensor = mixed[:, 0]
    for block in mixed.unbind(1)[1:]:
        joint = block @ joint
    return joint[:, :prefix, prefix:].reshape(-1, prefix, side, side)


def attention_distance(attention: Tensor, *, prefix: int, patch: int) -> Tensor:
    """How many pixels each head of each block attends from a patch, on average: (blocks, heads).

    Raghu et al. (2021), as DeiT-LT uses it: distances between the centres of patches, weighted by
    the attention among patches (what goes to the tokens in front counts as no distance), averaged
    over patches and images. Small is local, like a convolution.

    >>> alone = torch.eye(5).expand(1, 1, 1, 5, 5)
    >>> attention_distance(alone, prefix=1, patch=4).tolist()
    [[0.0]]
    """
    among = attention[..., prefix:, prefix:]
    side = _side(among.shape[-1])
    grid = torch.arange(side, dtype=attention.dtype, device=attention.device) * patch
    places = torch.cartesian_prod(grid, grid)
    return (among * torch.cdist(places, places)).sum(-1).mean((0, 3))


def _side(patches: int) -> int:
    side = math.isqrt(patches)
    if side * side != patches:
        raise LongtailError(
            f"expected a square of patches, got {patches}: give `prefix`, the number of tokens in"
            " front"
        )
    return side


def feature_rank(features: NDArray[Any], tail: NDArray[Any], *, tolerance: float = 0.01) -> int:
    """How many directions of all images' features reconstruct the tail's, with an error of at most
    `tolerance`.

    DeiT-LT, appendix G: the right singular vectors of the centred features (images, dim) of all
    classes; the error is the squared size of what k of them miss of the tail's features, relative
    to theirs. Both are centred by the mean of all.

    >>> features = np.random.default_rng(0).normal(size=(50, 3)) @ np.eye(3, 8)
    >>> feature_rank(features, features[:5])
    3
    """
    if (
        features.ndim != 2
        or tail.ndim != 2
        or features.shape[1] != tail.shape[1]
        or not len(features)
        or not len(tail)
    ):
        raise LongtailError(
            f"expected features (images, dim) of all and of the tail, got {features.shape} and"
            f" {tail.shape}"
        )
    if not 0 < tolerance < 1:
        raise LongtailError(f"expected a tolerance between 0 and 1, got {tolerance}")
    mean = features.astype(np.float64).mean(0)
    directions = np.linalg.svd(features - mean, full_matrices=False)[2]
    rest = tail - mean
    total = float((rest**2).sum())
    if total == 0:
        return 0
    caught = np.cumsum(((rest @ directions.T) ** 2).sum(0))
    enough = np.flatnonzero(total - caught <= tolerance * total)
    # Fewer images than dimensions may leave the tail outside of their span; then no k is enough,
    # and all are needed.
    return int(enough[0]) + 1 if len(enough) else features.shape[1]


def entropy(logits: NDArray[Any]) -> NDArray[np.float64]:
    """The entropy of each row's probabilities, in nats: 0 if certain, log C if uniform.

    >>> entropy(np.array([[0.0, 0.0], [50.0, 0.0]])).round(3).tolist()
    [0.693, 0.0]
    """
    shifted = logits.astype(np.float64) - logits.max(1, keepdims=True)
    log_probability = shifted - np.log(np.exp(shifted).sum(1, keepdims=True))
    return np.asarray(-(np.exp(log_probability) * log_probability).sum(1))
