"""Commands over several runs, in one of two processes; started by test_jobs.py under torchrun."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import torch

from longtail import processes
from longtail.cli.main import app
from longtail.errors import LongtailError
from longtail.experiments import sweeps
from longtail.experiments.jobs import is_first_process, process_group
from longtail.experiments.search import search

QUICK = ["--device", "cpu", "--threads", "1"]


def command(*words: object) -> None:
    app([*map(str, words)], standalone_mode=False)


def reproduce(out: Path, *settings: str) -> None:
    words = [word for setting in settings for word in ("--set", setting)]
    row = "cifar100-lt-balanced-softmax-batchformer"
    command("reproduce", row, "--smoke", "--seeds", "0,1", "--out", out, *words, *QUICK)


def interrupt(run: Path) -> None:
    """As if it had been killed before its row was written."""
    with process_group():
        if is_first_process():
            (run / "row.json").unlink()
        processes.barrier()


def fail() -> None:
    raise LongtailError("only the first process reads this")


if __name__ == "__main__":
    torch.set_num_threads(1)
    out = Path(sys.argv[1])
    for _ in range(2):
        reproduce(out / "row", "epochs=1")
        before = (out / "row" / "seed=0" / "row.json").stat().st_mtime_ns
        interrupt(out / "row" / "seed=1")
    reproduce(out / "row", "epochs=1")
    assert (out / "row" / "seed=0" / "row.json").stat().st_mtime_ns == before

    for _ in range(2):
        table = ("reproduce", "--table", "batchformer-10", "--run", "--smoke", "--seeds", "0")
        command(*table, "--set", "epochs=1", "--out", out / "table", *QUICK)

    result = sweeps.sweep(
        "balanced_softmax",
        "digits-lt",
        grid={"epochs": [1], "lr": [0.1, 1e30]},
        out=out / "sweep",
        device="cpu",
        threads=1,
    )
    assert len(result.runs) == len(result.diverged) == 1, result
    for trials in (1, 2):
        searched = search(
            "balanced_softmax",
            "digits-lt",
            {"tau": "0..1"},
            trials=trials,
            settings={"epochs": 1},
            out=out / "search",
            device="cpu",
            threads=1,
        )
    with process_group("cpu"):
        try:
            processes.in_first(fail)
        except LongtailError as error:
            refused = str(error)
        everywhere = processes.all_gather_object((str(searched.best), searched.value, refused))
    assert len(everywhere) == 2, everywhere
    assert len({*everywhere}) == 1, everywhere
    (out / f"ended-{os.environ['RANK']}").touch()
