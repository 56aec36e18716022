"""A run is a folder. `fit` is idempotent: finished stages load, unfinished ones continue where they
stopped.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Mapping
from copy import deepcopy
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import Any, Literal

from longtail import processes
from longtail.core import B, Method, Stage
from longtail.engine import checkpoint
from longtail.engine.averaging import load_partial
from longtail.engine.display import Display, duration
from longtail.engine.distributed import wrapped
from longtail.engine.fit import StageContext, train
from longtail.engine.machine import Machine, compile_parts
from longtail.engine.seeding import seed_all
from longtail.engine.session import Session, announce
from longtail.errors import LongtailError
from longtail.records.documents import read_document
from longtail.records.kinds import STAGE
from longtail.records.layout import RunFolder


class Run:
    """Where a recipe trains: a folder, the seeds and the machine.

    Without a machine it is the CPU with one thread, for all of the process;
    `longtail.engine.machine.choose` takes what there is. `command` is what a person types to
    continue. A dry run leaves nothing behind: "estimate" sends a few batches through every stage
    and says what it would cost, "rehearse" none, so that what a later stage would refuse is refused
    before the first has learnt for hours."""

    def __init__(
        self,
        folder: Path,
        *,
        seed: int = 0,
        view_seed: int | None = None,
        machine: Machine | None = None,
        save_minutes: float = 10.0,
        dry: Literal["estimate", "rehearse"] | None = None,
        tensorboard: bool = False,
        command: str = "the same command",
    ) -> None:
        self.folder, self.seed, self.view_seed = (
            Path(folder),
            seed,
            seed if view_seed is None else view_seed,
        )
        self.files = RunFolder(self.folder)
        self.machine, self.save_minutes = machine or Machine(), save_minutes
        self.dry, self.tensorboard, self.command = dry, tensorboard, command
        self.history: list[dict[str, Any]] = []  # one record per finished stage
        self.pretraining: str | None = (
            # Other data that the weights have seen; a recipe that begins with such weights says so
            None
        )
        # Of the runs whose weights this one begins with, where they are known
        self.minutes_before: dict[str, float] = {}
        # Keywords that had no effect, as a recipe says; the row does not name them
        self.unused: set[str] = set()
        # The recipe's keywords that differ from their defaults
        self.changed: Mapping[str, Any] = {}
        self._begun: set[str] = set()  # the names of stages
        self.machine.configure()
        seed_all(seed, "start")

    def fit(self, stage: Stage[B]) -> Method[B]:
        """Train a stage to its end, or load it if that has happened; returns its method with the
        kept weights.
        """
        if stage.epochs < 1 or len(stage.data) < 1 or stage.accumulate < 1:
            raise LongtailError(
                f"stage {stage.name!r}: expected at least one epoch, batch and accumulated batch, "
                f"got {stage.epochs}, {len(stage.data)} and {stage.accumulate}"
            )
        if stage.keep.average is not None and stage.keep.average not in stage.averages:
            raise LongtailError(
                f"stage {stage.name!r} keeps the average {stage.keep.average!r}, but has only"
                f" {sorted(stage.averages)}"
            )
        if stage.name in self._begun:
            raise LongtailError(
                "expected stages of different names, for each has its folder, got two called"
                f" {stage.name!r}: rename one"
            )
        self._begun.add(stage.name)
        # So that two stages may be given the same ones
        stage = replace(stage, averages=deepcopy(dict(stage.averages)))
        self.machine.place_module(stage.method)
        if self.dry is None:
            self._finish(stage)
        elif self.dry == "estimate":
            self._estimate(stage)
        else:
            stage.optimizer(stage.method)
        stage.method.eval()
        # Trained or loaded, the recipe goes on with the same random numbers: a fresh head is the
        # same head.
        seed_all(self.seed, stage.name, "after")
        return stage.method

    def write(self, path: Path, writer: Callable[[Path], None], *, replace: bool = False) -> None:
        """Let a recipe write into the run's folder: call `writer(path)` unless there is a file.

        It is called in the first process alone, and not in a dry run: a recipe needs no guard.
        Where `writer` writes several files, the path is that of the last one.
        """
        if self.dry is None and processes.rank() == 0 and (replace or not path.exists()):
            writer(path)

    def ignore(self, keywords: Collection[str], *, given: str) -> None:
        """Keep keywords that have no effect off the row, and refuse them where they were changed.

        They are refused in a dry run alone, which comes before every new run: a run that began
        under older defaults may have them and is resumed.
        """
        self.unused.update(keywords)
        flags = [
            f"--{name.replace('_', '-')} {value}"
            for name, value in self.changed.items()
            if name in keywords
        ]
        if flags and self.dry is not None:
            end = (
                "has no effect with {}: remove it"
                if len(flags) == 1
                else "have no effect with {}: remove them"
            )
            raise LongtailError(f"{', '.join(flags)} {end.format(given)}")

    def will_train(self, stage: str) -> bool:
        """Whether `fit` is going to train this stage: not in a dry run, nor once it is finished."""
        return self.dry is None and not self.files.stage(stage).is_finished

    def _finish(self, stage: Stage[B]) -> None:
        folder = self.files.stage(stage.name)
        saved = checkpoint.load(folder.checkpoint) if folder.checkpoint.exists() else None
        if saved is not None:
            checkpoint.restore(stage.method, saved["method"], folder.checkpoint)
        elif folder.is_finished:
            raise LongtailError(
                f"expected the weights of the finished stage {stage.name!r}, got no"
                f" {folder.checkpoint}: bring it back, or delete {folder.path} to train the stage"
                " again"
            )
        if not folder.is_finished:
            board = self.files.tensorboard(stage.name) if self.tensorboard else None
            session = Session(
                self._prepare(stage),
                folder,
                save_minutes=self.save_minutes,
                command=self.command,
                tensorboard=board,
            )
            if saved is not None:
                session.resume(saved)
            session.train()
        load_partial(stage.method, checkpoint.load(folder.kept)["weights"])
        self.history.append(read_document(folder.record, STAGE))

    def _prepare(self, stage: Stage[B]) -> StageContext:
        forward, unsynced = wrapped(stage.method, self.machine)
        optimizer = stage.optimizer(stage.method)
        if self.machine.compile:
            compile_parts(stage.method)
        base_lrs = [group["lr"] * group.get("lr_scale", 1.0) for group in optimizer.param_groups]
        return StageContext(stage, self.machine, self.seed, optimizer, forward, unsynced, base_lrs)

    def _estimate(self, stage: Stage[B]) -> None:
        context, display, times = self._prepare(stage), Display(stage.name), []
        before = time.monotonic()
        for step in islice(train(context), 3):
            step.outcome.loss.item()  # a device may still be at work
            times.append(time.monotonic() - before)
            before, images = time.monotonic(), step.rows * processes.world_size()
        announce(context, display, images)
        seconds = min(times[1:] or times)  # the first step also warms up
        total = seconds * stage.epochs * context.steps_per_epoch
        speed = f"{1000 * seconds:.0f} ms a step, {images / seconds:,.0f} images/s"
        display.say(f"{stage.name}: {speed}: about {duration(total)}, evaluations apart")
        record = {"name": stage.name, "epochs": stage.epochs, "minutes": round(total / 60, 3)}
        self.history.append(record | {"keep": stage.keep.name, "best": None})
