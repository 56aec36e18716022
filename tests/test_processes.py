"""Alone, a process is the first of one; two of them gather their rows with gradients."""

import os
import subprocess
import sys
from pathlib import Path

import torch
from children import ended

from longtail import processes


def test_alone_there_is_one_process_and_nothing_to_wait_for() -> None:
    rows = torch.arange(3)
    assert (processes.rank(), processes.world_size()) == (0, 1)
    assert processes.gather(rows) is rows
    assert processes.first_row(rows) == 0
    assert processes.any_rank(True)
    assert not processes.any_rank(False)


def test_two_processes_gather_rows_with_the_gradient_of_both_losses(tmp_path: Path) -> None:
    script = Path(__file__).with_name("gathering.py")
    environment = {
        **os.environ,
        "PYTHONPATH": str(Path(__file__).parents[1] / "src"),
        "OMP_NUM_THREADS": "1",
        "GLOO_SOCKET_IFNAME": "lo",
    }
    both = [
        subprocess.Popen(
            [sys.executable, str(script), str(rank), str(tmp_path / "store"), str(tmp_path)],
            env=environment,
        )
        for rank in (0, 1)
    ]
    with ended(*both):
        assert [process.wait(timeout=120) for process in both] == [0, 0]
    rows = torch.arange(10.0, dtype=torch.float64).view(5, 2).requires_grad_()
    products = (rows @ rows.T).tril()
    (products.sin() + (2 * products).sin()).sum().backward()
    assert rows.grad is not None
    for rank, part in enumerate((slice(0, 2), slice(2, 5))):
        got = torch.load(tmp_path / f"{rank}.pt", weights_only=True)
        assert torch.equal(got["gathered"], rows.detach())
        assert torch.allclose(got["gradient"], rows.grad[part])
        assert got["start"] == part.start
        assert not got["plain"]
