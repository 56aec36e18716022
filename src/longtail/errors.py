"""Errors that a person can mend; the command line prints them without a traceback."""

from __future__ import annotations


class LongtailError(ValueError):
    """Something the caller can mend: a wrong flag, file, shape or combination.

    The message says what was expected, what was given and what to do. Any other exception is a
    defect of longtail, or of code that was passed in, and keeps its traceback.
    """


class MissingExtra(LongtailError, ModuleNotFoundError):
    """An optional dependency is not installed; the message has the `pip install` line."""
