"""Which errors are explained in a sentence, and which keep their traceback."""

from __future__ import annotations

import errno
import re
from pathlib import Path

import pytest
import torch

import longtail
from longtail.core import NonFinite
from longtail.engine.stopping import Stopped
from longtail.errors import LongtailError, MissingExtra, explained, printable, warn


def test_what_a_person_can_mend_is_explained() -> None:
    assert explained(Stopped("stopped; continue with x")) == ("stopped; continue with x", 130)
    assert explained(LongtailError("x")) == ("error: x", 2)
    assert explained(MissingExtra("pip install x")) == ("error: pip install x", 2)
    assert explained(NonFinite("x")) == ("error: x", 2)
    assert explained(OSError("no space")) == ("error: no space", 2)


def test_an_error_of_the_system_names_the_path_and_what_to_do(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.touch()
    with pytest.raises(NotADirectoryError) as caught:
        (path / "run").mkdir()
    message = f"error: {path / 'run'}: not a directory: a part of this path is a file, choose"
    assert (explained(caught.value) or ("", 0))[0].startswith(message)
    with pytest.raises(FileExistsError) as exists:
        path.mkdir()
    assert "something else has this name, choose another" in (explained(exists.value) or "")[0]


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


@pytest.mark.parametrize(
    "error",
    [
        RuntimeError("[/pytorch/third_party/gloo/gloo/transport/tcp/pair.cc:545] Read error"),
        torch.distributed.DistBackendError("NCCL error: remote process exited"),
        torch.distributed.DistStoreError("Broken pipe"),
    ],
)
def test_another_process_that_ended_is_explained(error: Exception) -> None:
    message = explained(error)
    assert message is not None
    assert "another process of this training ended" in message[0]
    assert "resumes" in message[0]
    assert "gloo" not in message[0]


def test_one_row_for_batch_norm_is_explained() -> None:
    with pytest.raises(ValueError, match="more than 1 value") as caught:
        torch.nn.BatchNorm2d(2)(torch.zeros(1, 2, 1, 1))
    message = explained(caught.value)
    assert message is not None
    assert "use --batch 2 or more" in message[0]


def test_other_errors_are_not() -> None:
    for error in (KeyError("x"), ValueError("x"), RuntimeError("x")):
        assert explained(error) is None


@pytest.mark.parametrize(
    ("text", "printed"),
    [
        ("plain, with a tab\tand two\nlines", "plain, with a tab\tand two\nlines"),
        ("é 猫 ✓", "é 猫 ✓"),
        ("a\x1b[2Jb", r"a\x1b[2Jb"),
        ("back\x08space\rreturn\x07", r"back\x08space\rreturn\x07"),
        ("\x9b31mred\x7f", r"\x9b31mred\x7f"),
        ("gnp.\u202eexe", r"gnp.\u202eexe"),
    ],
)
def test_control_characters_are_shown_as_escapes(
    text: str, printed: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert printable(text) == printed
    warn(text)
    assert capsys.readouterr().err == f"warning: {printed}\n"


def test_every_warning_is_printed_by_one_function() -> None:
    source = Path(longtail.__file__).parent
    others = [
        path.name
        for path in source.rglob("*.py")
        if re.search(r"print\(\s*f?[\"']warning", path.read_text(encoding="utf-8"))
    ]
    assert others == ["errors.py"]
