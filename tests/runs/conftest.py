"""Finished runs that several tests read."""

from __future__ import annotations

import runpy
import shutil
from collections.abc import Sequence
from pathlib import Path

import pytest
import torch
from finished import QUICK

from longtail.runs import train


@pytest.fixture(scope="session")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("runs") / "run"
    train("balanced_softmax", "digits-lt", folder, **QUICK)
    return folder


@pytest.fixture
def copied(finished: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(finished, tmp_path / "run"))


@pytest.fixture(scope="session")
def adjusted(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("adjusted") / "run"
    train("ride", "digits-lt", folder, **QUICK, adjust="validation")
    return folder


@pytest.fixture
def program_in_this_process(monkeypatch: pytest.MonkeyPatch) -> None:
    """Run `predict.py` of an export without another process, which takes seconds to import torch.

    `test_export_program` runs it as exports do.
    """

    def logits(folder: Path, paths: Sequence[Path]) -> torch.Tensor:
        script = runpy.run_path(str(folder / "predict.py"))
        return torch.from_numpy(script["logits"](paths))

    monkeypatch.setattr("longtail.runs.exporting.program_logits", logits)
