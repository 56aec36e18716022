"""`longtail cache`: sizes of the files that only save time, and deleting them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest


def test_cache_shows_sizes_and_clears(
    longtail: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    file = tmp_path / "longtail" / "labels" / "a.bin"
    file.parent.mkdir(parents=True)
    file.write_bytes(bytes(2_500_000))
    shown = longtail("cache")
    assert shown.code == 0
    assert "1 files, 2.5 MB" in shown.out
    assert str(tmp_path) in shown.out
    assert file.exists()
    cleared = longtail("cache", "--clear")
    assert "deleted 2.5 MB" in cleared.out
    assert not file.exists()
