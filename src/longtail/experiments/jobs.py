"""Run the arms of an experiment, sequentially or in parallel.

Finished runs are skipped; interrupted runs are resumed.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol, TypeVar

from longtail.data.request import data_flags
from longtail.errors import LongtailError, explained, printable, warn
from longtail.experiments.spec import Arm, Experiment, parse_setting
from longtail.naming import unknown
from longtail.recipes.signatures import RESERVED, Recipe, read
from longtail.records.layout import RunFolder

Item = TypeVar("Item")
Result = TypeVar("Result")
DIVERGED, REFUSED, STOPPED = 3, 4, 130  # exit codes of a run in a child process


class Progress(Protocol):
    """Receives the progress of an experiment; the command line passes its `tables` module."""

    def say(self, text: str) -> None:
        """Report progress."""

    def warn(self, text: str) -> None:
        """Report a problem that does not stop the experiment."""

    def grid(
        self,
        columns: Sequence[str],
        rows: Sequence[Sequence[str]],
        *,
        left: int = 1,
        title: str | None = None,
    ) -> None:
        """Show a table; the first `left` columns are text."""


class Printed:
    """Prints progress as plain lines, in the first process only."""

    def say(self, text: str) -> None:
        """Print a line."""
        if is_first_process():
            print(printable(text), flush=True)

    def warn(self, text: str) -> None:
        """Print a line to stderr."""
        if is_first_process():
            warn(text)

    def grid(
        self,
        columns: Sequence[str],
        rows: Sequence[Sequence[str]],
        *,
        left: int = 1,
        title: str | None = None,
    ) -> None:
        """Print a line for each row."""
        for row in ([title] if title else [], columns, *rows):
            self.say("  ".join(row))


def is_first_process() -> bool:
    """Whether this is the process that prints and writes, of those that `torchrun` started."""
    return os.environ.get("RANK", "0") == "0"


@contextmanager
def process_group(device: str | None = None) -> Iterator[None]:
    """Keep the processes that `torchrun` started in one group, over all runs of a command.

    Without it, each run would leave the group at its end, and the processes could not wait for each
    other between two runs.
    """
    if "WORLD_SIZE" not in os.environ:
        yield
        return
    from longtail.engine.distributed import started
    from longtail.engine.machine import choose

    with started(choose(device=device or "auto")):
        yield


@dataclass(frozen=True)
class Job:
    """A run of an experiment."""

    recipe: Recipe
    data: str
    seed: int
    folder: Path
    keywords: Mapping[str, Any]
    flags: Mapping[str, Any]  # data and run flags of `longtail.train`
    compared: bool = True  # False: a prerequisite of other runs

    def call(self) -> dict[str, Any]:
        """The arguments of `longtail.train`."""
        run = {
            "recipe": self.recipe.target,
            "data": self.data,
            "out": str(self.folder),
            "seed": self.seed,
        }
        return {**run, **self.flags, **self.keywords}

    @property
    def finished(self) -> bool:
        """Whether the run is complete."""
        return RunFolder(self.folder).is_finished


def default_folder(what: str, data: str | Path = "", *more: object) -> Path:
    """The default folder of runs: runs/WHAT-DATA-MORE."""
    names = [Path(data).resolve().name] if data else []
    return Path("runs") / "-".join([what, *names, *map(str, more)])


def check_flags(flags: Mapping[str, Any], at_once: int = 1) -> dict[str, Any]:
    """Check the flags of all runs; parallel runs get one thread unless `threads` is given."""
    known = RESERVED - {"recipe", "data", "out", "seed", "view_seed", "dry_run", "debug", "help"}
    for name in flags:
        if name not in known:
            more = "; pass keywords of a recipe in `grid` or `settings`"
            raise unknown("data or run flag", name, known, more=more)
    if at_once < 1:
        raise LongtailError(f"--jobs must be at least 1, got {at_once}")
    if at_once > 1 and "WORLD_SIZE" in os.environ:
        raise LongtailError(
            f"--jobs {at_once} starts processes itself, and torchrun has started"
            f" {os.environ['WORLD_SIZE']}: remove --jobs, or start without torchrun"
        )
    one_thread = at_once > 1 and flags.get("threads") is None
    return {**flags, "threads": 1} if one_thread else {**flags}


def run_folder(arm: Arm, seed: int, folder: Path) -> Path:
    """The run folder of an arm, inside the folder of its experiment."""
    return folder / arm.folder.replace("{seed}", str(seed if arm.seed is None else arm.seed))


def settings_of(experiment: Experiment, arm: Arm, seed: int, folder: Path) -> dict[str, Any]:
    """The settings of an arm, with the folders of its prerequisites and the seed filled in."""
    settings = {}
    for name, value in arm.settings.items():
        if isinstance(value, str) and value[1:-1] in experiment.prerequisites:
            value = str(run_folder(experiment.prerequisites[value[1:-1]], seed, folder))
        settings[name] = value.replace("{seed}", str(seed)) if isinstance(value, str) else value
    return settings


def jobs_of(experiment: Experiment, folder: Path) -> list[Job]:
    """The runs of an experiment: prerequisites, then every arm with every seed.

    All settings are checked.
    """

    def job(arm: Arm, seed: int, *, compared: bool) -> Job:
        recipe = read(arm.recipe)
        flags, keywords = dict(experiment.flags), dict[str, Any]()
        for name, value in settings_of(experiment, arm, seed, folder).items():
            is_run_flag = name in RESERVED and name not in data_flags()
            checked = value if is_run_flag else parse_setting(recipe, name, value)
            (flags if name in RESERVED else keywords)[name] = checked
        return Job(
            recipe,
            arm.data or experiment.data,
            seed if arm.seed is None else arm.seed,
            run_folder(arm, seed, folder),
            recipe.keywords(keywords),
            flags,
            compared=compared,
        )

    jobs = [
        job(arm, seed, compared=compared)
        for arms, compared in ((experiment.prerequisites.values(), False), (experiment.arms, True))
        for arm in arms
        for seed in experiment.seeds
    ]
    return list({(job.folder, job.compared): job for job in jobs}.values())


def run_jobs(
    jobs: Sequence[Job],
    *,
    at_once: int = 1,
    apart: bool | None = None,
    progress: Progress | None = None,
    finished: Callable[[Job], object] = lambda job: None,
) -> list[Path]:
    """Train every job, prerequisites first.

    Args:
        jobs: What to train.
        at_once: Number of parallel runs.
        apart: Run every job in a child process that writes its output to a log file; by default
            only if `at_once` is larger than 1.
        progress: Receives messages; printed by default.
        finished: Called with every job that has finished.

    Returns:
        The folders of the runs that diverged, and of those that depend on them. All other runs
        are finished.
    """
    progress, apart = progress or Printed(), at_once > 1 if apart is None else apart
    diverged: list[Path] = []

    def run(numbered: tuple[int, Job]) -> tuple[Job, str | None]:
        number, job = numbered
        note = " (finished before)" if job.finished else f" (log: {_log(job)})" if apart else ""
        progress.say(f"[{number}/{len(jobs)}] {job.folder}{note}")
        return job, run_job(job, apart=apart)

    for compared in (False, True):
        wave = []
        for number, job in enumerate(jobs, start=1):
            lost = {*map(str, job.keywords.values())} & {*map(str, diverged)} if compared else set()
            if lost:
                progress.warn(
                    f"{job.folder} was skipped: it starts from {', '.join(lost)}, which diverged"
                )
                diverged.append(job.folder)
            elif job.compared is compared:
                wave.append((number, job))
        for job, reason in run_all(run, wave, at_once=at_once):
            if reason is not None:
                progress.warn(f"{job.folder}: {reason}")
                diverged.append(job.folder)
                continue
            finished(job)
            if at_once > 1:
                progress.say(f"finished: {job.folder}")
    return diverged


def run_all(
    work: Callable[[Item], Result], items: Sequence[Item], *, at_once: int
) -> Iterator[Result]:
    """Apply `work` to every item, `at_once` of them in parallel threads.

    An error or Ctrl-C terminates the child processes, which save a checkpoint before they exit.
    """
    if at_once == 1:
        yield from map(work, items)
        return
    try:
        with ThreadPoolExecutor(at_once) as pool:
            futures = [pool.submit(work, item) for item in items]
            try:
                # In order of completion, so that an error is raised as soon as it happens
                for future in as_completed(futures):
                    yield future.result()
            except BaseException as error:
                for future in futures:
                    future.cancel()
                with _starting:  # no thread starts another process after this
                    _stopping.set()
                for child in list(_children):
                    child.terminate()
                if isinstance(error, KeyboardInterrupt):
                    from longtail.engine.stopping import Stopped

                    raise Stopped(
                        "stopped; everything is saved. Run the same command to resume"
                    ) from None
                raise
    finally:
        _stopping.clear()  # all threads of the pool have ended


def run_job(job: Job, *, apart: bool = False) -> str | None:
    """Train a job, in this process or a child process. Returns the reason if it diverged."""
    if apart and not job.finished:
        return _run_in_child(job)
    from longtail import processes
    from longtail.core import NonFinite
    from longtail.engine.stopping import Stopped
    from longtail.runs import train

    with _here:
        try:
            train(**job.call())
            processes.barrier()  # the first process writes last, and the next run may read it
        except NonFinite as error:
            return str(error)
        except Stopped:  # its message explains how to resume a single run
            raise Stopped(_stopped_message(job)) from None
    return None


_here = threading.Lock()  # torch's threads and random generators are global to the process
_children: set[subprocess.Popen[bytes]] = set()
_starting, _stopping = threading.Lock(), threading.Event()


def _stopped_message(job: Job) -> str:
    return f"{job.folder} was stopped and is saved; run the same command to resume"


def _log(job: Job) -> Path:
    return RunFolder(job.folder).log


def _run_in_child(job: Job) -> str | None:
    log = _log(job)
    log.parent.mkdir(parents=True, exist_ok=True)
    with log.open("ab") as file, _starting:
        if _stopping.is_set():
            raise ChildProcessError(
                f"{job.folder} was not started because another run failed: "
                "run the same command to resume"
            )
        # In a new session Ctrl-C reaches only this process, which then terminates its children.
        child = subprocess.Popen(
            [sys.executable, "-P", "-m", "longtail.experiments.jobs"],
            stdin=subprocess.PIPE,
            stdout=file,
            stderr=file,
            start_new_session=True,
        )
        _children.add(child)
    assert child.stdin is not None
    try:
        # Broken if the child was terminated before it read the line: its exit code says so.
        with suppress(BrokenPipeError), child.stdin as line:
            line.write(json.dumps(job.call(), default=str).encode() + b"\n")
            line.flush()
            child.wait()
    finally:  # the end of stdin tells the child that nobody waits for its result: it saves
        code = child.wait()
        _children.discard(child)
    if code == 0:
        return None
    lines = log.read_text(encoding="utf-8", errors="replace").strip().splitlines()
    last = lines[-1] if lines else f"exit code {code}"
    if code == DIVERGED:
        return last
    if code in (STOPPED, -signal.SIGTERM):
        from longtail.engine.stopping import Stopped

        raise Stopped(_stopped_message(job))
    message = f"{job.folder} failed: {last.removeprefix('error: ')} (its output is in {log})"
    # Other failures, such as lack of memory or disk, do not depend on the keywords.
    raise LongtailError(message) if code == REFUSED else ChildProcessError(message)


def _child() -> None:
    """Entry point of a child process: train what one line of JSON on stdin describes.

    It saves and stops when its parent is gone.
    """
    request = json.loads(sys.stdin.buffer.readline())
    threading.Thread(target=_stop_with_parent, daemon=True).start()
    from longtail.core import NonFinite
    from longtail.runs import train

    try:
        train(**request)
    except Exception as error:
        message = explained(error)
        if message is None:
            raise
        print(message[0], flush=True)
        sys.exit(
            DIVERGED
            if isinstance(error, NonFinite)
            else REFUSED
            if isinstance(error, LongtailError)
            else message[1]
        )


def _stop_with_parent() -> None:
    os.read(0, 1)  # nothing more is sent: returns when the parent closes its end
    os.kill(os.getpid(), signal.SIGTERM)


if __name__ == "__main__":
    _child()
