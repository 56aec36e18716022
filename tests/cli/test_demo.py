"""`longtail demo`: two small trainings and their comparison."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from longtail.cli import demo


def test_demo_compares_plain_with_balanced(
    longtail: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(demo, "KEYWORDS", {"batch": 128, "epochs": 1})
    result = longtail("demo", "--out", tmp_path, "--threads", 1)
    assert result.code == 0, result.err
    assert all(
        word in result.out
        for word in (
            "plain",
            "overall",
            "medium",
            "few",
            str(tmp_path / "balanced"),
            "next: longtail report",
        )
    )
