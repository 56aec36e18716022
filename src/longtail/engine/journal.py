"""The training log as JSON lines: terms, notes, learning rate, evaluations and times."""

from __future__ import annotations

import json
import math
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from torch import Tensor

from longtail.core import Clock, NonFinite, Outcome
from longtail.errors import LongtailError


def diverged(what: str, clock: Clock, values: str) -> NonFinite:
    """Build the error that ends a diverged training, with advice."""
    return NonFinite(
        f"{what} stopped being finite at step {clock.step} of {clock.steps} (epoch"
        f" {clock.epoch + 1} of {clock.epochs}): {values}. The last good checkpoint is kept. Try a"
        " lower learning rate (a tenth), a longer warmup, or gradient clipping; with bf16, try"
        " --precision fp32"
    )


class Meter:
    """Means of terms and notes over an epoch.

    Its state is part of checkpoints, so that a resumed epoch has the same means.
    """

    def __init__(self) -> None:
        self.sums: dict[str, float] = {}
        self.steps: dict[
            str, int
        ] = {}  # of each name: a method may have different terms in different steps

    def add(self, outcome: Outcome, clock: Clock) -> None:
        """Add a step; raise if its loss is not finite."""
        terms = {name: value.item() for name, value in outcome.terms.items()}
        if not all(map(math.isfinite, terms.values())):
            raise diverged(
                "the loss", clock, ", ".join(f"{name} {value:g}" for name, value in terms.items())
            )
        for kind, values in (("terms", terms), ("notes", outcome.notes)):
            for name, value in values.items():
                number, key = value.item() if isinstance(value, Tensor) else value, f"{kind}/{name}"
                self.sums[key] = self.sums.get(key, 0.0) + number
                self.steps[key] = self.steps.get(key, 0) + 1

    def means(self) -> dict[str, float]:
        """The mean of each term and note so far, as "terms/NAME" and "notes/NAME"."""
        return {name: total / self.steps[name] for name, total in self.sums.items()}

    def state_dict(self) -> dict[str, Any]:
        """The state for a checkpoint."""
        return {"sums": dict(self.sums), "steps": dict(self.steps)}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore the state of a checkpoint."""
        self.sums, self.steps = dict(state["sums"]), dict(state["steps"])


class Journal:
    """An append-only file of JSON lines that is truncated to the length at the last checkpoint."""

    # Keys that may differ between two runs that are otherwise equal
    TIMES = ("seconds", "images_per_second")

    def __init__(
        self, path: Path | None, *, length: int = 0, tensorboard: Path | None = None
    ) -> None:
        if path is None:  # a process without a journal
            path = Path(os.devnull)
        path.parent.mkdir(parents=True, exist_ok=True)
        self._file = path.open("ab")
        if path.is_file():
            content = path.read_bytes()[:length]
            if (
                len(content) < length
            ):  # a power cut lost lines that were written before the checkpoint
                content = content[: content.rfind(b"\n") + 1]
            self._file.truncate(len(content))
        self._board = None
        if tensorboard is not None:
            try:
                from torch.utils.tensorboard import SummaryWriter
            except ImportError as error:
                raise LongtailError(
                    "TensorBoard files need the package tensorboard: pip install 'longtail[track]'"
                ) from error
            self._board = SummaryWriter(str(tensorboard))

    @property
    def length(self) -> int:
        """The number of bytes written so far."""
        return self._file.seek(0, 2)

    def write(self, line: Mapping[str, Any]) -> None:
        """Append a line and flush it."""
        self._file.write(json.dumps(line).encode() + b"\n")
        self._file.flush()
        if self._board is not None:
            for name, value in line.items():
                if isinstance(value, float):
                    self._board.add_scalar(name, value, line["step"])

    def close(self) -> None:
        """Close the files."""
        self._file.close()
        if self._board is not None:
            self._board.close()
