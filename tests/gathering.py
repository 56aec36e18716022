"""One process of a group that gathers rows; started by test_processes.py."""

import sys

import torch
import torch.distributed as dist

from longtail.processes import first_row, gather

if __name__ == "__main__":
    rank, store, out = int(sys.argv[1]), sys.argv[2], sys.argv[3]
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{store}", rank=rank, world_size=2)
    rows = torch.arange(10.0, dtype=torch.float64).view(5, 2)
    share = rows[[slice(0, 2), slice(2, 5)][rank]].clone().requires_grad_()
    gathered = gather(share)
    # Each process has a loss of its own, which couples all rows.
    ((gathered @ gathered.T).tril() * (rank + 1)).sin().sum().backward()
    with torch.no_grad():
        plain = gather(share)
    torch.save(
        {
            "gathered": gathered.detach(),
            "gradient": share.grad,
            "start": first_row(share),
            "plain": plain.requires_grad,
        },
        f"{out}/{rank}.pt",
    )
    dist.destroy_process_group()
