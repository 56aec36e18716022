"""Names of things: unknown ones with what was probably meant, and functions by their name."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Iterable
from difflib import get_close_matches
from pathlib import Path
from typing import Any

from longtail.errors import LongtailError


def meant(name: str, known: Iterable[str], *, most: int = 1) -> str:
    """A guess at what was meant, as a question, or nothing.

    >>> meant("weka", ["weak", "cutout"]), meant("weka", ["cutout"])
    ('did you mean weak?', '')
    """
    close = get_close_matches(name, list(known), n=most, cutoff=0.5)
    return f"did you mean {' or '.join(close)}?" if close else ""


def unknown(kind: str, name: str, known: Iterable[str], *, more: str = "") -> LongtailError:
    """The error for a name nobody knows.

    >>> str(unknown("recipe", "balanced", ["cross_entropy", "balanced_softmax"]))
    "unknown recipe 'balanced': did you mean balanced_softmax? Known: balanced_softmax, cross_entropy"
    """
    names = sorted(known)
    guess = meant(name, names, most=3)
    return LongtailError(
        f"unknown {kind} {name!r}{f': {guess}' if guess else '.'} Known:"
        f" {', '.join(names) or 'none'}{more}"
    )


def import_function(target: str) -> Callable[..., Any]:
    """Import "package.module:function", also from the current folder.

    >>> import_function("math:sqrt")(4.0)
    2.0
    """
    module, _, name = target.partition(":")
    search_current_folder()
    try:
        function = getattr(importlib.import_module(module), name)
    except (ModuleNotFoundError, AttributeError) as error:
        # An import that fails inside the module is its author's to see.
        if isinstance(error, ModuleNotFoundError) and not f"{module}.".startswith(f"{error.name}."):
            raise
        raise LongtailError(
            f"expected a function that can be imported, got {target!r}: {error}. "
            "Run from its folder, or install it"
        ) from error
    if not callable(function):
        raise LongtailError(f"expected a function, got {target!r}: a {type(function).__name__}")
    return function  # type: ignore[no-any-return]


def search_current_folder() -> None:
    """Let imports find modules of the current folder, where an installed command does not look."""
    if "" not in sys.path and str(Path.cwd()) not in sys.path:
        sys.path.append(str(Path.cwd()))
