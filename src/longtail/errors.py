"""Errors that the user can fix; the command line prints them without a traceback."""

from __future__ import annotations


class LongtailError(ValueError):
    """An error the caller can fix: a wrong flag, file, shape or combination.

    The message says what is wrong, what was expected and what to do. Any other exception is a bug
    in longtail, or in code that was passed in, and keeps its traceback.
    """


class MissingExtra(LongtailError, ModuleNotFoundError):
    """An optional dependency is not installed; the message has the `pip install` line."""


def explained(error: BaseException) -> tuple[str, int] | None:
    """Return the message and exit code for an error the user can fix; None for any other."""
    name = type(error).__name__  # by name: importing these classes would import torch
    if name == "Stopped":
        return str(error), 130
    if isinstance(error, LongtailError | OSError) or name == "NonFinite":
        return f"error: {error}", 2
    return None
