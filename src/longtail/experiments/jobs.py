"""Run the arms of an experiment, one after another or side by side.

Finished runs are not run again; those that stopped continue.
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
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol, TypeVar

from longtail.data.request import data_flags
from longtail.errors import LongtailError, explained
from longtail.experiments.spec import Arm, Experiment, parse_setting
from longtail.naming import unknown
from longtail.recipes.signatures import RESERVED, Recipe, read
from longtail.records.layout import RunFolder

Item = TypeVar("Item")
Result = TypeVar("Result")
DIVERGED, REFUSED, STOPPED = 3, 4, 130  # exit codes of a run in its own process


class Progress(Protocol):
    """Where an experiment tells what it does; the command line passes its tables."""

    def say(self, text: str) -> None:
        """Tell what is done."""

    def warn(self, text: str) -> None:
        """Tell what went wrong, where the rest goes on."""

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
    """Progress as plain lines, of the first process alone."""

    def say(self, text: str) -> None:
        """Print a line."""
        if is_first_process():
            print(text, flush=True)

    def warn(self, text: str) -> None:
        """Print a line to stderr."""
        if is_first_process():
            print(f"warning: {text}", file=sys.stderr, flush=True)

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
    """Whether this process prints and writes for all that `torchrun` started."""
    return os.environ.get("RANK", "0") == "0"


@dataclass(frozen=True)
class Job:
    """One run of many."""

    recipe: Recipe
    data: str
    seed: int
    folder: Path
    keywords: Mapping[str, Any]
    flags: Mapping[str, Any]  # of the data and the machine
    compared: bool = True  # False: others start from it

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
        """Whether its row was written."""
        return RunFolder(self.folder).is_finished


def default_folder(what: str, data: str | Path = "", *more: object) -> Path:
    """Where runs go unless a folder is given: runs/WHAT-DATA-MORE."""
    names = [Path(data).resolve().name] if data else []
    return Path("runs") / "-".join([what, *names, *map(str, more)])


def check_flags(flags: Mapping[str, Any], at_once: int = 1) -> dict[str, Any]:
    """Flags that all runs share; beside others, a run has one thread unless given more."""
    known = RESERVED - {"recipe", "data", "out", "seed", "view_seed", "dry_run", "debug", "help"}
    for name in flags:
        if name not in known:
            more = "; keywords of a recipe go into `grid` or `settings`"
            raise unknown("data or run flag", name, known, more=more)
    if at_once < 1:
        raise LongtailError(f"expected --jobs of at least 1, got {at_once}")
    alone = at_once == 1 or flags.get("threads") is not None
    return {**flags} if alone else {**flags, "threads": 1}


def run_folder(arm: Arm, seed: int, folder: Path) -> Path:
    """The folder of an arm's run, in that of its experiment."""
    return folder / arm.folder.replace("{seed}", str(seed if arm.seed is None else arm.seed))


def settings_of(experiment: Experiment, arm: Arm, seed: int, folder: Path) -> dict[str, Any]:
    """The settings of an arm's run, with the folders of its prerequisites and its seed filled in."""
    settings = {}
    for name, value in arm.settings.items():
        if isinstance(value, str) and value[1:-1] in experiment.prerequisites:
            value = str(run_folder(experiment.prerequisites[value[1:-1]], seed, folder))
        settings[name] = value.replace("{seed}", str(seed)) if isinstance(value, str) else value
    return settings


def jobs_of(experiment: Experiment, folder: Path) -> list[Job]:
    """The runs of an experiment: prerequisites, then every arm with every seed. Checks all
    settings.
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
    """Train every job, those that others start from first.

    Args:
        jobs: What to train.
        at_once: How many side by side.
        apart: Whether each run has its own process, with its output in a log file beside its
            folder; only where there are several at once unless given.
        progress: Where to tell what is done; printed unless given.
        finished: Called with each job that has reached its end.

    Returns:
        The folders of the runs that diverged, and of those that would have started from them. They
        did not keep the others from running.
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
                progress.warn(f"{job.folder}: it starts from {', '.join(lost)}, which diverged")
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
    """Do some work for every item, for so many at once.

    An error or Ctrl-C stops what runs; all of it has saved when this ends.
    """
    if at_once == 1:
        yield from map(work, items)
        return
    try:
        with ThreadPoolExecutor(at_once) as pool:
            futures = [pool.submit(work, item) for item in items]
            try:
                # As they end: an error is raised when it happens, not when all before have ended.
                for future in as_completed(futures):
                    yield future.result()
            except BaseException as error:
                for future in futures:
                    future.cancel()
                with _starting:  # no thread of the pool begins another process from here on
                    _stopping.set()
                for child in list(_children):
                    child.terminate()
                if isinstance(error, KeyboardInterrupt):
                    from longtail.engine.stopping import Stopped

                    raise Stopped(
                        "stopped; everything is saved. The same command continues"
                    ) from None
                raise
    finally:
        _stopping.clear()  # every thread of the pool has ended


def run_job(job: Job, *, apart: bool = False) -> str | None:
    """Train a job to its end, here or in its own process. Gives the reason if it diverged."""
    if apart and not job.finished:
        return _apart(job)
    from longtail.core import NonFinite
    from longtail.engine.stopping import Stopped
    from longtail.runs import train

    with _here:
        try:
            train(**job.call())
        except NonFinite as error:
            return str(error)
        except Stopped:  # whose message is how to continue one run
            raise Stopped(_continue(job)) from None
    return None


_here = threading.Lock()  # torch's threads and generators belong to the process
_children: set[subprocess.Popen[bytes]] = set()
_starting, _stopping = threading.Lock(), threading.Event()


def _continue(job: Job) -> str:
    return (
        f"{job.folder} was stopped and has saved; the same command continues it and does the rest"
    )


def _log(job: Job) -> Path:
    return RunFolder(job.folder).log


def _apart(job: Job) -> str | None:
    log = _log(job)
    log.parent.mkdir(parents=True, exist_ok=True)
    with log.open("ab") as file, _starting:
        if _stopping.is_set():
            raise ChildProcessError(
                f"{job.folder} was not started, for another run has failed: "
                "the same command does the rest"
            )
        # In a new session Ctrl-C reaches this process alone, which then makes its children save.
        child = subprocess.Popen(
            [sys.executable, "-m", "longtail.experiments.jobs"],
            stdin=subprocess.PIPE,
            stdout=file,
            stderr=file,
            start_new_session=True,
        )
        _children.add(child)
    try:
        assert child.stdin is not None
        with child.stdin as line:  # closed when this process ends, which tells the child so
            line.write(json.dumps(job.call(), default=str).encode() + b"\n")
            line.flush()
            code = child.wait()
    finally:
        _children.discard(child)
    if code == 0:
        return None
    lines = log.read_text(encoding="utf-8", errors="replace").strip().splitlines()
    last = lines[-1] if lines else f"it ended with code {code}"
    if code == DIVERGED:
        return last
    if code in (STOPPED, -signal.SIGTERM):
        from longtail.engine.stopping import Stopped

        raise Stopped(_continue(job))
    message = f"{job.folder} failed: {last.removeprefix('error: ')} (its output is in {log})"
    # Anything else, such as no memory, no disk or a kill, is no fault of its keywords.
    raise LongtailError(message) if code == REFUSED else ChildProcessError(message)


def _child() -> None:
    """The process of a run: one line of JSON says what to train. It saves and stops when its parent
    is gone.
    """
    request = json.loads(sys.stdin.buffer.readline())
    threading.Thread(target=_watch, daemon=True).start()
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


def _watch() -> None:
    os.read(0, 1)  # nothing more is ever sent: it returns when the other end is closed
    os.kill(os.getpid(), signal.SIGTERM)


if __name__ == "__main__":
    _child()
