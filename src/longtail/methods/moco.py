"""Momentum contrast: MoCo v2 (Chen et al. 2020) and MoCo v3 (Chen et al., ICCV 2021)."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Sequence
from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from longtail.core import Clock, Method, Outcome, Views
from longtail.errors import LongtailError
from longtail.nn import Neck, Network, Queue, Streamed
from longtail.nn.neck import checked
from longtail.processes import first_row, gather

Norm = Literal["none", "joint", "per_stream"]
QueueKeys = Literal["plain", "both"]
Pairings = Literal["all", "released"]

RELEASED: tuple[tuple[tuple[str, str], ...], ...] = (
    (("plain", "plain"), ("plain", "attended"), ("attended", "plain"), ("attended", "plain")),
    (("plain", "plain"), ("plain", "attended"), ("plain", "plain"), ("plain", "attended")),
)
"""(stream of the queries, stream of the keys) that BatchFormer's code for MoCo v3 contrasts, as it
was when the published encoder was trained: for queries of the first view, and of the second."""


def mlp(
    dim: int, hidden: int, out: int, *, layers: int = 2, norm: bool = True, last_norm: bool = False
) -> nn.Sequential:
    """A multilayer perceptron with ReLU; with `norm` its layers have batch-norm instead of a bias.

    Args:
        dim: Width of the input.
        hidden: Width of the layers between.
        out: Width of the output.
        layers: Number of linear layers.
        norm: Whether to have batch-norm.
        last_norm: Whether the last layer has one as well, without weights.

    >>> mlp(8, 16, 4)(torch.zeros(2, 8)).shape
    torch.Size([2, 4])
    """
    if layers < 1:
        raise LongtailError(f"expected at least one layer, got {layers}")
    parts: list[nn.Module] = []
    for layer in range(layers):
        before, after = dim if layer == 0 else hidden, out if layer == layers - 1 else hidden
        parts.append(nn.Linear(before, after, bias=not norm))
        if layer < layers - 1:
            parts += [nn.BatchNorm1d(after)] * norm + [nn.ReLU()]
        elif norm and last_norm:
            parts.append(nn.BatchNorm1d(after, affine=False))
    return nn.Sequential(*parts)


class Branch(nn.Module):
    """A network and its projector."""

    def __init__(self, network: Network, projector: nn.Module) -> None:
        super().__init__()
        self.network, self.projector = network, projector


class MomentumContrast(Method[Views]):
    """What versions 2 and 3 share: two branches, one neck, a loss for each pair of streams.

    The keys come from a momentum copy of network and projector, without gradient. With a neck of
    several streams, such as `Streams(BatchFormer(dim))`, each stream of the queries is contrasted
    with each stream of the keys; a pairing's weight is the product of its streams' weights. One
    neck is applied to queries and keys, and is trained by the queries. Predicts and deploys the
    network's features.

    Args:
        network: From images to features.
        projector: From features to projections.
        momentum: Of the copy.
        temperature: Of the logits.
        neck: Such as `Streams(BatchFormer(dim))`.
        loss_scale: Factor of the loss.
        norm: What the batch-norm of the projector averages over.
    """

    def __init__(
        self,
        network: Network,
        projector: nn.Module,
        *,
        momentum: float,
        temperature: float,
        neck: Neck | None,
        loss_scale: float,
        norm: Norm,
    ) -> None:
        super().__init__()
        if not 0 <= momentum < 1:
            raise LongtailError(f"expected a momentum in [0, 1), got {momentum}")
        if temperature <= 0 or loss_scale <= 0:
            raise LongtailError(
                "expected a positive temperature and loss scale, got"
                f" {temperature} and {loss_scale}"
            )
        self.query = Branch(network, projector)
        self.key = copy.deepcopy(self.query).requires_grad_(False)
        self.momentum, self.temperature, self.neck = momentum, temperature, checked(neck)
        self.loss_scale, self.norm = loss_scale, norm

    def project(self, layers: nn.Module, streamed: Streamed) -> Tensor:
        """Apply layers to all rows at once, or to each stream by itself ("per_stream").

        The two differ in what their batch-norm averages over.
        """
        if self.norm == "per_stream":
            parts = [layers(streamed.features[rows]) for rows, _ in streamed.streams.values()]
            return torch.cat(parts)
        return layers(streamed.features)  # type: ignore[no-any-return]

    def follow(self, momentum: float) -> None:
        """Move the momentum copy towards the trained branch."""
        torch._foreach_lerp_(
            list(self.key.parameters()), list(self.query.parameters()), 1 - momentum
        )

    def predict(self, image: Tensor) -> Tensor:
        """Features of the network, without projector and neck."""
        return self.query.network(image)  # type: ignore[no-any-return]

    def deploy(self) -> Network:
        """The network; it shares its weights with this method."""
        return self.query.network


def pairings(
    queries: Streamed,
    keys: Streamed,
    contrast: Callable[[slice, slice], Tensor],
    *,
    scale: float = 1.0,
    pairs: Sequence[tuple[str, str]] | None = None,
) -> dict[str, Tensor]:
    """The weighted loss of each pair of streams, by name; "contrast" without streams.

    Args:
        contrast: the mean loss of some rows of the queries against some rows of the keys.
        scale: factor of all.
        pairs: (stream of the queries, stream of the keys); all pairs unless given, or where the
            neck has a single stream. A pair that is given twice counts twice.
    """
    if len(queries.streams) == 1:
        ((rows, weight),), ((others, other_weight),) = (
            queries.streams.values(),
            keys.streams.values(),
        )
        return {"contrast": scale * weight * other_weight * contrast(rows, others)}
    terms: dict[str, Tensor] = {}
    for name, other in pairs or [(a, b) for a in queries.streams for b in keys.streams]:
        (rows, weight), (others, other_weight) = queries.streams[name], keys.streams[other]
        if weight * other_weight == 0:
            continue
        term = scale * weight * other_weight * contrast(rows, others)
        both = f"{name}_{other}"
        terms[both] = terms[both] + term if both in terms else term
    return terms


class MoCo(MomentumContrast):
    """MoCo v2: contrast the first view of an image with its second view and a queue of others.

    The queue is moved after the step only. So that no query can recognise its key by the
    batch-norm statistics that they share, both networks see the batch in `norm_splits` parts, and
    the keys' batch is shuffled first (He et al. 2020, section 3.3, and the authors' single-GPU
    version). A network without batch-norm sees the batch at once. The loss does not depend on the
    shuffled order, but for what batch-norm and dropout make of it.

    Args:
        network: from images to features.
        dim: width of the projections.
        size: rows of the queue.
        momentum: of the copy.
        temperature: of the logits.
        layers: of the projector; its hidden layers are as wide as the features.
        norm: batch-norm in the projector: "none", as MoCo v2; over the rows of both streams,
            "joint", as BatchFormer's released code has it; or over those of each, "per_stream".
        norm_splits: parts of the batch; 1 for no split.
        neck: such as `Streams(BatchFormer(dim))`.
        loss_scale: factor of the loss, as a control.
        queue_keys: whether the keys of the plain rows enter the queue, or those of both streams.

    >>> from longtail.nn import build
    >>> network = build({"name": "fast_cnn", "size": 8, "width": 8})
    >>> method = MoCo(network, dim=8, size=16, norm_splits=2)
    >>> batch: Views = {"view1": torch.rand(4, 3, 8, 8), "view2": torch.rand(4, 3, 8, 8),
    ...     "position": torch.arange(4)}
    >>> outcome = method(batch, Clock(0, 1, 0, 1))
    >>> list(outcome.terms), outcome.carry["keys"].shape
    (['contrast'], torch.Size([4, 8]))
    """

    def __init__(
        self,
        network: Network,
        *,
        dim: int = 128,
        size: int = 4096,
        momentum: float = 0.999,
        temperature: float = 0.2,
        layers: int = 2,
        norm: Norm = "none",
        norm_splits: int = 1,
        neck: Neck | None = None,
        loss_scale: float = 1.0,
        queue_keys: QueueKeys = "plain",
    ) -> None:
        super().__init__(
            network,
            mlp(network.dim, network.dim, dim, layers=layers, norm=norm != "none"),
            momentum=momentum,
            temperature=temperature,
            neck=neck,
            loss_scale=loss_scale,
            norm=norm,
        )
        if norm_splits < 1:
            raise LongtailError(f"expected at least one part of a batch, got {norm_splits}")
        has_norm = any(isinstance(module, _BatchNorm) for module in network.modules())
        self.norm_splits = norm_splits if has_norm else 1
        self.queue, self.queue_keys = Queue(dim, size), queue_keys

    def forward(self, batch: Views, clock: Clock) -> Outcome:
        """One term for each pair of streams; without a neck, "contrast"."""
        queries = self.neck(self._features(self.query.network, batch["view1"]))
        q = F.normalize(self.project(self.query.projector, queries), dim=1)
        with torch.no_grad():
            order = torch.randperm(len(batch["view2"]), device=batch["view2"].device)
            shuffled = self._features(self.key.network, batch["view2"][order])
            keys = self.neck(shuffled[order.argsort()])
            k = F.normalize(self.project(self.key.projector, keys), dim=1)
        stored = self.queue()

        def contrast(rows: slice, others: slice) -> Tensor:
            positive = (q[rows] * k[others]).sum(1, keepdim=True)
            logits = torch.cat([positive, q[rows] @ stored.T], 1) / self.temperature
            return F.cross_entropy(logits, logits.new_zeros(len(logits), dtype=torch.long))

        count = len(batch["view1"])  # plain rows come first
        carry = {"keys": k[:count]}
        if self.queue_keys == "both" and len(k) > count:
            carry["more_keys"] = k[count:]
        return Outcome(pairings(queries, keys, contrast, scale=self.loss_scale), carry=carry)

    def _features(self, network: Network, image: Tensor) -> Tensor:
        if self.norm_splits == 1:
            return network(image)  # type: ignore[no-any-return]
        parts = image.tensor_split(self.norm_splits)
        if len(parts[-1]) < 2:
            raise LongtailError(
                f"a batch of {len(image)} images has no {self.norm_splits} parts of two images or"
                " more: pass --norm-splits 1, or a larger batch"
            )
        return torch.cat([network(part) for part in parts])

    @torch.no_grad()
    def after_step(self, outcome: Outcome, clock: Clock) -> None:
        """Update the momentum copy, and push the keys into the queue."""
        self.follow(self.momentum)
        for keys in outcome.carry.values():
            self.queue.push(keys)


class MoCo3(MomentumContrast):
    """MoCo v3: contrast both views of an image with the other views of all images of the batch.

    There is no queue: the keys of all processes are contrasted. A predictor follows the projector
    of the queries, and the momentum rises to 1. For a convolutional network the projector has two
    layers, for a transformer three; the random patch projection of a transformer is not trained.

    Args:
        network: from images to features.
        dim: width of the projections.
        hidden: width of the hidden layers of projector and predictor.
        momentum: of the copy, at the start of training.
        temperature: of the logits.
        norm: batch-norm in projector and predictor: over the rows of both streams, "joint", as
            BatchFormer's released code has it; over those of each, "per_stream"; or "none".
        neck: such as `Streams(BatchFormer(dim))`.
        loss_scale: factor of the loss, as a control.
        pairs: all pairs of streams, or those of BatchFormer's code when its encoder was trained.

    >>> from longtail.nn import build
    >>> network = build({"name": "fast_cnn", "size": 8, "width": 8})
    >>> method = MoCo3(network, dim=8, hidden=16)
    >>> batch: Views = {"view1": torch.rand(4, 3, 8, 8), "view2": torch.rand(4, 3, 8, 8),
    ...     "position": torch.arange(4)}
    >>> list(method(batch, Clock(0, 1, 0, 1)).terms)
    ['contrast']
    """

    def __init__(
        self,
        network: Network,
        *,
        dim: int = 256,
        hidden: int = 4096,
        momentum: float = 0.99,
        temperature: float = 1.0,
        norm: Norm = "joint",
        neck: Neck | None = None,
        loss_scale: float = 1.0,
        pairs: Pairings = "all",
    ) -> None:
        patches = [
            parameter
            for name, parameter in network.named_parameters()
            if ".patch_embed.proj." in f".{name}"
        ]
        for parameter in patches:
            parameter.requires_grad_(False)
        vit, has_norm = bool(patches), norm != "none"
        super().__init__(
            network,
            mlp(network.dim, hidden, dim, layers=2 + vit, norm=has_norm, last_norm=True),
            momentum=momentum,
            temperature=temperature,
            neck=neck,
            loss_scale=loss_scale,
            norm=norm,
        )
        self.predictor = mlp(dim, hidden, dim, norm=has_norm, last_norm=vit)
        self.pairs = pairs

    def forward(self, batch: Views, clock: Clock) -> Outcome:
        """One term for each pair of streams, over both directions; without a neck, "contrast"."""
        terms: dict[str, Tensor] = {}
        for view, other, released in zip(
            (batch["view1"], batch["view2"]),
            (batch["view2"], batch["view1"]),
            RELEASED,
            strict=True,
        ):
            queries = self.neck(self.query.network(view))
            projected = queries._replace(features=self.project(self.query.projector, queries))
            q = F.normalize(self.project(self.predictor, projected), dim=1)
            with torch.no_grad():
                keys = self.neck(self.key.network(other))
                k = F.normalize(self.project(self.key.projector, keys), dim=1)

            def contrast(rows: slice, others: slice, q: Tensor = q, k: Tensor = k) -> Tensor:
                start = first_row(k[others])
                logits = q[rows] @ gather(k[others]).T / self.temperature
                target = start + torch.arange(len(logits), device=logits.device)
                return 2 * self.temperature * F.cross_entropy(logits, target)

            pairs = released if self.pairs == "released" else None
            for name, term in pairings(
                queries, keys, contrast, scale=self.loss_scale, pairs=pairs
            ).items():
                terms[name] = terms[name] + term if name in terms else term
        return Outcome(terms)

    @torch.no_grad()
    def after_step(self, outcome: Outcome, clock: Clock) -> None:
        """Update the momentum copy, with a momentum that rises to 1 as a cosine."""
        self.follow(1 - (1 - self.momentum) * (1 + math.cos(math.pi * clock.progress)) / 2)
