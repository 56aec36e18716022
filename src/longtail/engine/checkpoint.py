"""Checkpoints of a stage, written atomically."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from longtail.errors import LongtailError, torch_reason
from longtail.records.files import atomic_write, check_regular

FORMAT = 1
LIMIT = 1_000_000_000_000  # bytes; only pipes and devices are refused for certain


def save(path: Path, state: Mapping[str, Any]) -> None:
    """Save a checkpoint atomically; if that fails, the previous one stays.

    The folder has a journal by then: if it is gone, it was deleted, and is not made again.
    """
    if not path.parent.is_dir():
        raise LongtailError(
            f"{path.parent} was deleted while it was trained: run the same command again to start"
            " anew"
        )
    with atomic_write(path) as part, part.open("wb") as file:
        try:
            torch.save({"format": FORMAT, **state}, file)
        except RuntimeError as error:  # what torch raises for a full disk
            raise OSError(str(error)) from error


def load(path: Path) -> dict[str, Any]:
    """Load a checkpoint without running code from it."""
    repair = f"delete {path.parent} to train this stage again"
    try:
        check_regular(path, limit=LIMIT)
    except IsADirectoryError as error:
        raise LongtailError(f"the checkpoint {path} is a folder: {repair}") from error
    try:
        state: Any = torch.load(path, map_location="cpu", weights_only=True)
    except (OSError, MemoryError):
        raise
    except Exception as error:
        raise LongtailError(
            f"the checkpoint {path} cannot be read ({torch_reason(error)}): {repair}"
        ) from error
    if not isinstance(state, dict):
        raise LongtailError(
            f"expected a dictionary in the checkpoint {path}, got a {type(state).__name__}:"
            f" {repair}"
        )
    version = state.get("format", 0)
    if isinstance(version, int) and version > FORMAT:
        raise LongtailError(
            f"{path} has checkpoint format {version}, this version reads up to {FORMAT}:"
            " update longtail"
        )
    return state


def tensors_of(state: Mapping[str, Any], key: str, source: Path) -> dict[str, Tensor]:
    """The tensors by name in an entry of a checkpoint, which errors name as `source`."""
    weights = state.get(key)
    if not isinstance(weights, Mapping) or not all(
        isinstance(name, str) and isinstance(tensor, Tensor) for name, tensor in weights.items()
    ):
        raise LongtailError(
            f"expected tensors by name as {key} in the checkpoint {source}, got something else:"
            f" delete {source.parent} to train this stage again"
        )
    return dict(weights)


def restore(method: nn.Module, weights: Mapping[str, Tensor], source: Path) -> None:
    """Load saved weights into a method; an error lists what does not match."""
    expected = method.state_dict()
    differences = [f"{name} is missing" for name in expected if name not in weights]
    differences += [f"{name} is not in this network" for name in weights if name not in expected]
    differences += [
        f"{name} has shape {tuple(weights[name].shape)} instead of {tuple(expected[name].shape)}"
        for name in expected
        if name in weights and expected[name].shape != weights[name].shape
    ]
    if differences:
        more = f" and {len(differences) - 3} more" if len(differences) > 3 else ""
        raise LongtailError(
            f"{source} does not fit this network: {'; '.join(differences[:3])}{more}. "
            "Use the keywords it was trained with, or choose another --out"
        )
    method.load_state_dict(dict(weights))


def check_kept(method: nn.Module, weights: Mapping[str, Tensor], source: Path) -> None:
    """Refuse kept weights that are not among those of a method."""
    live = method.state_dict()
    for name, tensor in weights.items():
        if name not in live or live[name].shape != tensor.shape:
            raise LongtailError(
                f"{source} does not fit this network: it has {name} of shape"
                f" {tuple(tensor.shape)}: delete {source.parent} to train this stage again"
            )
