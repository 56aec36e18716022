"""Errors that the user can fix; the command line prints them without a traceback."""

from __future__ import annotations

import errno
import re
import sys

# Control characters other than tab and line feed, and those that reverse the direction of text
_CONTROL = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069]")


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
    if reason := _memory_reason(error):
        return (
            f"error: {reason}: use a smaller --batch (--accumulate keeps the effective batch) or"
            " fewer --workers; the same command resumes",
            2,
        )
    if isinstance(error, ValueError) and str(error).startswith(_ONE_ROW):
        return "error: batch norm needs more than one row in a step: use --batch 2 or more", 2
    if name in _DISTRIBUTED or (isinstance(error, RuntimeError) and "gloo" in str(error)):
        return (
            "error: another process of this training ended, and its output says why: start all of"
            " them again with the same command, which resumes",
            2,
        )
    if isinstance(error, OSError) and error.errno in _ADVICE and isinstance(error.filename, str):
        advice = _ADVICE[error.errno]
        return f"error: {error.filename}: {str(error.strerror).lower()}: {advice}", 2
    if isinstance(error, LongtailError | OSError) or name == "NonFinite":
        return f"error: {error}", 2
    return None


def torch_reason(error: BaseException) -> str:
    """Why `torch.load` refused a file: without colours, and without its advice to run the code.

    >>> torch_reason(EOFError())
    'EOFError: it is empty or incomplete'
    """
    text = " ".join(re.sub(r"\x1b\[[0-9;]*m", "", str(error)).split())
    text = text.rpartition("WeightsUnpickler error: ")[2]
    text = re.split(r" In PyTorch 2\.6| ?Check the documentation", text)[0]
    return f"{type(error).__name__}: {text[:200] or 'it is empty or incomplete'}"


def _memory_reason(error: BaseException) -> str | None:
    """Describe a lack of memory or a loader worker that died of it; None for any other error."""
    first_line = (str(error).strip().splitlines() or [""])[0]
    if isinstance(error, RuntimeError) and first_line.startswith("DataLoader worker (pid"):
        kind = "of shared memory" if "bus error" in str(error).lower() else "of memory"
        return f"a loader worker ended, as workers do if the machine runs out {kind}"
    if isinstance(error, OSError) and error.errno == errno.ENOMEM:
        return f"not enough memory ({error})"
    if (
        isinstance(error, MemoryError)
        or type(error).__name__ == "OutOfMemoryError"
        or (isinstance(error, RuntimeError) and any(words in first_line for words in _MEMORY_WORDS))
    ):
        details = first_line.rpartition("DefaultCPUAllocator: ")[2].removeprefix("Caught ")
        return f"not enough memory ({details})" if details else "not enough memory"
    return None


# What to do about an error of the system for a path
_ADVICE = {
    errno.ENOTDIR: "a part of this path is a file, choose another path",
    errno.EEXIST: "something else has this name, choose another path",
    errno.EISDIR: "name a file",
    errno.ENOENT: "correct the path; nothing can be created there if its folder is there",
    errno.EACCES: "change its permissions, or choose another path",
    errno.EPERM: "change its permissions, or choose another path",
    errno.EROFS: "choose a path on a disk that can be written to",
    errno.ENOSPC: "free some space and run the same command again",
    errno.ENAMETOOLONG: "choose a shorter path",
    errno.ELOOP: "its links form a circle, remove one of them",
}

# How torch begins what it raises for a batch of one row
_ONE_ROW = "Expected more than 1 value per channel when training"

# What torch raises if a process that it communicates with is gone
_DISTRIBUTED = ("DistBackendError", "DistNetworkError", "DistStoreError")

# What torch says if there is no memory on a CPU, on a GPU and for a shared tensor
_MEMORY_WORDS = ("DefaultCPUAllocator", "out of memory", "Cannot allocate memory")


def printable(text: str) -> str:
    """Text with its control characters as escapes.

    Names of files and classes may contain commands for the terminal: to recolour it, to overwrite
    what was printed, to set its title.

    >>> printable("a" + chr(27) + "[2J")
    'a\\\\x1b[2J'
    """
    return _CONTROL.sub(lambda match: ascii(match[0])[1:-1], text)


def warn(text: str) -> None:
    """Print a warning to stderr."""
    print(f"warning: {printable(text)}", file=sys.stderr, flush=True)
