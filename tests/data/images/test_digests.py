import os
from pathlib import Path

import pytest

from longtail.data.images.digests import fingerprint, get, put


def test_a_file_is_recalled_until_it_changes(tmp_path: Path) -> None:
    path = str(tmp_path / "a.png")
    Path(path).write_bytes(b"one")
    assert get({path: fingerprint(path)}) == {}
    put([(path, fingerprint(path), b"digest")])
    assert get({path: fingerprint(path)}) == {path: b"digest"}
    os.utime(path, ns=(0, 123))
    assert get({path: fingerprint(path)}) == {}


def test_other_content_of_the_same_size_and_time_is_noticed(tmp_path: Path) -> None:
    path = str(tmp_path / "a.png")
    Path(path).write_bytes(b"one")
    before = os.stat(path)
    put([(path, fingerprint(path), b"digest")])
    Path(path).write_bytes(b"two")
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert os.stat(path).st_mtime_ns == before.st_mtime_ns
    assert get({path: fingerprint(path)}) == {}
    put([(path, fingerprint(path), b"other")])
    (tmp_path / "b.png").write_bytes(b"six")
    os.utime(tmp_path / "b.png", ns=(before.st_atime_ns, before.st_mtime_ns))
    os.replace(tmp_path / "b.png", path)
    assert get({path: fingerprint(path)}) == {}


def test_names_that_are_no_text_are_recalled_too(tmp_path: Path) -> None:
    path = os.fsdecode(os.fsencode(tmp_path) + b"/caf\xe9.png")
    Path(path).write_bytes(b"one")
    put([(path, fingerprint(path), b"digest")])
    assert get({path: fingerprint(path)}) == {path: b"digest"}


def test_without_a_cache_folder_nothing_is_cached(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    put([("a", (1, 2, 3, 4), b"digest")])
    assert get({"a": (1, 2, 3, 4)}) == {}

    def homeless() -> Path:
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.setenv("XDG_CACHE_HOME", "")
    monkeypatch.setattr(Path, "home", homeless)
    put([("a", (1, 2, 3, 4), b"digest")])
    assert get({"a": (1, 2, 3, 4)}) == {}
