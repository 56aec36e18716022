"""Training in several processes, with torchrun and DistributedDataParallel.

Operations over the rows of a batch use the rows of their process only: batch-norm (see
`--sync-batchnorm`), mixup, BatchFormer (unless its scope is global) and the weighted mean of a
re-weighted loss. Queues get the rows of all processes.
"""

from __future__ import annotations

import contextlib
import importlib
import inspect
import itertools
import os
import statistics
from collections.abc import Callable, Collection, Iterator
from datetime import timedelta
from functools import cache
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.distributed_c10d import PrefixStore, Store
from torch.distributed.rendezvous import rendezvous
from torch.nn.modules.batchnorm import _BatchNorm
from torch.nn.parallel import DistributedDataParallel

from longtail import processes
from longtail.core import Average, Clock, Method, Outcome
from longtail.engine.machine import Machine

# How long other processes wait while the first one prepares a large dataset
PATIENCE = timedelta(hours=3)
Forward = Callable[[Any, Clock], Outcome]


_groups = itertools.count()  # of this process


@cache
def _rendezvous() -> tuple[Store, int, int]:
    """The store by which the processes find each other, the rank and the number of processes."""
    return next(rendezvous("env://", timeout=PATIENCE))  # type: ignore[no-any-return]


@contextlib.contextmanager
def started(machine: Machine) -> Iterator[Machine]:
    """Join the process group if torchrun started this process, and leave it at the end."""
    if "WORLD_SIZE" not in os.environ or dist.is_initialized():
        yield machine
        return
    if machine.device == "cuda":
        torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
    # The default arguments of its functions are the process group at the time of the import, which
    # DDP does later: imported now, they refer to none. Otherwise they would keep our group alive
    # after its end, and its threads would still run when the interpreter exits.
    importlib.import_module("torch.distributed.nn")
    store, rank, world_size = _rendezvous()
    dist.init_process_group(
        "cpu:gloo,cuda:nccl" if machine.device == "cuda" else "gloo",
        timeout=PATIENCE,
        # A second group of the same processes must not read the addresses of the first
        store=PrefixStore(f"group{next(_groups)}", store),
        rank=rank,
        world_size=world_size,
    )
    try:
        yield machine
    finally:
        dist.destroy_process_group()


def wrapped(
    method: Method[Any], machine: Machine
) -> tuple[Forward, Callable[[], contextlib.AbstractContextManager[Any]]]:
    """Return a forward whose gradients are averaged over processes, and a context without that."""
    if processes.world_size() == 1:
        return method, contextlib.nullcontext
    if machine.sync_batchnorm:
        nn.SyncBatchNorm.convert_sync_batchnorm(method)
    # Buffers are broadcast before they are read (`share_statistics`): DDP would overwrite queues
    # at every step.
    known = inspect.signature(DistributedDataParallel).parameters
    # Renamed in torch 2.15
    buffers: dict[str, Any] = {
        "forward_sync_buffers" if "forward_sync_buffers" in known else "broadcast_buffers": False
    }
    # If networks alternate, those that are not trained in this step have no gradient.
    parallel = DistributedDataParallel(
        method, find_unused_parameters=method.steps_per_round > 1, **buffers
    )
    return parallel, parallel.no_sync


def share_statistics(method: nn.Module, averages: Collection[Average] = ()) -> None:
    """Broadcast the batch-norm statistics of the first process, including those in averages."""
    if processes.world_size() == 1:
        return
    for prefix, module in method.named_modules():
        if isinstance(module, _BatchNorm):
            for name, buffer in module.named_buffers(recurse=False):
                dist.broadcast(buffer, src=0)
                for average in averages:
                    if (mean := average.weights().get(f"{prefix}.{name}")) is not None:
                        dist.broadcast(mean, src=0)


def mean_over_processes(values: dict[str, float]) -> dict[str, float]:
    """Average named numbers over the processes that have them.

    A term may exist for some rows only.
    """
    per_rank = processes.all_gather_object(values)
    names = dict.fromkeys(name for numbers in per_rank for name in numbers)
    return {
        name: statistics.fmean(numbers[name] for numbers in per_rank if name in numbers)
        for name in names
    }
