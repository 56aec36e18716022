"""Files are whole or not there."""

from __future__ import annotations

import os
import socket
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from longtail.errors import LongtailError
from longtail.records.files import (
    append_line,
    atomic_write,
    read_journal,
    read_lines,
    read_regular,
    write_text,
)


def _fail(part: Path) -> None:
    part.write_text("a par")
    raise OSError("no space left")


def test_what_was_there_stays_until_all_is_written(tmp_path: Path) -> None:
    path = tmp_path / "deep" / "a.txt"
    for text in ("first", "second"):
        with atomic_write(path) as part:
            part.write_text(text)
            assert not path.exists() or path.read_text() == "first"
        assert path.read_text() == text
    with (
        pytest.raises(
            OSError,
            match=r"could not write .*a\.txt: no space left\. What was there before is intact",
        ),
        atomic_write(path) as part,
    ):
        _fail(part)
    assert path.read_text() == "second"
    assert [file.name for file in path.parent.iterdir()] == ["a.txt"]


def test_a_line_cut_short_is_left_out(tmp_path: Path) -> None:
    (tmp_path / "j.jsonl").write_text('{"step": 1}\n{"st')
    assert read_lines(tmp_path / "j.jsonl") == [{"step": 1}]
    (tmp_path / "j.jsonl").unlink()
    for step in (1, 2):
        append_line(tmp_path / "j.jsonl", {"step": step})
    assert read_lines(tmp_path / "j.jsonl") == [{"step": 1}, {"step": 2}]
    (tmp_path / "j.jsonl").write_text('{"st\n{"step": 1}\n')
    with pytest.raises(
        ValueError, match=r"expected JSON lines, got something else in line 1 of .*j\.jsonl"
    ):
        read_lines(tmp_path / "j.jsonl")


def test_a_file_is_put_in_place_in_one_move(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, real, moves = tmp_path / "a", os.replace, []

    def watched(source: Path, target: Path) -> None:
        moves.append((source.read_bytes(), target.read_bytes() if target.exists() else None))
        real(source, target)

    monkeypatch.setattr(os, "replace", watched)
    write_text(path, "old")
    write_text(path, "new\n")
    assert moves == [(b"old", None), (b"new\n", b"old")]
    assert [path.name for path in tmp_path.iterdir()] == ["a"]


def test_a_link_stays_a_link_and_its_target_is_replaced(tmp_path: Path) -> None:
    target, link = tmp_path / "target.txt", tmp_path / "link.txt"
    target.write_text("old")
    link.symlink_to(target)
    write_text(link, "new")
    assert link.is_symlink()
    assert target.read_text() == "new"


def test_a_pipe_is_written_to_and_not_replaced(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    with ThreadPoolExecutor(1) as pool:
        text = pool.submit(pipe.read_text)
        write_text(pipe, "through")
        assert text.result(timeout=10) == "through"
    assert pipe.is_fifo()


def test_a_folder_is_refused(tmp_path: Path) -> None:
    with pytest.raises(LongtailError, match="is a folder: name a file"):
        write_text(tmp_path, "text")


def test_the_umask_decides_who_may_read(tmp_path: Path) -> None:
    def private(part: Path) -> None:
        part.unlink()
        part.write_text("text")
        part.chmod(0o600)

    before = os.umask(0o027)
    try:
        with atomic_write(tmp_path / "a") as part:
            private(part)
    finally:
        os.umask(before)
    assert (tmp_path / "a").stat().st_mode & 0o777 == 0o640


@pytest.mark.parametrize("kind", ["pipe", "device", "socket", "sparse file"])
@pytest.mark.parametrize("linked", [False, True])
def test_only_regular_files_up_to_a_limit_are_read(
    kind: str, linked: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)  # the name of a socket is short
    path = Path("/dev/zero" if kind == "device" else "x")
    if kind == "pipe":
        os.mkfifo(path)
    elif kind == "socket":
        with socket.socket(socket.AF_UNIX) as bound:
            bound.bind(str(path))
    elif kind == "sparse file":
        with path.open("wb") as file:
            file.truncate(40_000_000_000)
    if linked:
        Path("link").symlink_to(path)
        path = Path("link")
    message = "has 40,000 MB, and files of at most 1 MB" if "file" in kind else f"is a {kind}, not"
    with pytest.raises(LongtailError, match=message):
        read_regular(path, limit=1_000_000)


def test_a_regular_file_is_read_to_its_end(tmp_path: Path) -> None:
    (tmp_path / "x").write_bytes(bytes(range(256)))
    assert read_regular(tmp_path / "x", limit=256) == bytes(range(256))
    with pytest.raises(LongtailError, match="reduce or remove it"):
        read_regular(tmp_path / "x", limit=255)
    with pytest.raises(IsADirectoryError):
        read_regular(tmp_path, limit=1)


def test_lines_of_a_journal_have_kind_epoch_and_step(tmp_path: Path) -> None:
    path = tmp_path / "journal.jsonl"
    good = '{"kind": "epoch", "epoch": 1, "step": 5, "rate": 0.1}\n'
    path.write_text(good)
    assert read_journal(path)[0]["step"] == 5
    for line in ('{"kind": "epoch"}', '{"kind": 1, "epoch": 1, "step": 5}', "[1]", "[" * 100_000):
        path.write_text(f"{good}{line}\n{good}")
        with pytest.raises(LongtailError, match=r"line 2 of .*journal\.jsonl.*: delete this line"):
            read_journal(path)


def test_reading_reserves_the_size_of_the_file_not_the_limit(tmp_path: Path) -> None:
    (tmp_path / "small").write_bytes(b"text")
    assert read_regular(tmp_path / "small", limit=1 << 50) == b"text"
