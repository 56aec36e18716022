"""Learn from long-tailed images: `longtail.train` a recipe, `longtail.load` the run, predict."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from longtail import deprecated

__version__ = "0.1.0"
__all__ = ["__version__", "compare", "embed", "load", "report", "search", "sweep", "train"]

if TYPE_CHECKING:
    from longtail.experiments.search import search
    from longtail.experiments.sweeps import sweep
    from longtail.report.public import compare, report
    from longtail.runs import embed, load, train


deprecated.install()

_FUNCTIONS = {
    "compare": "longtail.report.public",
    "embed": "longtail.runs",
    "load": "longtail.runs",
    "search": "longtail.experiments.search",
    "sweep": "longtail.experiments.sweeps",
    "train": "longtail.runs",
}
_ROOMS = (
    "analysis",
    "core",
    "data",
    "engine",
    "experiments",
    "losses",
    "methods",
    "metrics",
    "nn",
    "posthoc",
    "recipes",
    "report",
    "runs",
    "schedules",
    "testing",
)


def __getattr__(name: str) -> Any:
    # Late, so that the command line answers --help without importing torch.
    if name in _FUNCTIONS:
        return getattr(importlib.import_module(_FUNCTIONS[name]), name)
    if name in _ROOMS:
        return importlib.import_module(f"longtail.{name}")
    raise AttributeError(f"module 'longtail' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*__all__, *_ROOMS})
