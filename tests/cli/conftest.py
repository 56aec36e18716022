"""Call the command line in this process, as a person would see it."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import NamedTuple

import pytest

from longtail.cli.main import run


class Said(NamedTuple):
    code: int
    out: str
    err: str


Longtail = Callable[..., Said]


@pytest.fixture
def longtail(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Longtail:
    def call(*words: object) -> Said:
        monkeypatch.setattr(sys, "argv", ["longtail", *map(str, words)])
        with pytest.raises(SystemExit) as exit:
            run()
        code = exit.value.code
        captured = capsys.readouterr()
        return Said(code if isinstance(code, int) else 0, captured.out, captured.err)

    return call
