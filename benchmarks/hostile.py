"""Run hundreds of hostile commands, and check how each of them ends.

    python benchmarks/hostile.py [--only WORD] [--jobs 2] [--work FOLDER] [--fresh]

Every case of `benchmarks/hostile_cases` runs `longtail` as a process in a folder of its own. It is
handled if it ends with the exit code that the case declares, prints the message that it declares
and no traceback, loses no file, leaves no process behind, and stays within the limits of time and
memory. The results are written to FOLDER/results.jsonl as they come in; the same command again runs
what is missing or failed. Prints tried, handled and failed; exits with 1 if any failed.
"""

from __future__ import annotations

import argparse
import fnmatch
import hashlib
import importlib
import json
import os
import pkgutil
import re
import resource
import shutil
import signal
import stat
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from pathlib import Path

import hostile_cases
from hostile_cases import QUICK, Case, Place, Running, write_photos

SECONDS = 20.0
MEGABYTES = 2000.0
LEAST, LEAST_OF_A_VERB, LEAST_OF_A_POINT = 300, 10, 5

POINTS = {
    1: "the label cache and the disk",
    2: "workers and errors",
    3: "writers, devices and links",
    4: "unreadable folders",
    5: "files that are no files, extreme images",
    6: "labels that are ids",
    7: "broken neighbours",
    8: "broken run folders",
    9: "foreign parquet",
    10: "killed before the report",
    11: "absurd numbers",
    12: "the working folder as a module path",
    13: "recipes that a run folder names",
    14: "the server",
    15: "control characters and formulas",
    16: "messages",
    17: "exports",
    18: "claims about leaks",
    19: "permissions, time limits, sizes",
    20: "domain trees and joined labels",
}

# A message longer than this is no sentence.
_LONGEST = 1500
_TRACES = ("most recent call last", "Exception ignored in", "Fatal Python error", "SIGSEGV")


@dataclass(frozen=True)
class Result:
    """How a case ended; `reason` is empty if it was handled."""

    case: str
    verb: str
    point: int
    reason: str
    code: int | None
    seconds: float
    megabytes: float
    output: str = ""
    processor: float = 0.0  # seconds; a busy machine makes `seconds` longer, not these

    @property
    def handled(self) -> bool:
        return not self.reason


def cases() -> list[Case]:
    """All cases of all modules in `hostile_cases`, by module."""
    found: list[Case] = []
    for module in sorted(info.name for info in pkgutil.iter_modules(hostile_cases.__path__)):
        found += importlib.import_module(f"hostile_cases.{module}").CASES
    twice = [name for name, count in Counter(case.name for case in found).items() if count > 1]
    assert not twice, f"two cases have the name {twice[0]}"
    return found


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--only", action="append", help="A part of a case's name, or its verb.")
    parser.add_argument("--point", type=int, action="append", choices=POINTS)
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--work", type=Path, default=Path(tempfile.gettempdir()) / "hostile")
    parser.add_argument("--fresh", action="store_true", help="Forget earlier results.")
    parser.add_argument(
        "--seconds", type=float, default=SECONDS, help="More on a machine that is busy otherwise."
    )
    flags = parser.parse_args()
    work: Path = flags.work.resolve()
    work.mkdir(parents=True, exist_ok=True)
    results = work / "results.jsonl"
    if flags.fresh:
        results.unlink(missing_ok=True)
        shutil.rmtree(work / "fixtures", ignore_errors=True)
    chosen = [
        case
        for case in cases()
        if (not flags.only or any(word in case.name or word == case.verb for word in flags.only))
        and (not flags.point or case.point in flags.point)
    ]
    if not chosen:
        parser.error("no case matches")
    earlier = read_results(results)
    missing = [case for case in chosen if case.name not in earlier or earlier[case.name].reason]
    fixtures = make_fixtures(work / "fixtures")
    writing = threading.Lock()

    def perform(case: Case) -> None:
        result = run_case(case, work / "cases" / case.name, fixtures, seconds=flags.seconds)
        with writing, results.open("a", encoding="utf-8") as file:
            file.write(json.dumps(asdict(result)) + "\n")
            mark = "ok    " if result.handled else "FAILED"
            print(f"{mark} {case.name} ({result.seconds:.1f} s) {result.reason}", flush=True)

    with ThreadPoolExecutor(flags.jobs) as pool:
        list(pool.map(perform, missing))
    now = read_results(results)
    complete = not flags.only and not flags.point
    sys.exit(summarize([now[case.name] for case in chosen], complete=complete))


def read_results(path: Path) -> dict[str, Result]:
    """The latest result of each case."""
    if not path.exists():
        return {}
    lines = path.read_text(encoding="utf-8").splitlines()
    return {(result := Result(**json.loads(line))).case: result for line in lines}


def summarize(results: Iterable[Result], *, complete: bool) -> int:
    """Print how many cases were handled; 1 if some failed, or if there are too few."""
    results = list(results)
    failed = [result for result in results if not result.handled]
    verbs, points = (Counter(r.verb for r in results), Counter(r.point for r in results))
    print("verbs: " + ", ".join(f"{verb} {count}" for verb, count in sorted(verbs.items())))
    print("points: " + ", ".join(f"{point}: {points[point]}" for point in POINTS))
    for result in failed:
        print(f"FAILED {result.case}: {result.reason}\n    {result.output[-400:]!r}")
    slowest = max(results, key=lambda result: result.seconds)
    largest = max(results, key=lambda result: result.megabytes)
    print(f"slowest: {slowest.case}, {slowest.seconds:.1f} s")
    busiest = max(results, key=lambda result: result.processor)
    print(f"most processor time: {busiest.case}, {busiest.processor:.1f} s")
    print(f"largest: {largest.case}, {largest.megabytes:,.0f} MB")
    print(f"tried {len(results)}, handled {len(results) - len(failed)}, failed {len(failed)}")
    few = [f"{verb}: {verbs[verb]}" for verb in _verbs() if verbs[verb] < LEAST_OF_A_VERB]
    few += [
        f"point {point}: {points[point]}" for point in POINTS if points[point] < LEAST_OF_A_POINT
    ]
    few += [f"cases: {len(results)}"] if len(results) < LEAST else []
    if complete and few:
        print("too few: " + ", ".join(few))
    return int(bool(failed) or (complete and bool(few)))


def _verbs() -> tuple[str, ...]:
    from longtail.cli.main import VERBS

    return VERBS


def run_case(case: Case, folder: Path, fixtures: Path, *, seconds: float = SECONDS) -> Result:
    """Run a case in a new folder, which is removed if it was handled."""
    _remove(folder)
    place = Place(folder / "here", fixtures)
    (folder / "home").mkdir(parents=True)
    place.folder.mkdir()
    if case.disk is not None:
        (place / "small").mkdir()
        flags = f"size={case.disk}"
        subprocess.run(["mount", "-t", "tmpfs", "-o", flags, "tmpfs", place / "small"], check=True)
    try:
        return _run(case, place, folder, seconds=seconds)
    finally:
        if case.disk is not None:
            subprocess.run(["umount", "--lazy", place / "small"], check=True)
        _remove(folder)


def _run(case: Case, place: Place, folder: Path, *, seconds: float) -> Result:
    case.setup(place)
    before = snapshot(place.folder)
    started = time.monotonic()
    stdout, stderr = folder / "stdout", folder / "stderr"
    with open(case.stdout or stdout, "wb") as out, stderr.open("wb") as err:
        process = subprocess.Popen(
            [*_command(case), *case.argv],
            cwd=place.folder,
            env=_environment(case, folder / "home"),
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=err,
            start_new_session=True,
        )
    stdout.touch()
    problems: list[str] = []
    watching = threading.Thread(
        target=_act, args=(case, place, process, stdout, stderr, problems, seconds / SECONDS)
    )
    watching.start()
    largest = processor = 0.0
    while (code := process.poll()) is None:
        members = _session(process.pid)
        largest = max(largest, sum(map(_megabytes, members)))
        processor = max(processor, sum(map(_processor_seconds, members)))
        if time.monotonic() - started > seconds:
            problems.append(f"took more than {seconds:g} s")
        if largest > MEGABYTES:
            problems.append(f"took more than {MEGABYTES:g} MB")
        if time.monotonic() - started > seconds or largest > MEGABYTES:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
            break
        time.sleep(0.05)
    took = time.monotonic() - started
    watching.join()
    problems += _left(process.pid)
    output = Running(process.pid, stdout, stderr).output()
    if not problems:
        problems += problems_of(
            case, place, code, output, stderr.read_text("utf-8", errors="replace")
        )
        problems += lost(before, snapshot(place.folder), case.may_change)
    return Result(
        case.name, case.verb, case.point, "; ".join(problems), code, round(took, 2),
        round(largest), output[-2000:] if problems else "", round(processor, 2),
    )  # fmt: skip


def _act(
    case: Case,
    place: Place,
    process: subprocess.Popen[bytes],
    stdout: Path,
    stderr: Path,
    problems: list[str],
    patience: float,
) -> None:
    try:
        case.during(place, Running(process.pid, stdout, stderr, patience))
    except Exception as error:
        problems.append(f"while it ran: {type(error).__name__}: {error}")
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)


def problems_of(case: Case, place: Place, code: int | None, output: str, stderr: str) -> list[str]:
    """What is wrong with the exit code, the message and what the command left."""
    problems = [f"printed {text!r}" for text in _TRACES if text in output]
    if code != case.code:
        problems.append(f"expected exit code {case.code}, got {code}")
    if not re.search(case.message, output, re.DOTALL):
        problems.append(f"expected a message like {case.message!r}")
    if case.code == hostile_cases.USAGE and not problems:
        # typer frames what it refuses itself
        _, _, message = stderr.partition("error: ")
        if not message and "Usage:" not in stderr:
            problems.append("no line begins with `error: `")
        if len(message) > _LONGEST:
            problems.append(f"the message has {len(message):,} characters")
    try:
        case.check(place, output)
    except Exception as error:
        problems.append(f"{type(error).__name__}: {error}")
    return problems


def snapshot(folder: Path) -> dict[str, str]:
    """Every path in a folder with a digest of what is there."""
    paths = {}
    for path in sorted(folder.rglob("*")):
        status = path.lstat()
        if stat.S_ISLNK(status.st_mode):
            content = os.readlink(path)
        elif stat.S_ISREG(status.st_mode) and status.st_size < 1 << 24:
            content = hashlib.sha256(path.read_bytes()).hexdigest()
        elif stat.S_ISREG(status.st_mode):
            content = f"{status.st_size} {status.st_mtime_ns}"
        else:
            content = str(stat.S_IFMT(status.st_mode))
        paths[str(path.relative_to(folder))] = content
    return paths


def lost(
    before: Mapping[str, str], after: Mapping[str, str], may_change: Iterable[str]
) -> list[str]:
    """Files that were there and are gone or changed, except those that may."""
    patterns = tuple(may_change)
    return [
        f"{path} was {'changed' if path in after else 'lost'}"
        for path, content in before.items()
        if after.get(path) != content
        and not any(fnmatch.fnmatch(path, pattern) for pattern in patterns)
    ]


def _command(case: Case) -> list[str]:
    program = [str(Path(sys.executable).with_name("longtail"))]
    if case.unprivileged and os.geteuid() == 0:
        rights = "-dac_override,-dac_read_search"
        return ["setpriv", "--bounding-set", rights, *program]
    return program


def _environment(case: Case, home: Path) -> dict[str, str]:
    environment = {
        **os.environ,
        "HOME": str(home),
        "XDG_CACHE_HOME": str(home / ".cache"),
        "OMP_NUM_THREADS": "1",
        "COLUMNS": "200",
        **{name: value for name, value in case.env.items() if value is not None},
    }
    return {
        name: value for name, value in environment.items() if case.env.get(name, "") is not None
    }


def _session(leader: int) -> list[int]:
    """The processes of a session that are alive."""
    members = []
    for name in os.listdir("/proc"):
        try:
            if name.isdigit() and os.getsid(int(name)) == leader:
                state = Path("/proc", name, "stat").read_text().rpartition(")")[2].split()[0]
                members += [int(name)] if state != "Z" else []
        except OSError:
            continue
    return members


def _megabytes(pid: int) -> float:
    try:
        pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    except (OSError, IndexError):
        return 0.0
    return pages * resource.getpagesize() / 1e6


def _processor_seconds(pid: int) -> float:
    """The processor time of a process and of its children that ended."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except (OSError, IndexError):
        return 0.0
    return sum(map(int, fields[11:15])) / os.sysconf("SC_CLK_TCK")


def _left(leader: int) -> list[str]:
    """Processes that outlive the command by two seconds; they are killed."""
    deadline = time.monotonic() + 2
    while members := _session(leader):
        if time.monotonic() > deadline:
            for pid in members:
                os.kill(pid, signal.SIGKILL)
            return [f"left {len(members)} processes behind"]
        time.sleep(0.05)
    return []


def make_fixtures(folder: Path) -> Path:
    """Train the finished runs that cases start from, once: on small images of three classes."""
    if (folder / "made").exists():
        return folder
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    photos = write_photos(folder / "photos")
    program = str(Path(sys.executable).with_name("longtail"))
    for name, recipe in (("run", "cross_entropy"), ("other", "balanced_softmax")):
        subprocess.run(
            [program, "train", recipe, "--data", str(photos), "--out", str(folder / name), *QUICK],
            check=True,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            env={**os.environ, "OMP_NUM_THREADS": "1"},
        )
    (folder / "made").touch()
    return folder


def _remove(folder: Path) -> None:
    if folder.exists():
        shutil.rmtree(folder)


if __name__ == "__main__":
    main()
