"""Which errors are explained in a sentence, and which keep their traceback."""

from __future__ import annotations

import errno

import pytest
import torch

from longtail.core import NonFinite
from longtail.engine.stopping import Stopped
from longtail.errors import LongtailError, MissingExtra, explained


def test_what_a_person_can_mend_is_explained() -> None:
    assert explained(Stopped("stopped; continue with x")) == ("stopped; continue with x", 130)
    assert explained(LongtailError("x")) == ("error: x", 2)
    assert explained(MissingExtra("pip install x")) == ("error: pip install x", 2)
    assert explained(NonFinite("x")) == ("error: x", 2)
    assert explained(OSError("no space")) == ("error: no space", 2)


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (MemoryError(), "not enough memory: "),
        (torch.OutOfMemoryError("tried 9 GiB"), "not enough memory (tried 9 GiB): "),
        (MemoryError("Unable to allocate 7 TiB"), "not enough memory (Unable to allocate 7 TiB): "),
        (RuntimeError("CUDA out of memory. Tried to"), "not enough memory (CUDA out of memory"),
        (
            RuntimeError("[enforce fail at a.cpp:1] . DefaultCPUAllocator: can't allocate memory"),
            "not enough memory (can't allocate memory): ",
        ),
        (OSError(errno.ENOMEM, "Cannot allocate memory"), "not enough memory ([Errno 12]"),
        (
            RuntimeError("DataLoader worker (pid 7) is killed by signal: Killed. "),
            "a loader worker ended, as workers do if the machine runs out of memory: ",
        ),
        (
            RuntimeError("DataLoader worker (pid 7) is killed by signal: Bus error. "),
            "a loader worker ended, as workers do if the machine runs out of shared memory: ",
        ),
    ],
)
def test_a_lack_of_memory_is_explained(error: Exception, reason: str) -> None:
    message = explained(error)
    assert message is not None
    assert message[0].startswith(f"error: {reason}")
    assert message[0].endswith("or fewer --workers; the same command resumes")
    assert message[1] == 2


def test_other_errors_are_not() -> None:
    for error in (KeyError("x"), ValueError("x"), RuntimeError("x")):
        assert explained(error) is None
