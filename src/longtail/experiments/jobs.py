"""Runs to do, one after another or side by side. Finished ones are not run again; those that stopped continue."""

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
from typing import Any, TypeVar

from longtail.cli import tables
from longtail.errors import LongtailError
from longtail.recipes.signatures import Recipe
from longtail.records.layout import RunFolder

Item = TypeVar("Item")
Result = TypeVar("Result")
FIRST = "first"  # the folder of runs that others begin with
DIVERGED, REFUSED, STOPPED = 3, 4, 130  # exit codes of a process of its own


@dataclass(frozen=True)
class Job:
    """One run of many."""

    recipe: Recipe
    data: str
    seed: int
    folder: Path
    keywords: Mapping[str, Any]
    flags: Mapping[str, Any]  # of the data and the machine
    compared: bool = True  # False: others begin with it

    def call(self) -> dict[str, Any]:
        """What `longtail.train` is called with."""
        own = {
            "recipe": self.recipe.target,
            "data": self.data,
            "out": str(self.folder),
            "seed": self.seed,
        }
        return {**own, **self.flags, **self.keywords}

    @property
    def finished(self) -> bool:
        """Whether its row was written."""
        return RunFolder(self.folder).is_finished


def machine(flags: Mapping[str, Any], at_once: int) -> dict[str, Any]:
    """The flags of each of so many runs at once: beside others, a run has one thread unless it was given more."""
    if at_once < 1:
        raise LongtailError(f"expected --jobs of at least 1, got {at_once}")
    return {**flags, "threads": 1 if at_once > 1 and flags["threads"] is None else flags["threads"]}


def perform(jobs: Sequence[Job], *, at_once: int = 1) -> list[Path]:
    """Train every job, those that others begin with first.

    Which diverged is given back, with those that would have begun with them; they did not keep the others from running.
    """
    diverged: list[Path] = []

    def one(numbered: tuple[int, Job]) -> tuple[Job, str | None]:
        number, job = numbered
        known = (
            " (finished before)" if job.finished else f" (log: {_log(job)})" if at_once > 1 else ""
        )
        tables.say(f"[{number}/{len(jobs)}] {job.folder}{known}")
        return job, do(job, apart=at_once > 1)

    for late in (False, True):
        wave = []
        for number, job in enumerate(jobs, start=1):
            lost = {*map(str, job.keywords.values())} & {*map(str, diverged)} if late else set()
            if lost:
                tables.warn(f"{job.folder}: it begins with {', '.join(lost)}, which diverged")
                diverged.append(job.folder)
            elif job.compared is late:
                wave.append((number, job))
        for job, reason in run_all(one, wave, at_once=at_once):
            if reason is not None:
                tables.warn(f"{job.folder}: {reason}")
                diverged.append(job.folder)
            elif at_once > 1:
                tables.say(f"finished: {job.folder}")
    return diverged


def run_all(
    work: Callable[[Item], Result], items: Sequence[Item], *, at_once: int
) -> Iterator[Result]:
    """Do some work for every item, for so many at once. An error or Ctrl-C stops what runs; all of it has saved when this ends."""
    if at_once == 1:
        yield from map(work, items)
        return
    try:
        with ThreadPoolExecutor(at_once) as pool:
            futures = [pool.submit(work, item) for item in items]
            try:
                for future in as_completed(
                    futures
                ):  # an error is heard when it happens, not when all before have ended
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


def do(job: Job, *, apart: bool = False) -> str | None:
    """Train a job to its end, here or in a process of its own. Says why, where it diverged."""
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
        except Stopped:  # its own advice is how to continue one run
            raise Stopped(_continue(job)) from None
    return None


_here = threading.Lock()  # torch's threads and generators belong to the whole process
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
                f"{job.folder} was not begun, for another run has failed: the same command does the rest"
            )
        # A session of its own, so that Ctrl-C reaches this process alone, which then asks its children to save.
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
        with (
            child.stdin as line
        ):  # stays open as long as this process lives, and tells the child so
            line.write(json.dumps(job.call(), default=str).encode() + b"\n")
            line.flush()
            code = child.wait()
    finally:
        _children.discard(child)
    if code == 0:
        return None
    said = log.read_text(encoding="utf-8", errors="replace").strip().splitlines()
    last = said[-1] if said else f"it ended with code {code}"
    if code == DIVERGED:
        return last
    if code in (STOPPED, -signal.SIGTERM):
        from longtail.engine.stopping import Stopped

        raise Stopped(_continue(job))
    said_all = f"{job.folder} failed: {last.removeprefix('error: ')} (all it said is in {log})"
    # Anything else, such as no memory, no disk or a kill, is no fault of its keywords.
    raise LongtailError(said_all) if code == REFUSED else ChildProcessError(said_all)


def _child() -> None:
    """A process of its own: one line of JSON says what to train. It saves and stops when its parent is gone."""
    asked = json.loads(sys.stdin.buffer.readline())
    threading.Thread(target=_watch, daemon=True).start()
    from longtail.cli.main import explained
    from longtail.core import NonFinite
    from longtail.runs import train

    try:
        train(**asked)
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
