"""Which images an epoch shows, and in which order: functions of (seed, epoch) that keep no state.

Every order is as long as the split, so an epoch costs the same whatever the sampler. Below, p_c is
the share of class c among the draws, n_c the number of its images. In a `DataLoader` of your own,
made for one epoch:

>>> import torch
>>> from torch.utils.data import DataLoader, TensorDataset
>>> target = torch.tensor([0] * 90 + [1] * 10)
>>> order = ClassBalanced().order(target, epoch=0, seed=0)
>>> loader = DataLoader(TensorDataset(target), batch_size=25, sampler=order.tolist())
>>> torch.cat([batch for (batch,) in loader]).bincount().tolist()
[50, 50]
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from torch import Tensor

from longtail.errors import LongtailError

Array = np.ndarray[Any, np.dtype[Any]]
Labels = Tensor | Array | Sequence[int]


class Sampler(Protocol):
    """Gives the order of an epoch."""

    def order(self, targets: Tensor, *, epoch: int, seed: int) -> Array:
        """Rows of the split, as many as the split has; position in this order is the row's `draw`."""
        ...


def _generator(seed: int, epoch: int) -> np.random.Generator:
    return np.random.default_rng((seed, epoch, 0))  # 0: orders; the loader's view parameters use 1


def _cycled(members: Array, rows: int, rng: np.random.Generator) -> Array:
    """Shuffled passes over the members until there are enough rows: each is used as often as any
    other, give or take one.
    """
    return np.concatenate(
        [rng.permutation(members) for _ in range(-(-rows // len(members)))] or [members[:0]]
    )[:rows]


def _by_class(
    targets: Labels, power: float, rng: np.random.Generator, balance: float = 0.0
) -> Array:
    """Rows with class shares (1 - balance) n_c^power / sum + balance / C, over the classes that
    have images.
    """
    target = np.asarray(targets)
    if target.ndim != 1 or not len(target):
        raise LongtailError(
            f"expected a class for each of some rows, (N,), got shape {target.shape}: pass class"
            " indices, not distributions"
        )
    classes, counts = np.unique(target, return_counts=True)
    members = np.split(np.argsort(target, kind="stable"), np.cumsum(counts)[:-1])
    share = counts**power / (counts**power).sum()
    share = (1 - balance) * share + balance / len(classes)
    # One random offset for all classes: every class gets its exact share rounded down or up, and
    # right on average.
    ends = np.floor(np.cumsum(share) * len(target) + rng.random()).astype(int)
    ends[-1] = len(target)
    rows = np.diff(ends, prepend=0)
    drawn = [_cycled(own, number, rng) for own, number in zip(members, rows, strict=True)]
    return rng.permutation(np.concatenate(drawn))


@dataclass(frozen=True)
class Instance:
    """Every image once: p_c = n_c / N."""

    def order(self, targets: Labels, *, epoch: int, seed: int) -> Array:
        """A permutation of the rows."""
        return _generator(seed, epoch).permutation(len(targets))


@dataclass(frozen=True)
class ClassBalanced:
    """Every class equally often: p_c = 1 / C (Kang et al., 2020, eq. 1 with q = 0). Images of a
    class take turns.
    """

    def order(self, targets: Labels, *, epoch: int, seed: int) -> Array:
        """Rows with equal class shares, shuffled."""
        return _by_class(targets, 0.0, _generator(seed, epoch))


@dataclass(frozen=True)
class SquareRoot:
    """Rare classes more often, but not as often as frequent ones: p_c = sqrt(n_c) / sum (Kang et
    al., 2020, eq. 1 with q = 1/2).
    """

    def order(self, targets: Labels, *, epoch: int, seed: int) -> Array:
        """Rows with square-root class shares, shuffled."""
        return _by_class(targets, 0.5, _generator(seed, epoch))


@dataclass(frozen=True)
class ProgressivelyBalanced:
    """From every image to every class equally often: p_c = (1 - t/T) n_c / N + t/T / C in epoch t
    of T (Kang et al., 2020, eq. 2).
    """

    epochs: int

    def __post_init__(self) -> None:
        if self.epochs < 1:
            raise LongtailError(
                f"epochs must be the number of epochs of the stage, at least 1, got {self.epochs}"
            )

    def order(self, targets: Labels, *, epoch: int, seed: int) -> Array:
        """Rows with the epoch's class shares, shuffled."""
        return _by_class(
            targets, 1.0, _generator(seed, epoch), balance=min(epoch / self.epochs, 1.0)
        )


@dataclass(frozen=True)
class RepeatedAugmentation:
    """Each chosen image `repeats` times in a row with different views (Hoffer et al., 2020; Berman
    et
    al., 2019).

    An epoch shows N / repeats images, and any `repeats` epochs from a multiple of it show all of
    them, so no rare class vanishes. Copies are neighbours in the order, so they meet in one global
    batch (always, if `repeats` divides it), as with DeiT's sampler; that one also sends them to
    different processes, while here most share one."""

    repeats: int = 3

    def __post_init__(self) -> None:
        if self.repeats < 1:
            raise LongtailError(f"repeats must be at least 1, got {self.repeats}")

    def order(self, targets: Labels, *, epoch: int, seed: int) -> Array:
        """Rows of the epoch's images, each `repeats` times in a row; the last one less often if N
        is no multiple.
        """
        rounds, part = divmod(epoch, self.repeats)
        shuffled = _generator(seed, rounds).permutation(len(targets))
        images = -(-len(targets) // self.repeats)
        chosen = shuffled[(part * images + np.arange(images)) % len(targets)]
        return np.repeat(chosen, self.repeats)[: len(targets)]


@dataclass(frozen=True)
class PerDomain:
    """An equal share of each domain in every batch: domains take turns row by row, and so do the
    images of a domain.

    `domains` names the domain of each row of the split.
    """

    domains: Sequence[int]

    def order(self, targets: Labels, *, epoch: int, seed: int) -> Array:
        """Rows whose domains go round: any D rows in a row hold each of the D domains once."""
        domains = np.asarray(self.domains)
        if len(domains) != len(targets):
            raise LongtailError(
                f"expected a domain for each of the {len(targets)} rows, got {len(domains)}: pass"
                " one per row of this split"
            )
        rng, rows = _generator(seed, epoch), len(targets)
        names = np.unique(domains)
        turns = [
            _cycled(np.flatnonzero(domains == name), -(-rows // len(names)), rng) for name in names
        ]
        return np.stack(turns, axis=1).reshape(-1)[:rows]
