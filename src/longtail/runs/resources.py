"""The memory and disk that a stage needs at least, estimated before anything is trained."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.nn.modules.module import register_module_parameter_registration_hook
from torch.overrides import TorchFunctionMode

from longtail import processes
from longtail.core import Method, Stage
from longtail.data.batches import PairedBatches, StepsPerEpoch
from longtail.data.loader import TrainLoader
from longtail.data.views import TwoViews
from longtail.errors import LongtailError
from longtail.records.cache import free_space, size_text

LARGE = 1 << 28  # bytes of a tensor from which on the free memory is checked before it is made
JOURNAL_LINE = 300  # bytes of an epoch in the journal, at least
PER_INPUT = 500  # bytes of activations for a byte of images: few networks have as many
COPIES = 3  # of a batch of images: as it is read, its view, and the mix of it


@dataclass(frozen=True)
class Needs:
    """Bytes that a stage needs at least.

    `weights` are those of the method; `training` are gradients, the state of the optimizer,
    averages and a batch of images, `COPIES` times; `activations` are what a step keeps for its
    backward pass, if that could matter; `disk` is for a checkpoint and the one that replaces it,
    and the journal.
    """

    parameters: int
    weights: int
    training: int
    activations: int
    disk: int

    def __str__(self) -> str:
        parts = [
            f"{self.parameters:,} parameters",
            f"at least {size_text(self.weights + self.training + self.activations)} of memory",
            f"up to {size_text(self.disk)} on disk",
        ]
        return ", ".join(parts)


def needs_of(stage: Stage[Any]) -> Needs:
    """Estimate what a stage needs; unknown parts are left out."""
    parameters = {id(tensor): tensor for tensor in stage.method.parameters()}
    trainable = sum(_size(p) for p in parameters.values() if p.requires_grad)
    weights = sum(map(_size, [*parameters.values(), *stage.method.buffers()]))
    averages = trainable * len(stage.averages)
    shape = batch_shape(stage.data)
    inputs = 4 * torch.Size(shape).numel() if shape else 0
    return Needs(
        parameters=sum(p.numel() for p in parameters.values()),
        weights=weights,
        training=trainable + averages + COPIES * inputs,
        activations=activations(stage.method, shape) if shape and inputs * PER_INPUT > LARGE else 0,
        disk=2 * (weights + averages) + JOURNAL_LINE * stage.epochs,
    )


def check_needs(stage: Stage[Any], *, device: str, folder: Path) -> Needs:
    """Raise unless memory and disk have room for a stage, before it is trained."""
    needs, free = needs_of(stage), free_memory(device)
    rest = needs.training + needs.activations  # the weights are in memory already
    if free is not None and rest > free:
        parts = f"{size_text(needs.training)} for gradients, averages and a batch of images"
        parts += f", {size_text(needs.activations)} for activations" * bool(needs.activations)
        raise LongtailError(
            f"stage {stage.name!r} needs at least {size_text(rest)} of memory beside"
            f" {needs.parameters:,} parameters ({parts}), and {size_text(free)} are free: use a"
            " smaller --batch (--accumulate keeps the effective batch), --size or network"
        )
    parent = next(path for path in (folder.absolute(), *folder.absolute().parents) if path.is_dir())
    if needs.disk > free_space(parent):
        raise LongtailError(
            f"stage {stage.name!r} writes up to {size_text(needs.disk)} (a checkpoint twice, and"
            f" the journal of {stage.epochs:,} epochs), and {size_text(free_space(parent))} are"
            f" free for {folder}: use another --out, fewer epochs or a smaller network"
        )
    return needs


def batch_shape(batches: Any) -> tuple[int, ...] | None:
    """The shape (N, 3, H, W) of the images of a batch in this process; None if it is not known."""
    if isinstance(batches, StepsPerEpoch):
        return batch_shape(batches.batches)
    if isinstance(batches, PairedBatches):
        shapes = [batch_shape(part) for part in (batches.first, *batches.others.values())]
        known = [shape for shape in shapes if shape]
        return (sum(shape[0] for shape in known), *known[0][1:]) if known else None
    if not isinstance(batches, TrainLoader) or batches.split.inputs.vectors() is not None:
        return None
    rows = min(batches.batch, len(batches.split)) // processes.world_size()
    views = 2 if isinstance(batches.view, TwoViews) else 1
    return (rows * views, 3, batches.view.size, batches.view.size)


def activations(method: Method[Any], shape: tuple[int, ...]) -> int:
    """The bytes that a forward pass of the network on such images keeps for its backward pass.

    Only shapes are computed: no memory is allocated. A method whose predictions need values, or
    have no gradient, counts as zero.
    """
    kept: dict[int, Any] = {}  # the storages stay alive, so that no id is used twice

    def keep(tensor: Tensor) -> Tensor:
        storage = tensor.untyped_storage()
        kept[storage._cdata] = storage
        return tensor

    tensors = {**dict(method.named_parameters()), **dict(method.named_buffers())}
    try:
        # No size is checked here: nothing is allocated
        with torch._C.DisableTorchFunction(), FakeTensorMode() as mode:
            weights: dict[str, Tensor] = {
                f"method.{name}": mode.from_tensor(tensor) for name, tensor in tensors.items()
            }
            image = torch.empty(shape, device=next(method.parameters()).device)
            with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
                torch.func.functional_call(_Predict(method), weights, image)
    except (RuntimeError, NotImplementedError, StopIteration, AssertionError, TypeError):
        return 0
    fixed = {tensor.untyped_storage()._cdata for tensor in weights.values()}
    return sum(storage.nbytes() for pointer, storage in kept.items() if pointer not in fixed)


class _Predict(nn.Module):
    """Predictions as a forward pass, whose weights can be replaced."""

    def __init__(self, method: Method[Any]) -> None:
        super().__init__()
        self.method = method

    def forward(self, image: Tensor) -> Tensor:
        return self.method.predict(image)


def free_memory(device: str) -> int | None:
    """The bytes of memory that a device has free; None if it is not known."""
    if device.startswith("cuda"):
        return int(torch.cuda.mem_get_info(torch.device(device))[0])
    if device != "cpu":
        return None
    try:
        text = Path("/proc/meminfo").read_text(encoding="ascii")
    except OSError:
        return _all_memory()
    fields = dict(line.split(":", 1) for line in text.splitlines() if ":" in line)
    free = sum(int(fields.get(name, "0").split()[0]) << 10 for name in ("MemAvailable", "SwapFree"))
    limits = [n for n in (_limit_of_group(), _limit_of_process(), free) if n is not None]
    return min(limits) or None


def _all_memory() -> int | None:
    try:
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (AttributeError, OSError, ValueError):  # Windows
        return None


def _limit_of_group() -> int | None:
    """What the memory limit of a container or a batch job leaves."""
    try:
        group = Path("/proc/self/cgroup").read_text(encoding="utf-8").strip().rpartition(":")[2]
        folder = Path("/sys/fs/cgroup") / group.lstrip("/")
        limit, used = ((folder / f"memory.{name}").read_text() for name in ("max", "current"))
        return max(int(limit) - int(used), 1)
    except (OSError, ValueError):  # no version 2 of groups, or "max"
        return None


def _limit_of_process() -> int | None:
    """What `ulimit -v` leaves; None without a limit."""
    import resource  # not on Windows, which has no /proc/meminfo either

    limit, _ = resource.getrlimit(resource.RLIMIT_AS)
    if limit == resource.RLIM_INFINITY:
        return None
    pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[0])
    return max(limit - pages * resource.getpagesize(), 1)


class _CheckedSizes(TorchFunctionMode):
    """Refuse a tensor that takes more than half of the free memory, before it is made.

    What is trained has a gradient, and what is not, such as a queue, is normalised and saved.
    """

    def __torch_function__(
        self,
        func: Any,
        types: Any,
        args: tuple[Any, ...] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        keywords = dict(kwargs or {})
        if func in _FACTORIES:
            with torch._C.DisableTorchFunctionSubclass():
                shape = _shape_of(args, keywords)
            size = 4 * shape.numel()
            if size > LARGE:
                check_room(2 * size, f"a tensor of {' x '.join(map(str, shape))}")
        return func(*args, **keywords)


_FACTORIES = (torch.empty, torch.zeros, torch.ones, torch.randn, torch.rand, torch.full)


def _shape_of(args: tuple[Any, ...], keywords: Mapping[str, Any]) -> torch.Size:
    given = keywords.get("size", args[0] if args and not isinstance(args[0], int) else args)
    try:
        return torch.Size(given)
    except TypeError:
        return torch.Size((0,))


def check_room(size: int, what: str) -> None:
    """Raise unless this many bytes of memory are free."""
    free = free_memory("cpu")
    if free is not None and size > free:
        raise LongtailError(
            f"{what} would need at least {size_text(size)} of memory to train, and"
            f" {size_text(free)} are free: use smaller numbers, such as widths, queues or --size"
        )


@contextmanager
def checked_sizes() -> Iterator[None]:
    """Within it, weights that memory has no room for are refused before they are allocated."""
    total = 0

    def add(module: nn.Module, name: str, parameter: nn.Parameter | None) -> None:
        nonlocal total
        if parameter is not None and parameter.requires_grad:
            total += _size(parameter)
            if total > LARGE and _size(parameter) > LARGE >> 8:
                check_room(_size(parameter) + total, f"a network of {total // 4:,} parameters")

    handle = register_module_parameter_registration_hook(add)
    try:
        with _CheckedSizes():
            yield
    finally:
        handle.remove()


def _size(tensor: Tensor) -> int:
    return tensor.numel() * tensor.element_size()
