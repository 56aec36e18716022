"""What a part needs to know when several processes train together (see `torch.distributed`)."""

from __future__ import annotations

from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor


def rank() -> int:
    """This process's number, 0 when alone."""
    return dist.get_rank() if dist.is_available() and dist.is_initialized() else 0


def world_size() -> int:
    """How many processes train together."""
    return dist.get_world_size() if dist.is_available() and dist.is_initialized() else 1


def gather(rows: Tensor) -> Tensor:
    """Concatenate every process's rows, in rank order; the number of rows may differ. No gradient.

    >>> gather(torch.arange(3)).tolist()
    [0, 1, 2]
    """
    if world_size() == 1:
        return rows
    sizes = [torch.zeros(1, dtype=torch.long, device=rows.device) for _ in range(world_size())]
    dist.all_gather(sizes, torch.tensor([len(rows)], device=rows.device))
    longest = int(torch.stack(sizes).max())
    padded = rows.new_zeros((longest, *rows.shape[1:]))
    padded[: len(rows)] = rows
    parts = [torch.empty_like(padded) for _ in range(world_size())]
    dist.all_gather(parts, padded)
    return torch.cat([part[: int(size)] for part, size in zip(parts, sizes, strict=True)])


def all_gather_object(value: Any) -> list[Any]:
    """What every process has, in rank order: small things that can be pickled.

    >>> all_gather_object({"loss": 0.5})
    [{'loss': 0.5}]
    """
    if world_size() == 1:
        return [value]
    found: list[Any] = [None] * world_size()
    dist.all_gather_object(found, value)
    return found


def any_rank(flag: bool, device: torch.device | str = "cpu") -> bool:
    """True in every process as soon as it is true in one."""
    if world_size() == 1:
        return flag
    votes = torch.tensor(int(flag), device=device)
    dist.all_reduce(votes, op=dist.ReduceOp.MAX)
    return bool(votes)
