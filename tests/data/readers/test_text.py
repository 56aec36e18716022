"""Lists in other encodings and broken CSV files are named with their line."""

from pathlib import Path

import pytest

from longtail.data.readers import text
from longtail.data.readers.text import read_lines, read_rows
from longtail.errors import LongtailError

TEXT = "images/a.png,café\n\nimages/b.png, x \n"
ROWS = [(1, ["images/a.png", "café"]), (3, ["images/b.png", "x"])]


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16"])
def test_unicode_lists_are_read(encoding: str, tmp_path: Path) -> None:
    (tmp_path / "list.csv").write_text(TEXT, encoding=encoding)
    assert read_rows(tmp_path / "list.csv") == ROWS
    assert [line for _, line in read_lines(tmp_path / "list.csv")] == TEXT.splitlines()


def test_a_cell_may_have_several_lines(tmp_path: Path) -> None:
    (tmp_path / "list.csv").write_text('a.png,"two\nlines"\r\nb.png,x\r\n', newline="")
    assert [row for _, row in read_rows(tmp_path / "list.csv")] == [
        ["a.png", "two\nlines"],
        ["b.png", "x"],
    ]


def test_what_is_no_file_of_bounded_size_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "list.csv"
    path.write_text(TEXT)
    monkeypatch.setattr(text, "LIMIT", 10)
    with pytest.raises(LongtailError, match="files of at most 0 MB are read"):
        read_rows(path)


def test_another_encoding_is_named_with_what_to_do(tmp_path: Path) -> None:
    path = tmp_path / "my list.csv"
    path.write_bytes(TEXT.replace("x", "né").encode("latin-1").replace(b"caf\xe9", b"cafe"))
    with pytest.raises(
        LongtailError, match=r"my list\.csv, line 3: expected UTF-8, got the byte 0xe9"
    ) as e:
        read_rows(path)
    assert f"iconv -f WINDOWS-1252 -t UTF-8 '{path}'" in str(e.value)
    with pytest.raises(LongtailError, match="expected UTF-8"):
        list(read_lines(path))


@pytest.mark.parametrize("content", ['a,b\nc,"' + 140_000 * "x" + "\n", "a,b\nc," + 140_000 * "x"])
def test_a_field_without_end_is_named(content: str, tmp_path: Path) -> None:
    (tmp_path / "list.csv").write_text(content)
    with pytest.raises(LongtailError, match=r"list\.csv, line 2: .*field larger"):
        read_rows(tmp_path / "list.csv")
