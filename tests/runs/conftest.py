"""Finished runs that several tests read."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
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
