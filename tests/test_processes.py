"""Alone, a process is the first of one; together they are tested in tests/engine/test_distributed.py."""

import torch

from longtail import processes


def test_alone_there_is_one_process_and_nothing_to_wait_for() -> None:
    rows = torch.arange(3)
    assert (processes.rank(), processes.world_size()) == (0, 1)
    assert processes.gather(rows) is rows
    assert processes.any_rank(True)
    assert not processes.any_rank(False)
