"""Files are whole or not there."""

from __future__ import annotations

from pathlib import Path

import pytest

from longtail.files import read_lines, whole


def _fail(part: Path) -> None:
    part.write_text("a par")
    raise OSError("no space left")


def test_what_was_there_stays_until_all_is_written(tmp_path: Path) -> None:
    path = tmp_path / "deep" / "a.txt"
    for text in ("first", "second"):
        with whole(path) as part:
            part.write_text(text)
            assert not path.exists() or path.read_text() == "first"
        assert path.read_text() == text
    with pytest.raises(OSError, match="no space"), whole(path) as part:
        _fail(part)
    assert path.read_text() == "second"
    assert [file.name for file in path.parent.iterdir()] == ["a.txt"]


def test_a_line_cut_short_is_left_out(tmp_path: Path) -> None:
    (tmp_path / "j.jsonl").write_text('{"step": 1}\n{"st')
    assert read_lines(tmp_path / "j.jsonl") == [{"step": 1}]
    (tmp_path / "j.jsonl").write_text('{"st\n{"step": 1}\n')
    with pytest.raises(ValueError, match=r"expected JSON lines, got something else in line 1 of .*j\.jsonl"):
        read_lines(tmp_path / "j.jsonl")
