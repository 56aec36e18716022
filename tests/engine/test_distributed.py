"""Two processes train as one, judge exactly, and stop together."""

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

from longtail.engine.journal import Journal
from longtail.records.files import read_lines

SCRIPT = Path(__file__).with_name("several_processes.py")


def launch(kind: str, out: Path, *, processes: int) -> list[dict[str, Any]]:
    out.mkdir(exist_ok=True)
    launcher = (
        ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(processes)]
        if processes > 1
        else []
    )
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "GLOO_SOCKET_IFNAME": "lo"}
    environment["PYTHONPATH"] = str(SCRIPT.parents[2] / "src")
    done = subprocess.run(
        [sys.executable, *launcher, str(SCRIPT), kind, str(out)],
        env=environment,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return [
        torch.load(out / f"{rank}-of-{processes}.pt", weights_only=True)
        for rank in range(processes)
    ]


def lines(out: Path) -> list[dict[str, Any]]:
    """The journal, but for times."""
    journal = read_lines(out / "run" / "s" / "journal.jsonl")
    return [
        {name: value for name, value in line.items() if name not in Journal.TIMES}
        for line in journal
    ]


# sam with two batches a step; moco with queues, keys and a BatchFormer of all processes
@pytest.mark.parametrize("kind", ["sgd", "muon", "sam", "moco_v2", "moco_v3"])
def test_two_processes_of_32_rows_train_as_one_of_64(tmp_path: Path, kind: str) -> None:
    (alone,) = launch(kind, tmp_path / "one", processes=1)
    first, second = launch(kind, tmp_path / "two", processes=2)
    for name, value in alone["state"].items():
        assert torch.equal(first["state"][name], second["state"][name]), (
            f"{name} differs between the processes"
        )
        torch.testing.assert_close(first["state"][name], value, rtol=1e-5, atol=1e-6)
    assert first["index"].tolist() == second["index"].tolist() == list(range(500)), (
        "each test image once, in order"
    )
    torch.testing.assert_close(first["logits"], alone["logits"], rtol=1e-4, atol=1e-5)

    one, two = (
        read_lines(tmp_path / which / "run" / "s" / "journal.jsonl") for which in ("one", "two")
    )
    assert len(one) == len(two) == 4
    for a, b in zip(one, two, strict=True):
        compared = set(a) - {"kind", "notes/rank", *Journal.TIMES}
        assert {name: a[name] for name in compared} == pytest.approx(
            {name: b[name] for name in compared}, rel=1e-4
        )


def test_players_that_alternate_stay_equal_in_two_processes(tmp_path: Path) -> None:
    (alone,) = launch("alternate", tmp_path / "one", processes=1)
    first, second = launch("alternate", tmp_path / "two", processes=2)
    assert first["moved"].tolist() == [2, 5, 8, 11, 14, 17]
    for name, value in alone["state"].items():
        assert torch.equal(first["state"][name], second["state"][name])
        torch.testing.assert_close(first["state"][name], value, rtol=1e-5, atol=1e-6)


def test_numbers_are_averaged_and_statistics_are_those_of_the_first_process(tmp_path: Path) -> None:
    first, second = launch("norm", tmp_path / "two", processes=2)
    for line in read_lines(tmp_path / "two" / "run" / "s" / "journal.jsonl"):
        assert (line["notes/rank"], line["notes/second"]) == (
            0.5,
            3.0,
        ), "means are over the processes that have a number"
    for average in ("ema", "swad"):
        assert "network.1.running_var" in first[average]
        for name, tensor in first[average].items():
            assert torch.equal(tensor, second[average][name]), "processes share the evaluation"


def test_a_signal_to_one_process_stops_all_and_they_go_on_as_if_it_had_not(tmp_path: Path) -> None:
    first, second = launch("signal", tmp_path / "two", processes=2)
    messages = {(tmp_path / "two" / f"stopped-{rank}").read_text() for rank in (0, 1)}
    assert len(messages) == 1
    assert "stopped after step 8 of 20" in messages.pop()
    assert all(torch.equal(first["state"][name], second["state"][name]) for name in first["state"])
    saved = torch.load(tmp_path / "two" / "run" / "s" / "last.pt", weights_only=True)
    assert saved["step"] == 8
    assert all(torch.equal(saved["method"][name], first["state"][name]) for name in first["state"])

    resumed = launch("sgd", tmp_path / "two", processes=2)
    complete = launch("sgd", tmp_path / "whole", processes=2)
    assert lines(tmp_path / "two") == lines(tmp_path / "whole"), (
        "each process goes on with its own means"
    )
    for result, other in zip(resumed, complete, strict=True):
        assert all(
            torch.equal(result["state"][name], other["state"][name]) for name in result["state"]
        )
