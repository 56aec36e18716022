"""Checkpoints, and other files of a stage that are either whole or not there."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import nn

from longtail.files import whole

FORMAT = 1


def write_atomically(path: Path, write: Any) -> None:
    """Let `write(file)` fill a new file and put it in place in one move; if it fails, what was there stays."""
    try:
        with whole(path) as part, part.open("wb") as file:
            write(file)
    except (OSError, RuntimeError) as error:  # torch.save turns a full disk into a RuntimeError
        raise OSError(
            f"could not write {path}: {error}. What was there before is intact: free some space and run the same command again"
        ) from error


def save(path: Path, state: Mapping[str, Any]) -> None:
    """Save a checkpoint atomically."""
    write_atomically(path, lambda file: torch.save({"format": FORMAT, **state}, file))


def load(path: Path) -> dict[str, Any]:
    """Load a checkpoint, running no code from it."""
    try:
        state: dict[str, Any] = torch.load(path, map_location="cpu", weights_only=True)
    except (OSError, MemoryError):
        raise
    except Exception as error:
        raise ValueError(
            f"expected a whole checkpoint in {path}, got one that cannot be read ({type(error).__name__}: {str(error).splitlines()[0]}): "
            f"delete {path.parent} to train this stage again"
        ) from error
    if state.get("format", 0) > FORMAT:
        raise ValueError(f"{path} has checkpoint format {state['format']}, this version reads up to {FORMAT}: update longtail")
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
        raise ValueError(
            f"{source} was made with another network: {'; '.join(differences[:3])}{more}. "
            "Use the keywords it was trained with, or another --out"
        )
    method.load_state_dict(dict(weights))
