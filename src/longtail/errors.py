"""Errors that a person can mend; the command line prints them without a traceback."""

from __future__ import annotations


class LongtailError(ValueError):
    """Something the caller can mend: a wrong flag, file, shape or combination.

    The message says what was expected, what was given and what to do. Any other exception is a
    defect of longtail, or of code that was passed in, and keeps its traceback.
    """


class MissingExtra(LongtailError, ModuleNotFoundError):
    """An optional dependency is not installed; the message has the `pip install` line."""


def explained(error: BaseException) -> tuple[str, int] | None:
    """The message and exit code for an error that a person can mend; None for any other."""
    name = type(error).__name__  # by name: importing these classes would import torch
    if name == "Stopped":
        return str(error), 130
    if isinstance(error, LongtailError | OSError) or name == "NonFinite":
        return f"error: {error}", 2
    return None
