"""Heads: modules from features to logits."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from longtail.errors import LongtailError
from longtail.naming import unknown


class Linear(nn.Linear):
    """One logit for each class, linear in the features.

    `fast_cnn` uses `bias=False, scale=0.25`.

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

    LDAM (Cao et al. 2019) needs them scaled once: by 30 in `LDAM`, with 1 here; or by 30 here, with
    `LDAM(scale=1, max_margin=0.5 * 30)`. The recipes do the latter, because the deployed logits
    then have a softmax that can be confident.

    >>> bool(Cosine(4, 3)(torch.randn(2, 4)).abs().max() <= 1)
    True
    """

    def __init__(self, dim: int, classes: int, *, scale: float = 1.0) -> None:
        super().__init__()
        # Of norm 1, as in the code of LDAM and RIDE: the larger the norm, the slower they rotate.
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
        if torch.is_autocast_enabled(
            features.device.type
        ):  # `scale` would magnify rounding errors of bf16
            with torch.autocast(features.device.type, enabled=False):
                return self._cosines(features.float())
        return self._cosines(features)

    def _cosines(self, features: Tensor) -> Tensor:
        return self.scale * F.linear(F.normalize(features, dim=1), F.normalize(self.weight, dim=1))


class CosineExperts(nn.Module):
    """One cosine classifier for each expert; predicts the mean of their logits (RIDE, Wang et al.).

    Takes the concatenated features of the experts, as `resnet32_experts` and `fast_cnn_experts`
    return them.

    >>> head = CosineExperts(12, 5, experts=3)
    >>> head(torch.randn(2, 12)).shape, head.apart(torch.randn(2, 12)).shape
    (torch.Size([2, 5]), torch.Size([3, 2, 5]))
    """

    def __init__(self, dim: int, classes: int, *, experts: int = 3, scale: float = 30.0) -> None:
        super().__init__()
        if experts < 2:
            raise LongtailError(f"expected at least two experts, got {experts}: use Cosine for one")
        if dim % experts:
            raise LongtailError(
                f"dim must be divisible by the number of experts, got dim {dim} and {experts}"
                " experts:"
                " pass the width of the concatenated features"
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
        chunks = features.chunk(len(self.parts), 1)
        return torch.stack([part(rows) for part, rows in zip(self.parts, chunks, strict=True)])

    def named(self, features: Tensor) -> dict[str, Tensor]:
        """The logits of each expert by name."""
        return {
            f"expert{number}": logits for number, logits in enumerate(self.apart(features), start=1)
        }

    def forward(self, features: Tensor) -> Tensor:
        """Logits (N, classes)."""
        return self.apart(features).mean(0)


def _mean_logits(cls: Tensor, dist: Tensor) -> Tensor:
    return torch.stack([cls, dist]).mean(0)


def _mean_probabilities(cls: Tensor, dist: Tensor) -> Tensor:
    """Logits whose softmax is the mean of both softmaxes."""
    dtype = torch.promote_types(cls.dtype, torch.float32)
    both = torch.stack([cls, dist]).to(dtype).log_softmax(-1)
    return both.logsumexp(0) - math.log(2)


def _class_token(cls: Tensor, dist: Tensor) -> Tensor:
    return cls


def _distillation_token(cls: Tensor, dist: Tensor) -> Tensor:
    return dist


ANSWERS: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "logits": _mean_logits,
    "probabilities": _mean_probabilities,
    "cls": _class_token,
    "dist": _distillation_token,
}
"""How the logits of the class token and of the distillation token become one prediction."""


class TokenHeads(nn.Module):
    """Linear classifiers for the class token and the distillation token (DeiT).

    Takes the concatenated features of both tokens, as a transformer with `pool="tokens"` returns
    them. Predicts by `answer` the mean of both logits ("logits"), log-probabilities that are the
    mean of both softmaxes ("probabilities"), or the logits of one token ("cls", "dist").

    >>> head = TokenHeads(8, 5)
    >>> list(head.named(torch.randn(2, 8))), head(torch.randn(2, 8)).shape
    (['cls', 'dist'], torch.Size([2, 5]))
    """

    def __init__(
        self, dim: int, classes: int, *, scale: float = 1.0, answer: str = "logits"
    ) -> None:
        super().__init__()
        if answer not in ANSWERS:
            raise unknown("answer", answer, ANSWERS)
        if dim % 2:
            raise LongtailError(
                f"dim must be even, got {dim}: pass the width of the concatenated features of both"
                " tokens"
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
        if answer != "logits":  # files of earlier versions have no answer
            self.spec["answer"] = answer
        self.combine = ANSWERS[answer]

    def named(self, features: Tensor) -> dict[str, Tensor]:
        """The logits of each token by name."""
        first, second = features.chunk(2, 1)
        return {"cls": self.cls(first), "dist": self.dist(second)}

    def forward(self, features: Tensor) -> Tensor:
        """Logits (N, classes)."""
        return self.combine(*self.named(features).values())


class VectorHead(nn.Module, ABC):
    """A head that computes a class's logit from a vector that describes the class.

    So classes can be added without training (`add_classes`). The vectors (classes, width) are in
    its state; a new head has zeros, which training replaces by those of the data.
    """

    vectors: Tensor

    def __init__(self, spec: Mapping[str, Any]) -> None:
        super().__init__()
        self.spec = dict(spec)
        self.register_buffer("vectors", torch.zeros(spec["classes"], spec["width"]))

    @abstractmethod
    def forward(self, features: Tensor) -> Tensor:
        """Logits (N, classes)."""

    def with_vectors(self, vectors: Tensor) -> VectorHead:
        """A head with the same weights for other classes, which these vectors describe."""
        if vectors.ndim != 2 or vectors.shape[1] != self.spec["width"]:
            raise LongtailError(
                f"expected class vectors (classes, {self.spec['width']}), got"
                f" {tuple(vectors.shape)}"
            )
        head = build_head({**self.spec, "classes": len(vectors)})
        assert isinstance(head, VectorHead)
        head.load_state_dict({**self.state_dict(), "vectors": vectors})
        return head.to(self.vectors.device).train(self.training)

    def add_classes(self, vectors: Tensor) -> VectorHead:
        """A head with the same weights for its classes and those of the vectors (N, width)."""
        return self.with_vectors(torch.cat([self.vectors, vectors.to(self.vectors)]))


class ClassVectors(VectorHead):
    """The product of the features with a linear projection of each class's vector.

    It is the bilinear compatibility x' V a of ESZSL, DeViSE and others. `scale` multiplies it.

    Args:
        dim: width of the features.
        classes: their number.
        width: of the class vectors.
        unit: whether features and class vectors are normalised before, as in ESZSL.
        cosine: whether features and projections are normalised, as in CompCos.
        bias: whether the projection has a bias.
        scale: a factor of the logits.

    >>> head = ClassVectors(4, 3, width=5)
    >>> more = head.add_classes(torch.ones(2, 5))
    >>> features = torch.randn(2, 4)
    >>> torch.equal(more(features)[:, :3], head(features)), more(features).shape
    (True, torch.Size([2, 5]))
    """

    def __init__(
        self,
        dim: int,
        classes: int,
        *,
        width: int,
        unit: bool = False,
        cosine: bool = False,
        bias: bool = False,
        scale: float = 1.0,
    ) -> None:
        spec = {"dim": dim, "classes": classes, "width": width, "unit": unit, "cosine": cosine}
        super().__init__({"name": "class_vectors", **spec, "bias": bias, "scale": scale})
        self.project = nn.Linear(width, dim, bias=bias)
        self.unit, self.cosine, self.scale = unit, cosine, scale

    def forward(self, features: Tensor) -> Tensor:
        """Logits (N, classes)."""
        with torch.autocast(features.device.type, enabled=False):  # rounding is scaled too
            vectors, features = self.vectors, features.to(self.vectors.dtype)
            if self.unit:
                vectors, features = F.normalize(vectors, dim=1), F.normalize(features, dim=1)
            rows = self.project(vectors)
            if self.cosine:
                rows, features = F.normalize(rows, dim=1), F.normalize(features, dim=1)
            return self.scale * F.linear(features, rows)


class Comparator(VectorHead):
    """A network of two layers that compares features with each class's vector (CE-GZSL).

    The logit of class c is F([h, a_c]) = w2 . LeakyReLU(W1 [h, a_c] + b1), times `scale`. W1 is
    split into a part for h and one for a_c: all classes together cost little more than one.

    Args:
        dim: Width of the features.
        classes: Their number.
        width: Of the class vectors.
        hidden: Width of the hidden layer.
        scale: A factor of the logits.

    >>> Comparator(4, 3, width=5, hidden=8)(torch.randn(2, 4)).shape
    torch.Size([2, 3])
    """

    def __init__(
        self, dim: int, classes: int, *, width: int, hidden: int, scale: float = 1.0
    ) -> None:
        spec = {"dim": dim, "classes": classes, "width": width, "hidden": hidden, "scale": scale}
        super().__init__({"name": "comparator", **spec})
        self.features = nn.Linear(dim, hidden)
        self.project = nn.Linear(width, hidden, bias=False)
        self.output = nn.Linear(hidden, 1, bias=False)  # a softmax ignores a bias
        self.scale = scale

    def forward(self, features: Tensor, vectors: Tensor | None = None) -> Tensor:
        """Logits (N, classes); of the classes of other `vectors` (M, width), if given."""
        vectors = self.vectors if vectors is None else vectors
        both = self.features(features)[:, None] + self.project(vectors)[None]
        return self.scale * self.output(F.leaky_relu(both, 0.2)).squeeze(2)  # type: ignore[no-any-return]


Head = Linear | Cosine | CosineExperts | TokenHeads | ClassVectors | Comparator

HEADS: dict[str, Callable[..., Head]] = {
    "linear": Linear,
    "cosine": Cosine,
    "cosine_experts": CosineExperts,
    "token_heads": TokenHeads,
    "class_vectors": ClassVectors,
    "comparator": Comparator,
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
