"""Runs side by side: in order, all or the reason why not, and none left behind."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest
from children import ended

from longtail.engine.stopping import Stopped
from longtail.errors import LongtailError
from longtail.experiments.jobs import (
    REFUSED,
    STOPPED,
    Job,
    check_flags,
    default_folder,
    run_all,
    run_job,
    run_jobs,
)
from longtail.recipes.signatures import read
from longtail.records.files import read_lines
from longtail.records.layout import SearchFolder

FLAGS = {"threads": 1, "device": "cpu"}


def job(folder: Path, **keywords: object) -> Job:
    recipe = read("cross_entropy")
    return Job(recipe, "digits-lt", 0, folder, recipe.keywords(keywords), FLAGS)


def test_results_come_as_they_are_done() -> None:
    def work(seconds: float) -> float:
        time.sleep(seconds)
        return seconds

    assert list(run_all(work, [0.4, 0.0, 0.2], at_once=3)) == [0.0, 0.2, 0.4]
    assert list(run_all(work, [0.0], at_once=1)) == [0.0]


def test_no_run_starts_after_an_error() -> None:
    started = []

    def work(item: int) -> None:
        started.append(item)
        time.sleep(0.05)
        raise ValueError(f"item {item}")

    with pytest.raises(ValueError, match=r"item [01]"):
        list(run_all(work, range(50), at_once=2))
    assert len(started) < 10


def test_an_error_also_stops_a_process_that_has_just_started(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    python = tmp_path / "python"
    python.write_text(
        f'#!/bin/sh\nread line\ncase "$line" in *bad*) exit {REFUSED};; esac\nsleep 20\ntouch'
        f" {tmp_path}/slept\n"
    )
    python.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(python))
    with pytest.raises(ValueError, match="bad failed"):
        list(
            run_all(
                lambda one: run_job(one, apart=True),
                [job(tmp_path / name) for name in ("good", "bad", "late", "later")],
                at_once=2,
            )
        )
    assert not (tmp_path / "slept").exists()
    with pytest.raises(ValueError, match="bad failed"):  # and the next work begins as ever
        run_job(job(tmp_path / "bad"), apart=True)


def test_folders_are_named_by_the_data_wherever_it_is_seen_from(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "birds").mkdir()
    monkeypatch.chdir(tmp_path / "birds")
    assert default_folder("auto", ".", 3) == Path("runs/auto-birds-3")
    assert default_folder("livt-tau") == Path("runs/livt-tau")


def test_beside_others_a_run_has_one_thread_unless_it_was_given_more() -> None:
    assert check_flags({"threads": None}, 1) == {"threads": None}
    assert check_flags({"threads": None}, 2) == {"threads": 1}
    assert check_flags({"threads": 4}, 2) == {"threads": 4}
    with pytest.raises(ValueError, match=r"unknown data or run flag 'tau'.*in `grid`"):
        check_flags({"tau": 0.5})
    with pytest.raises(ValueError, match="unknown data or run flag 'seed'"):
        check_flags({"seed": 1})  # which would be that of every run
    with pytest.raises(ValueError, match="--jobs must be at least 1, got 0"):
        check_flags({"threads": None}, 0)


def test_those_that_others_begin_with_come_first(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    order: list[str] = []

    def fake(one: Job, *, apart: bool) -> str | None:
        order.append(one.folder.name)
        return "not finite" if one.folder.name == "a" else None

    monkeypatch.setattr("longtail.experiments.jobs.run_job", fake)
    recipe = read("cross_entropy")
    jobs = [
        Job(recipe, "digits-lt", 0, tmp_path / name, {}, {}, compared=name != "first")
        for name in ("a", "first", "b")
    ]
    assert run_jobs(jobs) == [tmp_path / "a"]
    assert order == ["first", "a", "b"]


def test_runs_that_start_from_a_diverged_run_are_left_out_and_the_others_run(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    order: list[str] = []

    def fake(one: Job, *, apart: bool) -> str | None:
        order.append(one.folder.name)
        return "not finite" if one.folder.name == "first-1" else None

    monkeypatch.setattr("longtail.experiments.jobs.run_job", fake)
    recipe = read("livt")
    jobs = [
        Job(recipe, "digits-lt", seed, tmp_path / f"first-{seed}", {}, {}, compared=False)
        for seed in (0, 1)
    ]
    jobs += [
        Job(
            recipe,
            "digits-lt",
            s,
            tmp_path / f"arm-{s}",
            {"pretrained": str(tmp_path / f"first-{s}")},
            {},
        )
        for s in (1, 0)
    ]
    assert run_jobs(jobs) == [tmp_path / "first-1", tmp_path / "arm-1"]
    assert order == ["first-0", "first-1", "arm-0"]


def test_a_separate_process_reports_that_it_diverged(tmp_path: Path) -> None:
    reason = run_job(job(tmp_path / "wild", lr=1e9, epochs=3, warmup=0.0), apart=True)
    assert reason is not None
    assert "stopped being finite" in reason


def test_a_separate_process_reports_why_it_failed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fails = tmp_path / "fails"
    fails.write_text(
        f"#!/bin/sh\nread line\necho begun\necho 'error: unknown network'\nexit {REFUSED}\n"
    )
    fails.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(fails))
    with pytest.raises(
        ValueError, match=r"bad failed: unknown network \(its output is in .*bad\.log\)"
    ):
        run_job(job(tmp_path / "bad"), apart=True)
    for end in ("exit 2", "exit 1", "kill -9 $$"):  # no disk, a fault of ours, no memory
        fails.write_text(f"#!/bin/sh\nread line\necho 'epoch 37 of 40'\n{end}\n")
        with pytest.raises(ChildProcessError, match="killed failed: epoch 37 of 40"):
            run_job(job(tmp_path / "killed"), apart=True)
    fails.write_text(f"#!/bin/sh\nread line\nexit {STOPPED}\n")
    with pytest.raises(Stopped, match="the same command to resume"):
        run_job(job(tmp_path / "stopped"), apart=True)


def test_a_process_that_ends_before_it_reads_its_job_is_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    gone, python = tmp_path / "gone", tmp_path / "python"
    python.write_text(f"#!/bin/sh\nexec 0<&-\ntouch {gone}\necho 'no memory'\nexit 9\n")
    python.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(python))

    def call(self: Job) -> dict[str, str]:
        while not gone.exists():
            time.sleep(0.01)
        return {}

    monkeypatch.setattr(Job, "call", call)
    with pytest.raises(ChildProcessError, match="run failed: no memory"):
        run_job(job(tmp_path / "run"), apart=True)


def test_a_process_whose_parent_is_gone_saves_and_stops(tmp_path: Path) -> None:
    long_job = job(tmp_path / "run", epochs=300, batch=32)
    child = subprocess.Popen(
        [sys.executable, "-m", "longtail.experiments.jobs"],
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    with ended(child):
        assert child.stdin is not None
        child.stdin.write(json.dumps(long_job.call()).encode() + b"\n")
        child.stdin.flush()
        journal = tmp_path / "run" / "train" / "journal.jsonl"
        for _ in range(1200):
            if child.poll() is not None or (journal.exists() and journal.stat().st_size):
                break
            time.sleep(0.1)
        assert child.poll() is None
        child.stdin.close()  # as when this process is killed
        assert child.wait(timeout=120) == 130
    assert (tmp_path / "run" / "train" / "last.pt").exists()
    assert not long_job.finished


SCRIPT = Path(__file__).with_name("several_commands.py")


def test_two_processes_share_commands_and_the_first_one_writes(tmp_path: Path) -> None:
    """Two seeds of a published row, again after an interruption; a table, a sweep, and a search."""
    launcher = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "GLOO_SOCKET_IFNAME": "lo"}
    environment["PYTHONPATH"] = str(SCRIPT.parents[2] / "src")
    done = subprocess.run(
        [sys.executable, *launcher, str(SCRIPT), str(tmp_path)],
        env=environment,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert {path.name for path in tmp_path.glob("ended-*")} == {"ended-0", "ended-1"}
    assert done.stdout.count("written: ") == 3 + 4  # one process evaluated; a table has two rows
    assert done.stdout.count("/row/seed=0 (finished before)") == 2
    assert done.stdout.count("batchformer-10 in percent") == 2, "one process printed the table"
    assert len([*(tmp_path / "table").glob("*/seed=0/row.json")]) == 2
    verdict = json.loads((tmp_path / "row" / "reproduce.json").read_text())
    assert [*verdict["measured"]["seeds"]] == ["0", "1"]
    assert verdict["keywords"]["batchformer_scope"] == "global"
    assert (
        "The settings are not those of the band: epochs is 1 instead of 10." in (verdict["remarks"])
    )
    assert "Batch norm saw the images of one process: 16 of each of 2 processes" in str(verdict)
    for seed, sessions in ((0, 1), (1, 3)):
        lines = read_lines(tmp_path / "row" / f"seed={seed}" / "sessions.jsonl")
        assert [line["hardware"]["processes"] for line in lines] == [2] * sessions
    # One trial of each call, sampled once
    journal = SearchFolder(tmp_path / "search").journal
    assert journal.read_text().count('"distribution"') == 2
    assert len([*(tmp_path / "search" / "trials").iterdir()]) == 2


def test_separate_processes_are_refused_under_torchrun(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WORLD_SIZE", "2")
    with pytest.raises(LongtailError, match=r"--jobs 3 starts .* torchrun has started 2"):
        check_flags({}, 3)
    check_flags({}, 1)
