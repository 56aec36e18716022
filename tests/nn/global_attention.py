"""One process of a group that attends over everybody's rows; started by test_batchformer.py."""

import sys

import torch
import torch.distributed as dist

from longtail.nn import BatchFormer

if __name__ == "__main__":
    rank, world_size, store, out = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3], sys.argv[4]
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{store}", rank=rank, world_size=world_size)
    torch.manual_seed(0)
    batchformer = BatchFormer(8, layers=2, dropout=0.0, scope="global").double()
    rows = torch.randn(7, 8, dtype=torch.float64)
    share = (rows[:3], rows[3:])[rank].clone().requires_grad_()  # unequal shares
    doubled, target = batchformer(share, torch.arange(7)[:3] if rank == 0 else torch.arange(7)[3:])
    doubled.square().mul(torch.arange(1.0, 9.0)).sum().backward()
    weights = torch.cat([p.grad.flatten() for p in batchformer.parameters() if p.grad is not None])
    dist.all_reduce(weights)
    torch.save(
        {"doubled": doubled.detach(), "target": target, "rows": share.grad, "weights": weights},
        f"{out}/{rank}.pt",
    )
    dist.destroy_process_group()
