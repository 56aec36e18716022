"""Checkpoints of a stage, written atomically."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import nn

from longtail.errors import LongtailError
from longtail.records.files import atomic_write

FORMAT = 1


def save(path: Path, state: Mapping[str, Any]) -> None:
    """Save a checkpoint atomically; if that fails, the previous one stays."""
    with atomic_write(path) as part, part.open("wb") as file:
        try:
            torch.save({"format": FORMAT, **state}, file)
        except RuntimeError as error:  # what torch raises for a full disk
            raise OSError(str(error)) from error


def load(path: Path) -> dict[str, Any]:
    """Load a checkpoint without running code from it."""
    try:
        state: dict[str, Any] = torch.load(path, map_location="cpu", weights_only=True)
    except (OSError, MemoryError):
        raise
    except Exception as error:
        raise LongtailError(
            f"the checkpoint {path} cannot be read"
            f" ({type(error).__name__}: {str(error).splitlines()[0]}): delete {path.parent} to"
            " train this stage again"
        ) from error
    if state.get("format", 0) > FORMAT:
        raise LongtailError(
            f"{path} has checkpoint format {state['format']}, this version reads up to {FORMAT}:"
            " update longtail"
        )
    return state


def restore(method: nn.Module, weights: Mapping[str, Any], source: Path) -> None:
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
