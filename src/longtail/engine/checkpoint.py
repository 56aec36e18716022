"""Checkpoints of a stage: whole or not there."""

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
    """Save a checkpoint in one move; if that fails, what was there stays."""
    with atomic_write(path) as part, part.open("wb") as file:
        try:
            torch.save({"format": FORMAT, **state}, file)
        except RuntimeError as error:  # torch's word for a full disk
            raise OSError(str(error)) from error


def load(path: Path) -> dict[str, Any]:
    """Load a checkpoint, running no code from it."""
    try:
        state: dict[str, Any] = torch.load(path, map_location="cpu", weights_only=True)
    except (OSError, MemoryError):
        raise
    except Exception as error:
        raise LongtailError(
            f"expected a whole checkpoint in {path}, got one that cannot be read"
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
    """Put saved weights into a method, or say how they differ from it."""
    own = method.state_dict()
    differences = [f"{name} is missing" for name in own if name not in weights]
    differences += [f"{name} is not in this network" for name in weights if name not in own]
    differences += [
        f"{name} has shape {tuple(weights[name].shape)} instead of {tuple(own[name].shape)}"
        for name in own
        if name in weights and own[name].shape != weights[name].shape
    ]
    if differences:
        more = f" and {len(differences) - 3} more" if len(differences) > 3 else ""
        raise LongtailError(
            f"{source} was made with another network: {'; '.join(differences[:3])}{more}. "
            "Use the keywords it was trained with, or another --out"
        )
    method.load_state_dict(dict(weights))
