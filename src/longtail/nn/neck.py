"""What stands between a network and its head while training, and how its rows become losses."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import NamedTuple

from torch import Tensor, nn

from longtail.errors import LongtailError


class Stream(NamedTuple):
    """Some rows of a batch, and how much their mean loss counts."""

    rows: slice
    weight: float


class Streamed(NamedTuple):
    """Features after a neck, the named streams they are made of, and what is aligned with them, row
    by
    row.

    The loss is the sum over streams of weight * mean loss of its rows; a stream of weight 0 is
    worth plotting only."""

    features: Tensor
    streams: Mapping[str, Stream]
    aligned: tuple[Tensor, ...]

    @property
    def rows(self) -> Tensor:
        """The same as one weight for each row: `loss(head(features), target, rows=rows)` is the sum
        over streams.

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
        """Each stream's mean loss as a term, times its weight, or as a note where that is 0."""
        terms = {
            name: stream.weight * losses[name]
            for name, stream in self.streams.items()
            if stream.weight != 0
        }
        return terms, {name: losses[name].detach() for name in self.streams if name not in terms}


class Neck(nn.Module, ABC):
    """A training-time change of features that may add rows. In eval mode it is the identity."""

    @abstractmethod
    def forward(self, features: Tensor, *aligned: Tensor) -> Streamed:
        """Features (N, dim), and tensors with one row for each of them (targets, domains)."""


class PassThrough(Neck):
    """No neck: the rows as they came. A `weight` other than 1 scales their loss, as a control for
    necks that do.

    >>> import torch
    >>> features, streams, (target,) = PassThrough()(torch.zeros(2, 8), torch.tensor([1, 0]))
    >>> list(streams)
    ['class']
    """

    def __init__(self, weight: float = 1.0) -> None:
        super().__init__()
        if weight <= 0:
            raise LongtailError(f"expected a positive weight for the loss, got {weight}")
        self.weight = weight

    def forward(self, features: Tensor, *aligned: Tensor) -> Streamed:
        """One stream, called "class"."""
        return Streamed(features, {"class": Stream(slice(None), self.weight)}, aligned)


def checked(neck: Neck | None) -> Neck:
    """A neck, or none, as a neck; a bare block such as BatchFormer, which makes no streams, is
    refused.
    """
    if neck is not None and not isinstance(neck, Neck):
        raise LongtailError(
            f"expected a neck such as Streams(BatchFormer(dim)), got {type(neck).__name__}: wrap it"
            " in Streams"
        )
    return neck or PassThrough()
