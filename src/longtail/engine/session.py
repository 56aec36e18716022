"""Training of one stage in its folder: journal, display, checkpoints, and the best weights."""

from __future__ import annotations

import math
import time
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from longtail import processes
from longtail.core import Clock, NonFinite, Outcome, Stage
from longtail.engine import checkpoint
from longtail.engine.averaging import temporary_weights
from longtail.engine.display import Display
from longtail.engine.distributed import mean_over_processes, share_statistics
from longtail.engine.fit import StageContext, train
from longtail.engine.journal import Journal, Meter, diverged
from longtail.engine.predicting import predictor
from longtail.engine.stopping import Stopped, listening
from longtail.errors import LongtailError
from longtail.records.documents import write_document
from longtail.records.layout import StageFolder

JOURNAL_EVERY = 100  # steps between two lines within an epoch
SAVE_SECONDS = 5.0  # at least, between the checkpoints of two epochs


class Session:
    """Trains a stage, from the start or from a checkpoint.

    Args:
        context: the stage with its optimizer.
        folder: of the stage.
        save_minutes: minutes between two checkpoints within an epoch.
        command: the command that continues the run, for messages.
        tensorboard: the folder for TensorBoard files, if any.
    """

    def __init__(
        self,
        context: StageContext,
        folder: StageFolder,
        *,
        save_minutes: float,
        command: str,
        tensorboard: Path | None = None,
    ) -> None:
        self.context, self.stage, self.folder = context, context.stage, folder
        self.save_minutes, self.command, self.tensorboard = save_minutes, command, tensorboard
        self.display, self.meter = Display(context.stage.name), Meter()
        self.kept: dict[str, Any] = {"value": None, "epoch": None, "weights": {}}
        self.step, self.seconds, self.journal_length = 0, 0.0, 0
        self.stop_requested = False
        self.first = processes.rank() == 0

    def resume(self, saved: Mapping[str, Any]) -> None:
        """Restore optimizer, averages, means and position; the method has its weights already."""
        self.context.optimizer.load_state_dict(saved["optimizer"])
        for name, average in self.stage.averages.items():
            average.load_state_dict(saved["averages"][name])
        # Earlier versions saved the meter of the first process only
        meters = saved.get("meters") or [saved["meter"]]
        # With more processes than before, the new ones start with empty means
        if processes.rank() < len(meters):
            self.meter.load_state_dict(meters[processes.rank()])
        self.kept, self.step = dict(saved["kept"]), saved["step"]
        self.seconds, self.journal_length = saved["seconds"], saved["journal"]
        if "plan" in saved:
            self.context.plan.load_state_dict(saved["plan"])

    def train(self) -> None:
        """Train to the end, or until a stop is requested."""
        for _ in self.steps():
            pass
        self._complete()
        if self.stop_requested:
            raise Stopped(
                f"stopped after stage {self.stage.name!r}, which is complete. Continue with:"
                f" {self.command}"
            )

    def steps(self) -> Iterator[Clock]:
        """Train, and yield the clock of each step once it is recorded and, if due, saved."""
        self._started = self._saved = time.monotonic()
        self._has_saved = False
        first_step, images = self.step, 0
        path = self.folder.journal if self.first else None
        self.journal = Journal(
            path, length=self.journal_length, tensorboard=self.tensorboard if self.first else None
        )
        try:
            with listening() as request:
                for clock, outcome, rows in train(self.context, step=first_step):
                    if clock.step == first_step:
                        announce(
                            self.context,
                            self.display,
                            rows * processes.world_size(),
                            after=first_step,
                        )
                    # The last step of an epoch may have fewer rows
                    images = max(images, rows * processes.world_size())
                    self.step = clock.step + 1
                    clock = self._replanned(clock)
                    self._record(clock, outcome, images)
                    stop, due = self._any_rank(request.made, self._save_due(clock))
                    if stop or due or self._epoch_ended:
                        self._check_finite(clock)
                    if stop or due:
                        self._save()
                    self.stop_requested = stop
                    if stop and self.step < clock.steps:
                        raise Stopped(
                            f"stopped after step {self.step} of {clock.steps} (epoch"
                            f" {clock.epoch + 1} of {clock.epochs}) of stage {self.stage.name!r};"
                            f" everything is saved. Continue with: {self.command}"
                        )
                    yield clock
        finally:
            self.journal.close()

    @property
    def _epoch_ended(self) -> bool:
        return self.step % self.context.steps_per_epoch == 0

    @property
    def _elapsed(self) -> float:
        return self.seconds + time.monotonic() - self._started

    def _replanned(self, clock: Clock) -> Clock:
        """The clock of a step, at the end of an epoch with the epochs that are planned now."""
        if not self._epoch_ended:
            return clock
        plan, finished, planned = self.context.plan, clock.epoch + 1, self.stage.epochs
        plan.update(finished, planned=planned, elapsed=self._elapsed)
        epochs = plan.total(finished, planned=planned)
        return replace(clock, steps=epochs * self.context.steps_per_epoch, epochs=epochs)

    def _save_due(self, clock: Clock) -> bool:
        """Whether to save: every `save_minutes`, and at the end of an epoch unless just saved.

        The ends of the first and of the last epoch are always saved, and changes of the plan.
        """
        wait = 60 * self.save_minutes
        if self._epoch_ended:
            changed = clock.epoch + 1 in self.context.plan.changes
            always = self.step == clock.steps or changed or not self._has_saved
            wait = -1.0 if always else min(wait, SAVE_SECONDS)
        return time.monotonic() - self._saved > wait

    def _any_rank(self, *flags: bool) -> tuple[bool, ...]:
        return tuple(processes.any_rank(flag, self.context.machine.device) for flag in flags)

    def _record(self, clock: Clock, outcome: Outcome, images: int) -> None:
        self._add(outcome, clock)
        lr = max(group["lr"] for group in self.context.optimizer.param_groups)
        if self.display.due():
            self.display.show(clock, self.meter.means(), lr=lr, images=images)
        if not self._epoch_ended and self.step % JOURNAL_EVERY:
            return
        kind = "epoch" if self._epoch_ended else "steps"
        line: dict[str, Any] = {
            "kind": kind,
            "epoch": clock.epoch + 1,
            "step": self.step,
            "rate": lr,
        }
        line |= mean_over_processes(self.meter.means())
        if self._epoch_ended:
            results = self._evaluate(clock)
            if results:
                for average in self.stage.averages.values():
                    average.observe(results, clock)
            line |= results
            if clock.epoch + 1 in self.context.plan.changes:
                line["epochs"] = clock.epochs
            self._keep_best(results, clock)
            self.meter = Meter()
            self.display.milestone(
                _epoch_summary(self.stage, clock, line), final=self.step == clock.steps
            )
        line |= {
            "seconds": round(self._elapsed, 2),
            "images_per_second": round(images * self.step / self._elapsed, 1),
        }
        self.journal.write(line)

    def _add(self, outcome: Outcome, clock: Clock) -> None:
        """Add a step to the means; a loss that is not finite in one process ends all of them."""
        problem = None
        try:
            self.meter.add(outcome, clock)
        except NonFinite as error:
            problem = error
        if processes.any_rank(problem is not None, self.context.machine.device):
            raise problem or diverged("the loss", clock, "it was not in another process")

    def _evaluate(self, clock: Clock) -> dict[str, float]:
        """Evaluate the current weights as "val/...", and each average as "NAME/val/..."."""
        stage = self.stage
        if not stage.evals or not stage.evaluate(clock):
            return {}
        share_statistics(stage.method, stage.averages.values())
        stage.method.eval()
        predict = predictor(stage.method, self.context.machine)
        results: dict[str, float] = {}
        variants: dict[str, Mapping[str, Tensor]] = {
            f"{name}/": average.weights() for name, average in stage.averages.items()
        }
        for prefix, weights in {"": {}, **variants}.items():
            if prefix and not weights:
                continue  # an average without an update so far
            with temporary_weights(stage.method, weights):
                for name, evaluator in stage.evals.items():
                    results |= {
                        f"{prefix}{name}/{key}": float(value)
                        for key, value in evaluator(predict).items()
                    }
        return results

    def _keep_best(self, results: Mapping[str, float], clock: Clock) -> None:
        metric = self.stage.keep.best
        name = _kept_average(self.stage)
        if metric is None or not results or (name and not self.stage.averages[name].weights()):
            return  # nothing was evaluated, or the average has no update so far
        if metric not in results:
            raise LongtailError(
                f"stage {self.stage.name!r} keeps the best {metric!r}, but its metrics are:"
                f" {', '.join(results)}"
            )
        sign = 1.0 if self.stage.keep.higher_is_better else -1.0
        # NaN is never the best
        if sign * results[metric] > (
            -math.inf if self.kept["value"] is None else sign * self.kept["value"]
        ):
            # All of the method's state: predictions may depend on prototypes, queues or a momentum
            # copy.
            weights = {
                **self.stage.method.state_dict(),
                **(self.stage.averages[name].weights() if name else {}),
            }
            self.kept = {
                "value": results[metric],
                "epoch": clock.epoch + 1,
                "weights": {name: tensor.clone() for name, tensor in weights.items()},
            }

    def _check_finite(self, clock: Clock) -> None:
        """Raise, before saving, if a gradient that was not finite has reached the weights."""
        if nonfinite := [
            name
            for name, tensor in self.stage.method.named_parameters()
            if not tensor.isfinite().all()
        ]:
            message = f"{len(nonfinite)} parameter tensor(s), such as {nonfinite[0]}"
            raise diverged("the weights", clock, message)

    def _save(self) -> None:
        share_statistics(self.stage.method, self.stage.averages.values())
        state = {
            "stage": self.stage.name,
            "step": self.step,
            "method": self.stage.method.state_dict(),
            "optimizer": self.context.optimizer.state_dict(),
            "averages": {
                name: average.state_dict() for name, average in self.stage.averages.items()
            },
            "meters": processes.all_gather_object(self.meter.state_dict()),
            "kept": self.kept,
            "journal": self.journal.length,
            "seconds": self._elapsed,
        }
        if self.context.plan.may_change:
            state["plan"] = self.context.plan.state_dict()
        if self.first:
            checkpoint.save(self.folder.checkpoint, state)
        self._saved, self._has_saved = time.monotonic(), True

    def _complete(self) -> None:
        if self.stage.keep.average is not None:
            self.kept["weights"] = dict(self.stage.averages[self.stage.keep.average].weights())
        keep = self.stage.keep
        if (keep.average or keep.best) and not self.kept["weights"]:
            never = (
                f"the average {keep.average!r} was never updated"
                if keep.average
                else f"{keep.best!r} was never measured"
            )
            raise LongtailError(
                f"stage {self.stage.name!r} keeps {keep.name}, but {never}: train for more epochs,"
                " or keep the last epoch"
            )
        best = (
            {"metric": keep.best, "epoch": self.kept["epoch"], "value": self.kept["value"]}
            if keep.best
            else None
        )
        record = {
            "name": self.stage.name,
            "epochs": self.step // self.context.steps_per_epoch,
            "minutes": round(self._elapsed / 60, 3),
        }
        record |= {"keep": keep.name, "best": best}
        if self.context.plan.changes:
            record["plan"] = str(self.context.plan)
        if self.first:
            checkpoint.save(self.folder.kept, {"weights": self.kept["weights"]})
            write_document(self.folder.record, record)
        if processes.world_size() > 1:
            torch.distributed.barrier()


def announce(context: StageContext, display: Display, images: int, *, after: int = 0) -> None:
    """Print what this stage trains and how.

    `images` is the number of images of a step, over all batches and processes.
    """
    stage = context.stage
    batches = min(stage.accumulate, len(stage.data))
    factors = [f"{images // (batches * processes.world_size())} rows"]
    factors += [f"{batches} accumulated"] * (batches > 1)
    factors += [f"{processes.world_size()} processes"] * (processes.world_size() > 1)
    trainable = sum(p.numel() for p in stage.method.parameters() if p.requires_grad)
    display.say(
        f"{stage.name}: {trainable / 1e6:.2f} M parameters, {stage.epochs} epochs x"
        f" {context.steps_per_epoch} steps, effective batch {images} ({' x '.join(factors)}), lr"
        f" {max(context.base_lrs):g}, {context.machine.device} {context.machine.precision},"
        f" {context.machine.threads} threads"
        + (f"; continuing after step {after}" if after else "")
    )


def _kept_average(stage: Stage[Any]) -> str | None:
    """The average whose weights a stage keeps, if any.

    It is "ema" for both `average("ema")` and `best("ema/val/balanced")`.
    """
    name = stage.keep.average or (stage.keep.best or "").partition("/")[0]
    return name if name in stage.averages else None


def _epoch_summary(stage: Stage[Any], clock: Clock, line: Mapping[str, Any]) -> str:
    """Describe an epoch: its terms, and the evaluations of the weights that the stage keeps.

    The evaluations of single heads are in the journal only.
    """
    name = _kept_average(stage)
    kept = f"{name}/" if name else ""
    shown = {
        name.removeprefix("terms/"): value
        for name, value in line.items()
        if name.startswith("terms/")
    }
    metrics = [
        name
        for name in line
        if any(name.startswith(f"{kept}{evaluator}/") for evaluator in stage.evals)
    ]
    shown |= {
        name.removeprefix(kept): line[name]
        for name in metrics
        if name.removeprefix(kept).count("/") == 1
    }
    numbers = [f"{name} {value:.3f}" for name, value in shown.items()]
    return f"{stage.name}: epoch {clock.epoch + 1}/{clock.epochs}  " + "  ".join(numbers)
