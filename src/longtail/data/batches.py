"""Batches made of other batches: epochs of any number of steps, and several loaders in one step.

Both are functions of (epoch, start) like the loaders they are made of, so a run resumes to the bit.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Generic

from longtail.core import B_co, Batches
from longtail.errors import LongtailError


class StepsPerEpoch(Generic[B_co]):
    """Epochs of exactly `steps` batches, which walk through the epochs of another loader.

    >>> class Three:
    ...     def __len__(self): return 3
    ...     def epoch(self, index, *, start=0): return iter([f"{index}.{n}" for n in range(start, 3)])
    >>> list(StepsPerEpoch(Three(), steps=2).epoch(1)), list(StepsPerEpoch(Three(), steps=5).epoch(0, start=2))
    (['0.2', '1.0'], ['0.2', '1.0', '1.1'])
    """

    def __init__(self, batches: Batches[B_co], *, steps: int) -> None:
        if steps < 1:
            raise LongtailError(f"expected at least one step in an epoch, got {steps}")
        self.batches, self.steps = batches, steps

    def __len__(self) -> int:
        """Batches in an epoch."""
        return self.steps

    def epoch(self, index: int, *, start: int = 0) -> Iterator[B_co]:
        """The batches of an epoch, from batch `start` on."""
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
    """A batch of each of several loaders in every step: the keys of the first as they are,
    `NAME_image` and so on of the others.

    An epoch is one of the first loader; the others walk through theirs at the same pace, from one
    epoch into the next. Source and target of a domain adaptation, the two samplers of BBN, the
    backgrounds of CMO. Rows are counted by the `position` of the first."""

    def __init__(self, first: Batches[Any], **others: Batches[Any]) -> None:
        if not others:
            raise LongtailError("expected at least two loaders to pair, got one")
        self.first = first
        self.others = {
            name: StepsPerEpoch(batches, steps=len(first)) for name, batches in others.items()
        }

    def __len__(self) -> int:
        """Batches in an epoch."""
        return len(self.first)

    def epoch(self, index: int, *, start: int = 0) -> Iterator[dict[str, Any]]:
        """The batches of an epoch, from batch `start` on."""
        others = [batches.epoch(index, start=start) for batches in self.others.values()]
        for batch, *more in zip(self.first.epoch(index, start=start), *others, strict=True):
            named = {
                f"{name}_{key}": value
                for name, other in zip(self.others, more, strict=True)
                for key, value in other.items()
            }
            if clash := sorted({*batch} & {*named}):
                raise LongtailError(
                    f"expected other names beside those of the first loader, got {clash[0]!r} in"
                    " both: rename the loader"
                )
            yield {**batch, **named}
