"""Samplers: the rows of an epoch and their order, as stateless functions of (seed, epoch).

Every order is as long as the split, so an epoch costs the same with any sampler. Below, p_c is the
share of class c in an epoch and n_c its number of images. In a custom `DataLoader`, created for
each epoch:

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
    """Returns the order of an epoch."""

    def order(self, targets: Tensor, *, epoch: int, seed: int) -> Array:
        """Return row indices (N,), as many as the split has rows."""


def _generator(seed: int, epoch: int) -> np.random.Generator:
    return np.random.default_rng((seed, epoch, 0))  # 0: orders; 1: view parameters, in the loader


def _cycled(members: Array, rows: int, rng: np.random.Generator) -> Array:
    """Repeat shuffled passes over the members until there are `rows` of them.

    The numbers of uses of two members differ by at most one.
    """
    return np.concatenate(
        [rng.permutation(members) for _ in range(-(-rows // len(members)))] or [members[:0]]
    )[:rows]


def _by_class(
    targets: Labels, power: float, rng: np.random.Generator, balance: float = 0.0
) -> Array:
    """Sample rows with class shares (1 - balance) n_c^power / sum + balance / C.

    Only classes with images count.
    """
    target = np.asarray(targets)
    if target.ndim != 1 or not len(target):
        raise LongtailError(
            f"expected class indices (N,) with N > 0, got shape {target.shape}: pass class indices,"
            " not distributions"
        )
    classes, counts = np.unique(target, return_counts=True)
    members = np.split(np.argsort(target, kind="stable"), np.cumsum(counts)[:-1])
    share = counts**power / (counts**power).sum()
    share = (1 - balance) * share + balance / len(classes)
    # With one random offset for all classes, every class gets its share rounded up or down, and
    # the exact share in expectation.
    ends = np.floor(np.cumsum(share) * len(target) + rng.random()).astype(int)
    ends[-1] = len(target)
    rows = np.diff(ends, prepend=0)
    sampled = [_cycled(group, number, rng) for group, number in zip(members, rows, strict=True)]
    return rng.permutation(np.concatenate(sampled))


@dataclass(frozen=True)
class Instance:
    """Every image once: p_c = n_c / N."""

    def order(self, targets: Labels, *, epoch: int, seed: int) -> Array:
        """Return a permutation of the rows."""
        return _generator(seed, epoch).permutation(len(targets))


@dataclass(frozen=True)
class ClassBalanced:
    """Every class equally often: p_c = 1 / C (Kang et al., 2020, eq. 1 with q = 0).

    The images of a class are used equally often, give or take one.
    """

    def order(self, targets: Labels, *, epoch: int, seed: int) -> Array:
        """Return rows with equal class shares, shuffled."""
        return _by_class(targets, 0.0, _generator(seed, epoch))


@dataclass(frozen=True)
class SquareRoot:
    """Square-root sampling: p_c = sqrt(n_c) / sum (Kang et al., 2020, eq. 1 with q = 1/2)."""

    def order(self, targets: Labels, *, epoch: int, seed: int) -> Array:
        """Return rows with square-root class shares, shuffled."""
        return _by_class(targets, 0.5, _generator(seed, epoch))


@dataclass(frozen=True)
class ProgressivelyBalanced:
    """From instance to class-balanced sampling (Kang et al., 2020, eq. 2).

    In epoch t of T, p_c = (1 - t/T) n_c / N + t/T / C.
    """

    epochs: int

    def __post_init__(self) -> None:
        if self.epochs < 1:
            raise LongtailError(
                f"epochs must be the number of epochs of the stage, at least 1, got {self.epochs}"
            )

    def order(self, targets: Labels, *, epoch: int, seed: int) -> Array:
        """Return rows with the epoch's class shares, shuffled."""
        return _by_class(
            targets, 1.0, _generator(seed, epoch), balance=min(epoch / self.epochs, 1.0)
        )


@dataclass(frozen=True)
class RepeatedAugmentation:
    """Repeated augmentation: an image `repeats` times with different views (Hoffer et al., 2020).

    An epoch uses N / repeats images. Epochs k * repeats to (k + 1) * repeats - 1 together use all
    of them, so no rare class is lost. Copies are adjacent in the order, so they are in one global
    batch (always, if `repeats` divides its size), as with DeiT's sampler. DeiT's sends them to
    different processes; here most are in the same one. See also Berman et al., 2019.
    """

    repeats: int = 3

    def __post_init__(self) -> None:
        if self.repeats < 1:
            raise LongtailError(f"repeats must be at least 1, got {self.repeats}")

    def order(self, targets: Labels, *, epoch: int, seed: int) -> Array:
        """Return every image of the epoch `repeats` times; the last may come fewer times."""
        rounds, part = divmod(epoch, self.repeats)
        shuffled = _generator(seed, rounds).permutation(len(targets))
        images = -(-len(targets) // self.repeats)
        chosen = shuffled[(part * images + np.arange(images)) % len(targets)]
        return np.repeat(chosen, self.repeats)[: len(targets)]


@dataclass(frozen=True)
class PerDomain:
    """An equal share of each domain in every batch: domains alternate row by row.

    `domains` are the domain indices (N,) of the split's rows.
    """

    domains: Sequence[int]

    def order(self, targets: Labels, *, epoch: int, seed: int) -> Array:
        """Return rows of alternating domains: D consecutive rows have one of each of D domains."""
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


@dataclass(frozen=True)
class SomeDomains:
    """Equal shares of some domains in every batch, as MixStyle is trained with two of them.

    Every batch of an epoch has `per_batch` random domains, whose rows alternate.

    Args:
        domains: The domain indices (N,) of the split's rows.
        batch: Rows per batch, as in the loader; a multiple of `per_batch`.
        per_batch: Domains in a batch.
    """

    domains: Sequence[int]
    batch: int
    per_batch: int = 2

    def order(self, targets: Labels, *, epoch: int, seed: int) -> Array:
        """Return rows of batches with `per_batch` domains each."""
        rng, rows, domains = _generator(seed, epoch), len(targets), np.asarray(self.domains)
        names = np.unique(domains)
        batches = -(-rows // self.batch)
        chosen = np.stack(
            [rng.choice(len(names), self.per_batch, replace=False) for _ in range(batches)]
        )
        numbers = np.repeat(chosen[:, None], self.batch // self.per_batch, axis=1).reshape(-1)
        order = np.empty(len(numbers), dtype=np.int64)
        for number, name in enumerate(names):
            places = np.flatnonzero(numbers == number)
            order[places] = _cycled(np.flatnonzero(domains == name), len(places), rng)
        return order[:rows]
