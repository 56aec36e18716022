"""Several processes as one run, through torchrun and PyTorch's own engine.

What couples the rows of a batch sees the rows of its own process only: batch-norm (see
`--sync-batchnorm`), mixup, BatchFormer (unless its scope is global) and the weighted mean of a
re-weighted loss. Queues see everyone's rows."""

from __future__ import annotations

import contextlib
import importlib
import inspect
import os
import statistics
from collections.abc import Callable, Collection, Iterator
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.modules.batchnorm import _BatchNorm
from torch.nn.parallel import DistributedDataParallel

from longtail import processes
from longtail.core import Average, Clock, Method, Outcome
from longtail.engine.machine import Machine

# Of the others, while the first one reads a large set for the first time
PATIENCE = timedelta(hours=3)
Forward = Callable[[Any, Clock], Outcome]


@contextlib.contextmanager
def started(machine: Machine) -> Iterator[Machine]:
    """Join the processes that torchrun started, if it did, and leave them at the end."""
    if "WORLD_SIZE" not in os.environ or dist.is_initialized():
        yield machine
        return
    if machine.device == "cuda":
        torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
    # Its functions take as default the group that there is when they are imported, which DDP does:
    # imported now, they hold none. Otherwise they would hold ours beyond its end, and its threads
    # would still run when the interpreter is gone.
    importlib.import_module("torch.distributed.nn")
    dist.init_process_group(
        "cpu:gloo,cuda:nccl" if machine.device == "cuda" else "gloo", timeout=PATIENCE
    )
    try:
        yield machine
    finally:
        dist.destroy_process_group()


def wrapped(
    method: Method[Any], machine: Machine
) -> tuple[Forward, Callable[[], contextlib.AbstractContextManager[Any]]]:
    """A method's forward with gradients averaged over the processes, and a context in which they
    are not.
    """
    if processes.world_size() == 1:
        return method, contextlib.nullcontext
    if machine.sync_batchnorm:
        nn.SyncBatchNorm.convert_sync_batchnorm(method)
    # Buffers are broadcast by hand before they are read (`share_statistics`): DDP would write over
    # queues at every step.
    known = inspect.signature(DistributedDataParallel).parameters
    # Renamed in torch 2.15
    buffers: dict[str, Any] = {
        "forward_sync_buffers" if "forward_sync_buffers" in known else "broadcast_buffers": False
    }
    # While one player of a method that alternates learns, the others have no gradient, as intended.
    parallel = DistributedDataParallel(
        method, find_unused_parameters=method.steps_per_round > 1, **buffers
    )
    return parallel, parallel.no_sync


def share_statistics(method: nn.Module, averages: Collection[Average] = ()) -> None:
    """Give every process the first one's batch-norm statistics, also those in averages."""
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
    """Average named numbers over the processes that have them: a term may be there for some rows
    only.
    """
    found = processes.all_gather_object(values)
    names = dict.fromkeys(name for own in found for name in own)
    return {name: statistics.fmean(own[name] for own in found if name in own) for name in names}
