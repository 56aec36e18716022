"""How many epochs a stage has when they are planned again on the way, to end in time."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from longtail.errors import LongtailError

RECENT = 5
"""Epochs whose speed counts."""

GROWTH = 1.1
"""A plan grows only by at least this factor, so that it does not follow every fluctuation."""


@dataclass
class EpochPlan:
    """The number of epochs of a stage, which may change after each epoch.

    `changes` maps numbers of finished epochs to the epochs that there are in total from then on.
    With `seconds`, `update` adds a change where the stage would otherwise end too late, or where
    epochs that were left out fit after all.

    >>> plan = EpochPlan.parse("3:37,8:35")
    >>> [plan.total(finished, planned=40) for finished in (0, 3, 7, 8)]
    [40, 37, 37, 35]
    """

    changes: dict[int, int] = field(default_factory=dict)
    seconds: float | None = None
    _ends: list[float] = field(default_factory=list, repr=False)

    @classmethod
    def parse(cls, text: str) -> EpochPlan:
        """Read a plan as `str(plan)` writes it."""
        changes: dict[int, int] = {}
        for part in filter(None, text.split(",")):
            finished, colon, total = part.partition(":")
            if not (colon and finished.isdecimal() and total.isdecimal()):
                raise _invalid(text)
            if changes and int(finished) <= max(changes):
                raise _invalid(text)
            changes[int(finished)] = int(total)
        if any(total < max(finished, 1) or finished < 1 for finished, total in changes.items()):
            raise _invalid(text)
        return cls(changes)

    def __str__(self) -> str:
        return ",".join(f"{finished}:{total}" for finished, total in self.changes.items())

    def total(self, finished: int, *, planned: int) -> int:
        """The epochs that there are in total, as known after `finished` epochs."""
        known = [total for start, total in self.changes.items() if start <= finished]
        return known[-1] if known else planned

    def update(self, finished: int, *, planned: int, elapsed: float) -> None:
        """Plan again after an epoch; `elapsed` are the seconds that the stage has taken so far."""
        self._ends.append(elapsed)
        if self.seconds is None:
            return
        recent = self._ends[-RECENT - 1 :]
        epoch = (recent[-1] - recent[0]) / (len(recent) - 1) if recent[1:] else elapsed / finished
        current = self.total(finished, planned=planned)
        left = max(0, int((self.seconds - elapsed) / max(epoch, 1e-9)))
        possible = min(finished + left, planned)
        if finished < current and (possible < current or possible >= GROWTH * current):
            self.changes[finished] = possible

    @property
    def may_change(self) -> bool:
        """Whether there is something for a checkpoint to store."""
        return self.seconds is not None or bool(self.changes)

    def state_dict(self) -> dict[str, Any]:
        """The changes so far, and the ends of recent epochs."""
        return {"changes": dict(self.changes), "ends": self._ends[-RECENT - 1 :]}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continue a plan."""
        self.changes, self._ends = dict(state["changes"]), list(state["ends"])


def _invalid(text: str) -> LongtailError:
    return LongtailError(
        "expected --epoch-plan FINISHED:TOTAL,... with growing numbers of finished epochs, such as"
        f" 3:37,8:35 (after 3 epochs, 37 in total), got {text!r}"
    )
