"""From features to logits."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from longtail.errors import LongtailError
from longtail.naming import unknown


class Linear(nn.Linear):
    """One logit for each class, linear in the features.

    `fast_cnn` wants `bias=False, scale=0.25`.

    >>> Linear(4, 3, scale=0.25)(torch.zeros(2, 4)).shape
    torch.Size([2, 3])
    """

    def __init__(self, dim: int, classes: int, *, bias: bool = True, scale: float = 1.0) -> None:
        super().__init__(dim, classes, bias=bias)
        self.scale = scale
        self.spec: dict[str, Any] = {
            "name": "linear",
            "dim": dim,
            "classes": classes,
            "bias": bias,
            "scale": scale,
        }

    def forward(self, features: Tensor) -> Tensor:
        """Logits (N, classes)."""
        return self.scale * super().forward(features)


class Cosine(nn.Module):
    """The cosine between the features and a direction for each class, times `scale`.

    LDAM (Cao et al. 2019) wants them scaled once: by 30 in `LDAM`, with 1 here; or by 30 here, with
    `LDAM(scale=1, max_margin=0.5 * 30)`, which deploys logits whose softmax can be sure, and is
    what the recipes do.

    >>> bool(Cosine(4, 3)(torch.randn(2, 4)).abs().max() <= 1)
    True
    """

    def __init__(self, dim: int, classes: int, *, scale: float = 1.0) -> None:
        super().__init__()
        # Of length 1, as in LDAM's and RIDE's code: the longer they are, the slower they turn.
        self.weight = nn.Parameter(F.normalize(torch.empty(classes, dim).uniform_(-1, 1), dim=1))
        self.scale = scale
        self.spec: dict[str, Any] = {
            "name": "cosine",
            "dim": dim,
            "classes": classes,
            "scale": scale,
        }

    def forward(self, features: Tensor) -> Tensor:
        """Logits (N, classes)."""
        if torch.is_autocast_enabled(features.device.type):  # `scale` magnifies what bf16 rounds
            with torch.autocast(features.device.type, enabled=False):
                return self._cosines(features.float())
        return self._cosines(features)

    def _cosines(self, features: Tensor) -> Tensor:
        return self.scale * F.linear(F.normalize(features, dim=1), F.normalize(self.weight, dim=1))


class CosineExperts(nn.Module):
    """One cosine classifier for each expert, and the mean of their logits as the answer (RIDE, Wang
    et
    al. 2021).

    Takes the experts' features side by side, as `resnet32_experts` and `fast_cnn_experts` give
    them.

    >>> head = CosineExperts(12, 5, experts=3)
    >>> head(torch.randn(2, 12)).shape, head.apart(torch.randn(2, 12)).shape
    (torch.Size([2, 5]), torch.Size([3, 2, 5]))
    """

    def __init__(self, dim: int, classes: int, *, experts: int = 3, scale: float = 30.0) -> None:
        super().__init__()
        if experts < 2:
            raise LongtailError(
                f"expected at least two experts, got {experts}: one alone is a Cosine head"
            )
        if dim % experts:
            raise LongtailError(
                f"expected features of {experts} experts side by side, got dim {dim}, which"
                f" {experts} does not divide"
            )
        self.parts = nn.ModuleList(
            Cosine(dim // experts, classes, scale=scale) for _ in range(experts)
        )
        self.spec: dict[str, Any] = {
            "name": "cosine_experts",
            "dim": dim,
            "classes": classes,
            "experts": experts,
            "scale": scale,
        }

    def apart(self, features: Tensor) -> Tensor:
        """The logits of each expert (experts, N, classes)."""
        own = features.chunk(len(self.parts), 1)
        return torch.stack([part(rows) for part, rows in zip(self.parts, own, strict=True)])

    def named(self, features: Tensor) -> dict[str, Tensor]:
        """The logits of each expert by its name."""
        return {
            f"expert{number}": logits for number, logits in enumerate(self.apart(features), start=1)
        }

    def forward(self, features: Tensor) -> Tensor:
        """Logits (N, classes)."""
        return self.apart(features).mean(0)


class TokenHeads(nn.Module):
    """A linear classifier for the class token, one for the distillation token, and the mean of
    their
    logits as the answer (DeiT).

    Takes the features of both side by side, as a transformer with `pool="tokens"` gives them.

    >>> head = TokenHeads(8, 5)
    >>> list(head.named(torch.randn(2, 8))), head(torch.randn(2, 8)).shape
    (['cls', 'dist'], torch.Size([2, 5]))
    """

    def __init__(self, dim: int, classes: int, *, scale: float = 1.0) -> None:
        super().__init__()
        if dim % 2:
            raise LongtailError(
                f"expected the features of two tokens side by side, got dim {dim}, which 2 does not"
                " divide"
            )
        self.cls, self.dist = (
            Linear(dim // 2, classes, scale=scale),
            Linear(dim // 2, classes, scale=scale),
        )
        self.spec: dict[str, Any] = {
            "name": "token_heads",
            "dim": dim,
            "classes": classes,
            "scale": scale,
        }

    def named(self, features: Tensor) -> dict[str, Tensor]:
        """The logits for each token by its name."""
        first, second = features.chunk(2, 1)
        return {"cls": self.cls(first), "dist": self.dist(second)}

    def forward(self, features: Tensor) -> Tensor:
        """Logits (N, classes)."""
        return torch.stack([*self.named(features).values()]).mean(0)


Head = Linear | Cosine | CosineExperts | TokenHeads

HEADS: dict[str, Callable[..., Head]] = {
    "linear": Linear,
    "cosine": Cosine,
    "cosine_experts": CosineExperts,
    "token_heads": TokenHeads,
}


def build_head(spec: Mapping[str, Any]) -> Head:
    """Build a head from its spec.

    >>> build_head(Cosine(4, 3, scale=16.0).spec).spec
    {'name': 'cosine', 'dim': 4, 'classes': 3, 'scale': 16.0}
    """
    keywords = dict(spec)
    name = keywords.pop("name", None)
    if name not in HEADS:
        raise unknown("head", str(name), HEADS)
    return HEADS[name](**keywords)
