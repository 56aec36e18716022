"""The whole command, killed with SIGKILL and started again: what it leaves is equal to the bit."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from children import ended

from longtail.engine.journal import Journal
from longtail.records.files import read_lines

TRAIN = (
    "train",
    "balanced_softmax",
    "--data",
    "digits-lt",
    "--epochs",
    "6",
    "--batch",
    "64",
    "--augment",
    "randaugment",
    "--mixup",
    "0.3",
)


def start(out: Path, *flags: str) -> subprocess.Popen[bytes]:
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    code = "from longtail.cli.main import run; run()"
    command = [
        sys.executable,
        "-c",
        code,
        *TRAIN,
        "--out",
        str(out),
        "--threads",
        "1",
        "--device",
        "cpu",
        *flags,
    ]
    return subprocess.Popen(
        command, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )


def left_behind(out: Path) -> tuple[object, ...]:
    lines = [
        {k: v for k, v in line.items() if k not in Journal.TIMES}
        for line in read_lines(out / "train" / "journal.jsonl")
    ]
    with np.load(out / "predictions" / "test.npz") as file:
        logits = file["logits"].tobytes()
    weights = next((out / "model").glob("*.safetensors")).read_bytes()
    return lines, logits, weights, json.loads((out / "row.json").read_text())["test"]


def test_killed_twice_and_resumed_with_other_workers_equals_the_uninterrupted_run(
    tmp_path: Path,
) -> None:
    complete = start(tmp_path / "whole")
    with ended(complete):
        # Saved at every step, so that the kill falls between, or into, writes.
        for at, workers in ((8, "0"), (17, "2")):
            dying = start(tmp_path / "killed", "--save-every", "0", "--workers", workers)
            with ended(dying):
                checkpoint = tmp_path / "killed" / "train" / "last.pt"
                deadline = time.monotonic() + 120
                saved = 0
                seen = None
                while saved < at and time.monotonic() < deadline and dying.poll() is None:
                    if checkpoint.exists() and (now := checkpoint.stat().st_mtime_ns) != seen:
                        seen, saved = now, saved + 1
                    time.sleep(0.001)
                dying.send_signal(signal.SIGKILL)
                assert dying.wait() == -signal.SIGKILL, "it ended before it could be killed"
        resumed = start(tmp_path / "killed", "--workers", "1")
        with ended(resumed):
            assert resumed.wait() == 0
        assert complete.wait() == 0
    assert left_behind(tmp_path / "killed") == left_behind(tmp_path / "whole")


HARM = """
import multiprocessing, os, signal, sys, time
import torch
from longtail.cli.main import run
from longtail.engine import fit

gradient, kind = fit.gradient, sys.argv.pop(1)

def harmed(context, batches, clock):
    if clock.step == 3:
        workers = [child.pid for child in multiprocessing.active_children()]
        print("workers", *workers, flush=True)
        if kind == "worker":
            os.kill(workers[0], signal.SIGKILL)
            time.sleep(20)  # torch raises an error in here
        if kind == "torch":
            torch.empty(1 << 60)
        raise {"memory": MemoryError, "defect": KeyError}[kind]("x")
    return gradient(context, batches, clock)

fit.gradient = harmed
run()
"""


@pytest.mark.parametrize(
    ("kind", "code", "message"),
    [
        ("worker", 2, "error: a loader worker ended, as workers do if the machine runs out of"),
        ("memory", 2, "error: not enough memory (x): use a smaller --batch"),
        ("torch", 2, "error: not enough memory (can't allocate memory"),
        ("defect", 1, "KeyError: 'x'"),
    ],
)
def test_every_way_out_ends_the_workers(kind: str, code: int, message: str, tmp_path: Path) -> None:
    ended = subprocess.run(
        [sys.executable, "-c", HARM, kind, *TRAIN, "--workers", "2", "--out", tmp_path / "run"],
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=120,  # it waited for its workers for ever
        check=False,
    )
    assert ended.returncode == code
    assert message in ended.stderr
    last = ended.stderr.strip().splitlines()[-1]
    if code == 2:
        assert "Traceback" not in ended.stderr
        assert last.endswith("fewer --workers; the same command resumes")
    workers = ended.stdout.split()[1:]
    assert len(workers) == 2
    assert not any(Path(f"/proc/{worker}").exists() for worker in workers)
