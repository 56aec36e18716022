"""Necks: modules between a network and its head during training, with one loss per stream."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import NamedTuple

from torch import Tensor, nn

from longtail.errors import LongtailError


class Stream(NamedTuple):
    """Some rows of a batch, and the weight of their mean loss."""

    rows: slice
    weight: float


class Streamed(NamedTuple):
    """The output of a neck: features, the named streams in them, and the tensors aligned with them.

    The loss is the sum over streams of weight * mean loss of its rows; a stream of weight 0 is only
    logged.
    """

    features: Tensor
    streams: Mapping[str, Stream]
    aligned: tuple[Tensor, ...]

    @property
    def rows(self) -> Tensor:
        """The streams as row weights: `loss(head(features), target, rows=rows)` is their sum.

        >>> import torch
        >>> streams = {"plain": Stream(slice(0, 2), 0.5), "attended": Stream(slice(2, 4), 1.0)}
        >>> Streamed(torch.zeros(4, 8), streams, ()).rows.tolist()
        [1.0, 1.0, 2.0, 2.0]
        """
        rows = self.features.new_zeros(len(self.features))
        for part, weight in self.streams.values():
            rows[part] = weight * len(rows) / len(rows[part])
        return rows

    def weighted(self, losses: Mapping[str, Tensor]) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
        """Each stream's mean loss times its weight as a term; as a note if the weight is 0."""
        terms = {
            name: stream.weight * losses[name]
            for name, stream in self.streams.items()
            if stream.weight != 0
        }
        return terms, {name: losses[name].detach() for name in self.streams if name not in terms}


class Neck(nn.Module, ABC):
    """Changes features during training and may add rows. In eval mode it is the identity."""

    @abstractmethod
    def forward(self, features: Tensor, *aligned: Tensor) -> Streamed:
        """Apply it to features (N, dim) and tensors of N rows (targets, domains)."""


class PassThrough(Neck):
    """No neck: returns its input. A `weight` other than 1 scales the loss, as a control.

    >>> import torch
    >>> features, streams, (target,) = PassThrough()(torch.zeros(2, 8), torch.tensor([1, 0]))
    >>> list(streams)
    ['class']
    """

    def __init__(self, weight: float = 1.0) -> None:
        super().__init__()
        if weight <= 0:
            raise LongtailError(f"the weight of the loss must be positive, got {weight}")
        self.weight = weight

    def forward(self, features: Tensor, *aligned: Tensor) -> Streamed:
        """One stream, called "class"."""
        return Streamed(features, {"class": Stream(slice(None), self.weight)}, aligned)


def checked(neck: Neck | None) -> Neck:
    """Return a neck, `PassThrough` for None; raise for a module that is no neck, as BatchFormer."""
    if neck is not None and not isinstance(neck, Neck):
        raise LongtailError(
            f"expected a neck such as Streams(BatchFormer(dim)), got {type(neck).__name__}: wrap it"
            " in Streams"
        )
    return neck or PassThrough()
