"""Read data from a Python function that returns a `Source`, named package.module:function."""

from __future__ import annotations

import re
from pathlib import Path

from longtail.data.source import Source
from longtail.errors import LongtailError
from longtail.naming import import_function


def is_function(name: str) -> bool:
    """Whether a name has the form package.module:function.

    >>> is_function("our_data:flowers"), is_function("images/flowers")
    (True, False)
    """
    return re.fullmatch(r"[^\W\d][\w.]*:[^\W\d]\w*", name) is not None


def from_function(name: str, *, root: Path | None = None) -> Source:
    """Import the function and call it, with the root if one is given.

    Its result may have a scorer (`Source.scorer`).
    """
    reader = import_function(name)
    source = reader() if root is None else reader(root)
    if not isinstance(source, Source):
        raise LongtailError(
            f"{name} must return a longtail.data.source.Source, got a {type(source).__name__}"
        )
    return source
