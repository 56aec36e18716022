"""A file is the old one or the new one, never something between."""

import os
from pathlib import Path
from typing import BinaryIO

import pytest

from longtail.engine.checkpoint import FORMAT, load, save, write_atomically


def test_a_file_is_put_in_place_in_one_move(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path, real, moves = tmp_path / "a", os.replace, []

    def watched(source: Path, target: Path) -> None:
        moves.append((source.read_bytes(), target.read_bytes() if target.exists() else None))
        real(source, target)

    monkeypatch.setattr(os, "replace", watched)
    for content in (b"old", b"new"):

        def fill(file: BinaryIO, content: bytes = content) -> None:
            file.write(content)

        write_atomically(path, fill)
    assert moves == [(b"old", None), (b"new", b"old")]
    assert [own.name for own in tmp_path.iterdir()] == ["a"]


def test_a_failed_write_leaves_the_old_file_and_no_trace(tmp_path: Path) -> None:
    path = tmp_path / "a"
    path.write_bytes(b"old")

    def fails(file: BinaryIO) -> None:
        file.write(b"half")
        raise OSError("No space left on device")

    with pytest.raises(OSError, match=r"could not write .*No space left on device.*intact"):
        write_atomically(path, fails)
    assert path.read_bytes() == b"old"
    assert [own.name for own in tmp_path.iterdir()] == ["a"]


def test_a_newer_format_is_refused(tmp_path: Path) -> None:
    save(tmp_path / "a.pt", {"format": FORMAT + 1})
    with pytest.raises(ValueError, match=f"format {FORMAT + 1}, this version reads up to {FORMAT}: update"):
        load(tmp_path / "a.pt")


def test_an_error_that_is_not_the_files_own_does_not_advise_to_delete_it(tmp_path: Path) -> None:
    (tmp_path / "last.pt").mkdir()
    with pytest.raises(OSError, match=r"last\.pt") as caught:
        load(tmp_path / "last.pt")
    assert "delete" not in str(caught.value)
