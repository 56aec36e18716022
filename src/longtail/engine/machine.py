"""Where a run computes: device, precision, threads, loader workers."""

from __future__ import annotations

import contextlib
import ctypes
import subprocess
import sys
from dataclasses import dataclass
from functools import cache
from typing import Any, Literal

import torch
from torch import Tensor, nn

from longtail.errors import LongtailError

Device = Literal["auto", "cpu", "cuda", "mps"]
Precision = Literal["auto", "fp32", "bf16"]


@dataclass(frozen=True)
class Machine:
    """What a run may use of this computer. Changes speed, and results only by rounding."""

    device: str = "cpu"
    precision: Literal["fp32", "bf16"] = "fp32"
    threads: int = 1
    workers: int = 0
    channels_last: bool = True
    compile: bool = False
    sync_batchnorm: bool = False

    def configure(self) -> None:
        """Set this process up for it."""
        torch.set_num_threads(self.threads)
        if self.device == "cpu":
            keep_freed_memory()

    def place_module(self, method: nn.Module) -> None:
        """Move a method here, in place."""
        method.to(self.device)
        if self.channels_last:
            method.to(memory_format=torch.channels_last)

    def place_batch(self, batch: Any) -> Any:
        """Move a batch here."""
        return {
            name: self._tensor(value) if isinstance(value, Tensor) else value
            for name, value in batch.items()
        }

    def _tensor(self, value: Tensor) -> Tensor:
        layout = (
            torch.channels_last if self.channels_last and value.ndim == 4 else torch.preserve_format
        )
        return value.to(self.device, non_blocking=True, memory_format=layout)

    def autocast(self) -> contextlib.AbstractContextManager[Any]:
        """Mixed precision where it was chosen."""
        if self.precision == "fp32":
            return contextlib.nullcontext()
        return torch.autocast(torch.device(self.device).type, dtype=torch.bfloat16)


def compile_parts(method: nn.Module) -> None:
    """Compile a method's parts in place, each as large as can be called: compiling the method
    itself would rename every key.
    """
    for part in method.children():
        # A part that is not called, but holds some that are
        if type(part).forward is nn.Module.forward:
            compile_parts(part)
        else:
            part.compile()


def keep_freed_memory() -> bool:
    """Let the allocator keep what a step frees, for the next step asks for it again; says whether
    it
    listened.

    glibc hands large blocks back to the system, and a step on a CPU then pays for fresh pages.
    Other allocators are left as they are."""
    try:
        tune = ctypes.CDLL(None).mallopt
    except (AttributeError, OSError, TypeError):  # no such function, no such loader
        return False
    mmap_threshold, trim_threshold = -3, -1  # glibc's malloc.h
    # Each the largest that it takes
    return bool(tune(mmap_threshold, 32 << 20) and tune(trim_threshold, 2**31 - 1))


@cache
def bf16_works(device: str) -> bool:
    """Whether a bf16 product runs here. Asked in a child process, for some CPUs answer with a fatal
    signal.
    """
    probe = (
        f"import torch; a = torch.ones(64, 64, dtype=torch.bfloat16, device={device!r}); assert (a"
        " @ a).float().sum().item() == 64.0**3"
    )
    return (
        subprocess.run([sys.executable, "-c", probe], capture_output=True, check=False).returncode
        == 0
    )


def devices() -> list[str]:
    """The devices that torch can use here, the fastest first."""
    found = ["cuda"] * torch.cuda.is_available() + ["mps"] * torch.backends.mps.is_available()
    return [*found, "cpu"]


def choose(
    *,
    device: Device | str = "auto",
    precision: Precision = "auto",
    threads: int | None = None,
    workers: int = 0,
    compile: bool = False,
    sync_batchnorm: bool = False,
) -> Machine:
    """Choose a machine: the fastest device, and bf16 where it is both safe and fast (CUDA), unless
    told otherwise.
    """
    kind = devices()[0] if device == "auto" else device
    if kind.partition(":")[0] not in devices():
        raise LongtailError(
            f"expected a device that is here ({', '.join(devices())}), got {kind!r}: choose one of"
            " them or 'auto'"
        )
    if threads is not None and threads < 1:
        raise LongtailError(f"expected at least one thread, got {threads}")
    if workers < 0:
        raise LongtailError(f"expected 0 or more loader workers, got {workers}")
    if precision == "bf16" and not bf16_works(kind):
        raise LongtailError(
            f"bf16 products fail on this {kind} (tried in a child process): use --precision fp32"
        )
    if sync_batchnorm and kind.partition(":")[0] != "cuda":
        raise LongtailError(
            f"torch has SyncBatchNorm on cuda only, got {kind}: leave --sync-batchnorm out"
        )
    mixed = precision == "bf16" or (
        precision == "auto" and kind.startswith("cuda") and bf16_works(kind)
    )
    return Machine(
        device=kind,
        precision="bf16" if mixed else "fp32",
        threads=threads or torch.get_num_threads(),
        workers=workers,
        channels_last=not kind.startswith("mps"),
        compile=compile,
        sync_batchnorm=sync_batchnorm,
    )
