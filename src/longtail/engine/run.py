"""A run is a folder. `fit` is idempotent: finished stages load, unfinished ones continue."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Mapping
from copy import deepcopy
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import Any, Literal, TypeVar

from longtail import processes
from longtail.core import B, Method, Stage
from longtail.engine import checkpoint
from longtail.engine.averaging import load_partial
from longtail.engine.display import LONG, Display, duration
from longtail.engine.distributed import wrapped
from longtail.engine.fit import StageContext, train
from longtail.engine.machine import Machine, compile_parts
from longtail.engine.plan import EpochPlan
from longtail.engine.seeding import seed_all
from longtail.engine.session import Session, announce
from longtail.errors import LongtailError, warn
from longtail.records.documents import read_document
from longtail.records.kinds import STAGE
from longtail.records.layout import RunFolder, StageFolder

T = TypeVar("T")


class Run:
    """Where a recipe trains: a folder, the seeds and the machine.

    Args:
        folder: the run folder; created if it does not exist.
        seed: of initial weights, batches and dropout.
        view_seed: of augmentations; the default is `seed`.
        machine: the default is the CPU with one thread, which applies to this process;
            `longtail.engine.machine.choose` selects the fastest device.
        save_minutes: minutes between two checkpoints within an epoch.
        dry: a dry run writes no files. "estimate" trains a few batches of every stage and prints
            the time that it would take; "rehearse" trains none, so that an error of a later stage
            is raised before the first stage has trained for hours.
        tensorboard: whether to write TensorBoard files.
        trust: whether a recipe may import the custom networks of other runs that it starts from.
        command: the command that continues the run, for messages.
        check: called by a dry run with each stage; it raises if memory or disk has no room for
            the stage, and returns what the stage needs, for people.
        plan: how the epochs of the only stage change on the way; fixed unless given.
    """

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
        trust: bool = False,
        command: str = "the same command",
        check: Callable[[Stage[Any]], str] = lambda stage: "",
        plan: EpochPlan | None = None,
    ) -> None:
        self.folder, self.seed, self.view_seed = (
            Path(folder),
            seed,
            seed if view_seed is None else view_seed,
        )
        if not save_minutes >= 0:  # nan too; 0 saves after every step
            raise LongtailError(f"expected --save-every of 0 minutes or more, got {save_minutes}")
        self.files = RunFolder(self.folder)
        self.machine, self.save_minutes = machine or Machine(), save_minutes
        self.dry, self.tensorboard, self.command = dry, tensorboard, command
        self.trust, self.check, self.plan = trust, check, plan
        self.history: list[dict[str, Any]] = []  # one record per finished stage
        # Other data that the initial weights were trained on; set by recipes that load such weights
        self.pretraining: str | None = None
        # Training minutes of the runs whose weights this one starts from, if known
        self.minutes_before: dict[str, float] = {}
        # Keywords that had no effect, as reported by the recipe; they are left out of the row
        self.unused: set[str] = set()
        # What a reader of the result must know; recipes add it, and the row has it
        self.caveats: list[str] = []
        # The recipe's keywords that differ from their defaults
        self.changed: Mapping[str, Any] = {}
        self._fitted: set[str] = set()  # the names of stages
        self.machine.configure()
        seed_all(seed, "start")

    def fit(self, stage: Stage[B]) -> Method[B]:
        """Train a stage, or load it if it is finished; return its method with the kept weights."""
        if stage.epochs < 1 or len(stage.data) < 1 or stage.accumulate < 1:
            raise LongtailError(
                f"stage {stage.name!r}: epochs, batches and accumulate must be at least 1, "
                f"got {stage.epochs}, {len(stage.data)} and {stage.accumulate}"
            )
        if stage.keep.average is not None and stage.keep.average not in stage.averages:
            raise LongtailError(
                f"stage {stage.name!r} keeps the average {stage.keep.average!r}, but its"
                " averages are"
                f" {sorted(stage.averages)}"
            )
        if stage.name in self._fitted:
            raise LongtailError(
                f"two stages are called {stage.name!r}, and each needs a separate folder:"
                " rename one"
            )
        if self.plan is not None and self._fitted:
            raise LongtailError(
                "epochs are planned again in recipes of one stage only, and this one has"
                f" {', '.join([*sorted(self._fitted), stage.name])}: leave --epoch-plan and minutes"
                " out"
            )
        self._fitted.add(stage.name)
        # Copies, so that two stages may be given the same averages
        stage = replace(stage, averages=deepcopy(dict(stage.averages)))
        self.machine.place_module(stage.method)
        if self.dry is None:
            self._finish(stage)
        elif self.dry == "estimate":
            self._estimate(stage)
        else:
            self.check(stage)
            stage.optimizer(stage.method)
        stage.method.eval()
        # Whether trained or loaded, the recipe continues with the same random numbers, so that a
        # new head has the same initial weights.
        seed_all(self.seed, stage.name, "after")
        return stage.method

    def write(self, path: Path, writer: Callable[[Path], None], *, replace: bool = False) -> None:
        """Write a file of the recipe into the run folder: call `writer(path)` unless it exists.

        Only the first process writes, and a dry run never does, so recipes need no guard. If
        `writer` writes several files, `path` is the last one.
        """
        if self.dry is None and processes.rank() == 0 and (replace or not path.exists()):
            writer(path)

    def compute(self, result: Callable[[], T], *, dry: Callable[[], T]) -> T:
        """The result of a computation that takes long; a dry run calls `dry` instead."""
        return result() if self.dry is None else dry()

    def ignore(self, keywords: Collection[str], *, given: str) -> None:
        """Leave keywords that have no effect out of the row, and raise if they were changed.

        It raises in a dry run only, which precedes every new run: a run that was started under
        older defaults may have such keywords and is resumed.
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
        """Whether `fit` will train this stage: not in a dry run, nor if it is finished."""
        return self.dry is None and not self.files.stage(stage).is_finished

    def _finish(self, stage: Stage[B]) -> None:
        folder = self.files.stage(stage.name)
        saved = checkpoint.load(folder.checkpoint) if folder.checkpoint.exists() else None
        if saved is not None:
            weights = checkpoint.tensors_of(saved, "method", folder.checkpoint)
            checkpoint.restore(stage.method, weights, folder.checkpoint)
        elif folder.is_finished:
            raise LongtailError(
                f"stage {stage.name!r} is finished, but {folder.checkpoint} is missing:"
                " restore it, or"
                f" delete {folder.path} to train the stage again"
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
                _resume(session, saved, folder)
            session.train()
        kept = checkpoint.tensors_of(checkpoint.load(folder.kept), "weights", folder.kept)
        checkpoint.check_kept(stage.method, kept, folder.kept)
        load_partial(stage.method, kept)
        self.history.append(read_document(folder.record, STAGE))

    def _prepare(self, stage: Stage[B]) -> StageContext:
        forward, unsynced = wrapped(stage.method, self.machine)
        optimizer = stage.optimizer(stage.method)
        if self.machine.compile:
            compile_parts(stage.method)
        base_lrs = [group["lr"] * group.get("lr_scale", 1.0) for group in optimizer.param_groups]
        return StageContext(
            stage,
            self.machine,
            self.seed,
            optimizer,
            forward,
            unsynced,
            base_lrs,
            self.plan or EpochPlan(),
        )

    def _estimate(self, stage: Stage[B]) -> None:
        needs = self.check(stage)
        context, display, times = self._prepare(stage), Display(stage.name), []
        before = time.monotonic()
        for step in islice(train(context), 3):
            step.outcome.loss.item()  # waits for the device
            times.append(time.monotonic() - before)
            before, images = time.monotonic(), step.rows * processes.world_size()
        announce(context, display, images)
        seconds = min(times[1:] or times)  # the first step includes warm-up
        total = seconds * stage.epochs * context.steps_per_epoch
        speed = f"{1000 * seconds:.0f} ms a step, {images / seconds:,.0f} images/s"
        display.say(f"{stage.name}: {speed}: about {duration(total)}, without evaluations")
        if needs:
            display.say(f"{stage.name}: {needs}")
        if total > LONG:
            warn(f"stage {stage.name!r} would take about {duration(total)}")
        record = {"name": stage.name, "epochs": stage.epochs, "minutes": round(total / 60, 3)}
        self.history.append(record | {"keep": stage.keep.name, "best": None})


def _resume(session: Session, saved: Mapping[str, Any], folder: StageFolder) -> None:
    """Continue from a checkpoint; one of another shape is refused, with what to delete."""
    try:
        session.resume(saved)
    except (AttributeError, IndexError, KeyError, TypeError, ValueError, RuntimeError) as error:
        raise LongtailError(
            f"expected a checkpoint of stage {session.stage.name!r}, got something else in"
            f" {folder.checkpoint} ({type(error).__name__}: {error}): delete {folder.path} to train"
            " this stage again"
        ) from error
