"""Loaders built on loaders: epochs of any number of steps, and several loaders in one step.

Like the loaders they wrap, both are functions of (epoch, start), so a resumed run is bit-identical.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Generic

from longtail.core import B_co, Batches
from longtail.errors import LongtailError


class StepsPerEpoch(Generic[B_co]):
    """Epochs of exactly `steps` batches, taken in order from the epochs of another loader.

    >>> class Three:
    ...     def __len__(self): return 3
    ...     def epoch(self, index, *, start=0):
    ...         return iter([f"{index}.{n}" for n in range(start, 3)])
    >>> list(StepsPerEpoch(Three(), steps=2).epoch(1))
    ['0.2', '1.0']
    >>> list(StepsPerEpoch(Three(), steps=5).epoch(0, start=2))
    ['0.2', '1.0', '1.1']
    """

    def __init__(self, batches: Batches[B_co], *, steps: int) -> None:
        if steps < 1:
            raise LongtailError(f"steps must be at least 1, got {steps}")
        self.batches, self.steps = batches, steps

    def __len__(self) -> int:
        """Number of batches in an epoch."""
        return self.steps

    def epoch(self, index: int, *, start: int = 0) -> Iterator[B_co]:
        """Iterate over the batches of an epoch, starting at batch `start`."""
        inner, first = divmod(index * self.steps + start, len(self.batches))
        left = self.steps - start
        while left > 0:
            for batch in self.batches.epoch(inner, start=first):
                yield batch
                left -= 1
                if not left:
                    return
            inner, first = inner + 1, 0


class PairedBatches:
    """One batch of every loader in each step, for example source and target in domain adaptation.

    A batch has the keys of the first loader unchanged, and those of a further loader NAME as
    `NAME_image`, `NAME_target` and so on. An epoch is an epoch of the first loader; the others
    advance at the same pace and continue from one of their epochs into the next. `position` is that
    of the first loader. Other uses are the two samplers of BBN and the backgrounds of CMO.
    """

    def __init__(self, first: Batches[Any], **others: Batches[Any]) -> None:
        if not others:
            raise LongtailError(
                "PairedBatches needs at least two loaders, got one: pass the others by keyword"
            )
        self.first = first
        self.others = {
            name: StepsPerEpoch(batches, steps=len(first)) for name, batches in others.items()
        }

    def __len__(self) -> int:
        """Number of batches in an epoch."""
        return len(self.first)

    def epoch(self, index: int, *, start: int = 0) -> Iterator[dict[str, Any]]:
        """Iterate over the batches of an epoch, starting at batch `start`."""
        others = [batches.epoch(index, start=start) for batches in self.others.values()]
        for batch, *more in zip(self.first.epoch(index, start=start), *others, strict=True):
            named = {
                f"{name}_{key}": value
                for name, other in zip(self.others, more, strict=True)
                for key, value in other.items()
            }
            if clash := sorted({*batch} & {*named}):
                raise LongtailError(
                    f"the key {clash[0]!r} is in the batches of two loaders: pass the loader under"
                    " another keyword"
                )
            yield {**batch, **named}
