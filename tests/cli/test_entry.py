"""The command before its modules are there."""

import builtins
from typing import Any

import pytest

from longtail.cli import entry


def test_ctrl_c_while_importing_ends_quietly(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    real = builtins.__import__

    def interrupted(name: str, *arguments: Any) -> Any:
        if name == "longtail.cli.main":
            raise KeyboardInterrupt
        return real(name, *arguments)

    monkeypatch.setattr(builtins, "__import__", interrupted)
    with pytest.raises(SystemExit) as stopped:
        entry.run()
    assert stopped.value.code == 130
    assert capsys.readouterr().err == "stopped\n"


def test_it_runs_the_command(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("sys.argv", ["longtail", "--version"])
    with pytest.raises(SystemExit) as ended:
        entry.run()
    assert ended.value.code == 0
    assert capsys.readouterr().out.strip()
