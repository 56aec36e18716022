"""Files that only save time: their sizes, and deleting them and nothing else."""

from __future__ import annotations

from pathlib import Path

import pytest

from longtail.records import cache


def test_only_cached_files_are_counted_and_deleted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert cache.clear_cache() == 0, "without a folder there is nothing to delete"
    folder = tmp_path / "longtail"
    (folder / "labels").mkdir(parents=True)
    (tmp_path / "precious").write_text("x" * 100)
    for name, size in {
        "labels/a.bin": 30,
        "labels/a.json": 5,
        "labels/b.7.part": 1,
        "files.sqlite": 8,
        "notes.txt": 9,
        "labels/notes.txt": 9,
    }.items():
        (folder / name).write_bytes(bytes(size))
    (folder / "labels" / "link.bin").symlink_to(tmp_path / "precious")
    files = cache.cached_files()
    assert {kind: len(paths) for kind, paths in files.items()} == {
        "labels of teachers": 4,
        "digests of images": 1,
    }
    assert cache.clear_cache() >= 44
    left = sorted(str(path.relative_to(tmp_path)) for path in tmp_path.rglob("*") if path.is_file())
    assert left == ["longtail/labels/notes.txt", "longtail/notes.txt", "precious"]
