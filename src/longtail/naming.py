"""Look up names: suggestions for unknown ones, and functions imported by name."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Iterable
from difflib import get_close_matches
from pathlib import Path
from typing import Any

from longtail.errors import LongtailError


def meant(name: str, known: Iterable[str], *, most: int = 1) -> str:
    """Suggest known names close to `name`, as a question; an empty string if none is close.

    >>> meant("weka", ["weak", "cutout"]), meant("weka", ["cutout"])
    ('did you mean weak?', '')
    """
    close = get_close_matches(name, list(known), n=most, cutoff=0.5)
    return f"did you mean {' or '.join(close)}?" if close else ""


def unknown(kind: str, name: str, known: Iterable[str], *, more: str = "") -> LongtailError:
    """Build the error for an unknown name, with the closest known names.

    >>> str(unknown("head", "cosines", ["linear", "cosine"]))
    "unknown head 'cosines': did you mean cosine? Known: cosine, linear"
    """
    names = sorted(known)
    guess = meant(name, names, most=3)
    return LongtailError(
        f"unknown {kind} {name!r}{f': {guess}' if guess else '.'} Known:"
        f" {', '.join(names) or 'none'}{more}"
    )


def import_function(target: str) -> Callable[..., Any]:
    """Import "package.module:function"; the current folder is searched as well.

    >>> import_function("math:sqrt")(4.0)
    2.0
    """
    module, _, name = target.partition(":")
    search_current_folder(target)
    try:
        function = getattr(importlib.import_module(module), name)
    except (ModuleNotFoundError, AttributeError) as error:
        # An import that fails inside the module is a bug of that module: keep its traceback.
        if isinstance(error, ModuleNotFoundError) and not f"{module}.".startswith(f"{error.name}."):
            raise
        raise LongtailError(
            f"cannot import {target!r}: {error}. Run the command from the folder of its module, or "
            "install the package"
        ) from error
    if not callable(function):
        raise LongtailError(f"expected a function, got {target!r}: a {type(function).__name__}")
    return function  # type: ignore[no-any-return]


def search_current_folder(target: str) -> None:
    """Add the current folder to `sys.path`, for code that the user named, and print that once.

    An installed command does not search it: any module there could be imported, also by others.
    """
    if "" not in sys.path and str(Path.cwd()) not in sys.path:
        sys.path.append(str(Path.cwd()))
        print(f"note: modules in {Path.cwd()} can be imported, for {target}", file=sys.stderr)


def expand_user(path: str | Path) -> Path:
    """A path with `~` and `~user` replaced by the home folder.

    >>> expand_user("images/~today")
    PosixPath('images/~today')
    """
    try:
        return Path(path).expanduser()
    except RuntimeError as error:
        raise LongtailError(
            f"cannot find the home folder of {Path(path).parts[0]!r}: write the path without ~"
        ) from error
