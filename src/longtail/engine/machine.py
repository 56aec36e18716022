"""The hardware settings of a run: device, precision, threads, loader workers."""

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


MOST_THREADS = 4096
"""More than any machine has; torch takes larger numbers and fails later, or hangs."""


@dataclass(frozen=True)
class Machine:
    """The hardware settings of a run. They change speed, and results only by rounding."""

    device: str = "cpu"
    precision: Literal["fp32", "bf16"] = "fp32"
    threads: int = 1
    workers: int = 0
    channels_last: bool = True
    compile: bool = False
    sync_batchnorm: bool = False

    def configure(self) -> None:
        """Apply the settings to this process."""
        torch.set_num_threads(self.threads)
        if self.device == "cpu":
            keep_freed_memory()

    def place_module(self, method: nn.Module) -> None:
        """Move a module to the device, in place."""
        method.to(self.device)
        if self.channels_last:
            method.to(memory_format=torch.channels_last)

    def place_batch(self, batch: Any) -> Any:
        """Move a batch to the device."""
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
        """A context for mixed precision, if it was chosen."""
        if self.precision == "fp32":
            return contextlib.nullcontext()
        return torch.autocast(torch.device(self.device).type, dtype=torch.bfloat16)


def compile_parts(method: nn.Module) -> None:
    """Compile the submodules of a method in place.

    Compiling the method itself would rename every key of its state dict.
    """
    for part in method.children():
        # A container that is not called itself, such as a ModuleList
        if type(part).forward is nn.Module.forward:
            compile_parts(part)
        else:
            part.compile()


def keep_freed_memory() -> bool:
    """Make glibc's allocator keep freed memory for the next step; return whether that worked.

    By default glibc returns large blocks to the system, and every step on a CPU then pays for fresh
    pages. Other allocators are not changed.
    """
    try:
        tune = ctypes.CDLL(None).mallopt
    except (AttributeError, OSError, TypeError):  # not glibc, or no dynamic loader
        return False
    mmap_threshold, trim_threshold = -3, -1  # glibc's malloc.h
    # The largest values that glibc accepts
    return bool(tune(mmap_threshold, 32 << 20) and tune(trim_threshold, 2**31 - 1))


@cache
def bf16_works(device: str) -> bool:
    """Whether a bf16 matrix product works on this device.

    Tested in a child process, because some CPUs raise a fatal signal.
    """
    probe = (
        f"import torch; a = torch.ones(64, 64, dtype=torch.bfloat16, device={device!r}); assert (a"
        " @ a).float().sum().item() == 64.0**3"
    )
    # -P: nothing is imported from the current folder, which may be a stranger's
    process = subprocess.run([sys.executable, "-P", "-c", probe], capture_output=True, check=False)
    return process.returncode == 0


def devices() -> list[str]:
    """The devices that torch can use on this computer, the fastest first."""
    accelerators = ["cuda"] * torch.cuda.is_available() + [
        "mps"
    ] * torch.backends.mps.is_available()
    return [*accelerators, "cpu"]


def choose(
    *,
    device: Device | str = "auto",
    precision: Precision = "auto",
    threads: int | None = None,
    workers: int = 0,
    compile: bool = False,
    sync_batchnorm: bool = False,
) -> Machine:
    """Choose the hardware settings of a run.

    Args:
        device: "auto" is the fastest device.
        precision: "auto" is bf16 where that is both safe and fast (CUDA), else fp32.
        threads: of torch on the CPU; the default is torch's.
        workers: processes that load images; 0 loads in the main process.
        compile: whether to compile the network.
        sync_batchnorm: whether batch-norm uses the rows of all processes; CUDA only.
    """
    kind = devices()[0] if device == "auto" else device
    if kind.partition(":")[0] not in devices():
        raise LongtailError(
            f"the device {kind!r} is not available: choose one of {', '.join(devices())}, or 'auto'"
        )
    if threads is not None and threads < 1:
        raise LongtailError(f"expected at least one thread, got {threads}")
    if threads is not None and threads > MOST_THREADS:
        raise LongtailError(f"expected at most {MOST_THREADS:,} threads, got {threads:,}")
    if workers < 0:
        raise LongtailError(f"expected 0 or more loader workers, got {workers}")
    if precision == "bf16" and not bf16_works(kind):
        raise LongtailError(f"bf16 does not work on this {kind}: use --precision fp32")
    if sync_batchnorm and kind.partition(":")[0] != "cuda":
        raise LongtailError(f"--sync-batchnorm needs cuda, got {kind}: remove it")
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
