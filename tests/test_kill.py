"""The whole command, killed with SIGKILL and started again: what it leaves is equal to the bit."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np

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
    whole = start(tmp_path / "whole")
    # Saved at every step, so that the kill falls between, or into, writes.
    for at, workers in ((8, "0"), (17, "2")):
        dying = start(tmp_path / "killed", "--save-every", "0", "--workers", workers)
        checkpoint, deadline = tmp_path / "killed" / "train" / "last.pt", time.monotonic() + 120
        saved = 0
        seen = None
        while saved < at and time.monotonic() < deadline and dying.poll() is None:
            if checkpoint.exists() and (now := checkpoint.stat().st_mtime_ns) != seen:
                seen, saved = now, saved + 1
            time.sleep(0.001)
        dying.send_signal(signal.SIGKILL)
        assert dying.wait() == -signal.SIGKILL, "it ended before it could be killed"
    assert start(tmp_path / "killed", "--workers", "1").wait() == 0
    assert whole.wait() == 0
    assert left_behind(tmp_path / "killed") == left_behind(tmp_path / "whole")
