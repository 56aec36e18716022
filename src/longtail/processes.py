"""Helpers for training in several processes (see `torch.distributed`)."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from typing import Any, TypeVar, cast

import torch
import torch.distributed as dist
from torch import Tensor

Result = TypeVar("Result")


def rank() -> int:
    """The rank of this process; 0 if it is the only one."""
    return dist.get_rank() if dist.is_available() and dist.is_initialized() else 0


def world_size() -> int:
    """The number of processes that train together."""
    return dist.get_world_size() if dist.is_available() and dist.is_initialized() else 1


def gather(rows: Tensor) -> Tensor:
    """Concatenate every process's rows, in rank order; the number of rows may differ.

    Differentiable: each process gets the sum of all processes' gradients for its rows.

    >>> gather(torch.arange(3)).tolist()
    [0, 1, 2]
    """
    if world_size() == 1:
        return rows
    if rows.requires_grad and torch.is_grad_enabled():
        return cast(Tensor, _Gather.apply(rows))
    return _concatenate(rows, _row_counts(rows))


def first_row(rows: Tensor) -> int:
    """The index of this process's first row in the result of `gather`."""
    return 0 if world_size() == 1 else sum(_row_counts(rows)[: rank()])


def _row_counts(rows: Tensor) -> list[int]:
    """The number of rows of each process."""
    counts = [torch.zeros(1, dtype=torch.long, device=rows.device) for _ in range(world_size())]
    dist.all_gather(counts, torch.tensor([len(rows)], device=rows.device))
    return [int(count) for count in counts]


def _concatenate(rows: Tensor, counts: list[int]) -> Tensor:
    padded = rows.new_zeros((max(counts), *rows.shape[1:]))
    padded[: len(rows)] = rows
    parts = [torch.empty_like(padded) for _ in counts]
    dist.all_gather(parts, padded)
    return torch.cat([part[:count] for part, count in zip(parts, counts, strict=True)])


class _Gather(torch.autograd.Function):
    """All processes' rows; in backward, the sum of all gradients for this process's rows."""

    @staticmethod
    def forward(ctx: Any, rows: Tensor) -> Tensor:
        counts = _row_counts(rows)
        start = sum(counts[: rank()])
        ctx.rows = slice(start, start + len(rows))
        return _concatenate(rows, counts)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> Tensor:
        total = gradients[0].clone(memory_format=torch.contiguous_format)
        dist.all_reduce(total)
        return total[ctx.rows]


def all_gather_object(value: Any) -> list[Any]:
    """Collect a small picklable value from every process, in rank order.

    >>> all_gather_object({"loss": 0.5})
    [{'loss': 0.5}]
    """
    if world_size() == 1:
        return [value]
    values: list[Any] = [None] * world_size()
    dist.all_gather_object(values, value)
    return values


def any_rank(flag: bool, device: torch.device | str = "cpu") -> bool:
    """True in every process as soon as it is true in one."""
    if world_size() == 1:
        return flag
    votes = torch.tensor(int(flag), device=device)
    dist.all_reduce(votes, op=dist.ReduceOp.MAX)
    return bool(votes)


def barrier() -> None:
    """Wait until every process is here."""
    if world_size() > 1:
        dist.barrier()


def in_first(work: Callable[[], Result]) -> Result:
    """Call `work` in the first process only, and return its result in all.

    The other processes wait. An error is raised in all of them.

    >>> in_first(lambda: 3)
    3
    """
    if world_size() == 1:
        return work()
    sent: list[Any] = [None]
    if rank() == 0:
        try:
            sent = [(work(), None)]
        except Exception as error:
            sent = [(None, _sendable(error))]
            dist.broadcast_object_list(sent)
            raise
    dist.broadcast_object_list(sent)
    result, reason = sent[0]
    if reason is not None:
        raise reason
    return cast(Result, result)


def _sendable(error: Exception) -> Exception:
    """The error, or one with its message where it cannot be pickled."""
    try:
        pickle.loads(pickle.dumps(error))
    except Exception:
        return RuntimeError(f"{type(error).__name__}: {error}")
    return error
