"""Learn from long-tailed images: `longtail.train` a recipe, `longtail.load` the run and ask it."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from longtail import deprecated

__version__ = "0.1.0"
__all__ = ["__version__", "load", "train"]

if TYPE_CHECKING:
    from longtail.runs import load, train


deprecated.install()

_ROOMS = (
    "analysis",
    "core",
    "data",
    "engine",
    "losses",
    "methods",
    "metrics",
    "nn",
    "posthoc",
    "recipes",
    "report",
    "runs",
    "schedules",
)


def __getattr__(name: str) -> Any:
    # Late, so that the command line answers --help without importing torch.
    if name in ("load", "train"):
        return getattr(importlib.import_module("longtail.runs"), name)
    if name in _ROOMS:
        return importlib.import_module(f"longtail.{name}")
    raise AttributeError(f"module 'longtail' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted([*__all__, *_ROOMS])
