"""Learn from long-tailed images: `longtail.train` a recipe, `longtail.load` the run and ask it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"
__all__ = ["__version__", "load", "train"]

if TYPE_CHECKING:
    from longtail.runs import load, train


def __getattr__(name: str) -> Any:
    # Late, so that the command line answers --help without importing torch.
    if name in ("load", "train"):
        from longtail import runs

        return getattr(runs, name)
    raise AttributeError(f"module 'longtail' has no attribute {name!r}")
