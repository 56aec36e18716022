"""Lists as text: lines and CSV rows, with errors that name the file and what to do."""

from __future__ import annotations

import codecs
import csv
import io
import shlex
from collections.abc import Iterator
from pathlib import Path

from longtail.errors import LongtailError
from longtail.records.files import read_regular

LIMIT = 2_000_000_000  # bytes of a list


def read_lines(path: Path) -> Iterator[tuple[int, str]]:
    """The lines of a text file with their numbers, from 1 on."""
    return enumerate(_text(path).splitlines(), start=1)


def read_rows(path: Path) -> list[tuple[int, list[str]]]:
    """The rows of a CSV file that are not empty, with their numbers, from 1 on."""
    rows = csv.reader(io.StringIO(_text(path), newline=""))
    result = []
    try:
        for number, row in enumerate(rows, start=1):
            if any(row):
                result.append((number, [cell.strip() for cell in row]))
    except csv.Error as error:
        raise LongtailError(
            f"{path}, line {rows.line_num}: expected a row of a CSV file, got something else"
            f" ({error}). Is a quotation mark missing?"
        ) from error
    return result


def _text(path: Path) -> str:
    """The text of a file in UTF-8, or in UTF-16 if it begins with its mark."""
    content = read_regular(path, limit=LIMIT)
    if content.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        encoding = "utf-16"
    else:
        encoding = "utf-8-sig"
    try:
        return content.decode(encoding)
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        raise LongtailError(
            f"{path}, line {line}: expected UTF-8, got the byte 0x{content[error.start]:02x}."
            " Convert the list; if it is of a Windows program, with `iconv -f WINDOWS-1252 -t UTF-8"
            f" {shlex.quote(str(path))} > NEW_LIST`"
        ) from error
