"""JSON files of any format are read in the current one, or refused in words."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any, NotRequired, TypedDict

import pytest

from longtail.errors import LongtailError
from longtail.records.documents import (
    FORMAT,
    Kind,
    read_document,
    renamed,
    required_by,
    upgrade_file,
    write_document,
)

KIND = Kind(
    "thing",
    {"name": str, "size": (int, float)},
    repair="make it again",
    upgrade=lambda content: renamed(content, {"called": "name"}) | {"n": len(content["list"])},
)


def test_what_was_written_is_read_and_says_its_format_first(tmp_path: Path) -> None:
    path = tmp_path / "thing.json"
    write_document(path, {"name": "\u00e9", "size": 1.5, "format": "stale"})
    assert read_document(path, KIND) == {"format": FORMAT, "name": "\u00e9", "size": 1.5}
    assert path.read_text(encoding="utf-8").startswith(f'{{\n "format": {FORMAT},')


def test_an_earlier_format_is_upgraded_in_memory_and_on_request_in_the_file(tmp_path: Path) -> None:
    path = tmp_path / "thing.json"
    path.write_text(json.dumps({"format": 1, "called": "x", "size": 1, "list": [0, 0]}))
    before = path.read_bytes()
    expected = {"format": FORMAT, "name": "x", "size": 1, "list": [0, 0], "n": 2}
    assert read_document(path, KIND) == expected
    assert path.read_bytes() == before
    upgrade_file(path, KIND)
    assert json.loads(path.read_text()) == expected
    after = path.stat().st_mtime_ns
    upgrade_file(path, KIND)
    assert path.stat().st_mtime_ns == after
    upgrade_file(tmp_path / "absent.json", KIND)
    assert not (tmp_path / "absent.json").exists()


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('{"format": 1', "expected JSON, got something else or a part of it in .*: make it again"),
        ("[]", "expected a JSON object, got a list in .*: make it again"),
        ('{"name": "x"}', "expected a thing with its format version, got none"),
        ('{"format": true, "name": "x"}', "expected a thing with its format version, got none"),
        (
            json.dumps({"format": FORMAT + 1}),
            f"expected format {FORMAT} or older, got {FORMAT + 1} in .*upgrade this one",
        ),
        (
            json.dumps({"format": FORMAT, "size": 1}),
            "expected a complete thing, missing name in .*: make it again",
        ),
        (
            json.dumps({"format": FORMAT, "name": "x", "size": "1"}),
            "expected a number as size, got a string in .*: make it again",
        ),
        (
            json.dumps({"format": 1, "called": "x", "size": 1, "list": 3}),
            "expected a thing of format 1, got something else in .*: make it again",
        ),
    ],
)
def test_what_is_no_such_file_is_refused_by_name(text: str, message: str, tmp_path: Path) -> None:
    path = tmp_path / "thing.json"
    path.write_text(text)
    with pytest.raises(LongtailError, match=message) as refused:
        read_document(path, KIND)
    assert str(path) in str(refused.value)


def test_the_error_for_a_missing_file_names_the_folder(tmp_path: Path) -> None:
    with pytest.raises(LongtailError, match=r"expected a run folder with thing\.json, got none at"):
        read_document(tmp_path / "thing.json", KIND)


class Inner(TypedDict):
    x: int


class Fields(TypedDict):
    text: str
    share: float
    maybe: int | None
    each: dict[str, Any]
    inner: Inner
    inner_or_none: Inner | None
    anything: Any
    newer: NotRequired[int]


def test_the_types_of_json_are_those_of_a_typed_dict() -> None:
    none = type(None)
    assert required_by(Fields) == {
        "text": str,
        "share": (int, float),
        "maybe": (int, none),
        "each": dict,
        "inner": dict,
        "inner_or_none": (dict, none),
        "anything": object,
    }


class Nested(TypedDict):
    number: float
    more: NotRequired[list[int | None]]


class Nest(TypedDict):
    inner: dict[str, Nested]
    flag: bool


NESTED = Kind("nest", {"inner": dict, "flag": bool}, repair="delete it", fields=Nest)


@pytest.mark.parametrize(
    ("inner", "message"),
    [
        ({"a": {"number": "x"}}, r"a number as inner\.a\.number, got a string"),
        ({"a": {"number": True}}, r"a number as inner\.a\.number, got a bool"),
        ({"a": {}}, r"number in inner\.a, got none"),
        ({"a": None}, r"an object as inner\.a, got nothing"),
        (
            {"a": {"number": 1, "more": [1, None, "x"]}},
            r"a number as inner\.a\.more\.2",
        ),
        ({"a": {"number": 1, "more": [1, True]}}, r"a number as inner\.a\.more\.1, got a bool"),
        ({"a": {"number": 1, "more": [[1]]}}, r"a number as inner\.a\.more\.0, got a list"),
    ],
)
def test_everything_inside_is_checked(inner: object, message: str, tmp_path: Path) -> None:
    right = {"format": FORMAT, "flag": True, "inner": {"a": {"number": 1, "more": [1, None]}}}
    path = tmp_path / "x.json"
    path.write_text(json.dumps(right))
    assert read_document(path, NESTED) == right
    path.write_text(json.dumps({**right, "inner": inner}))
    with pytest.raises(LongtailError, match=rf"expected {message}.* in .*x\.json: delete it"):
        read_document(path, NESTED)


@pytest.mark.parametrize("kind", ["deep", "huge", "folder", "digits", "pipe"])
def test_deep_and_huge_files_are_refused_by_name(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "x.json"
    if kind == "folder":
        path.mkdir()
    elif kind == "pipe":
        os.mkfifo(path)
    elif kind == "huge":
        with path.open("wb") as file:
            file.truncate(40_000_000_000)
    else:
        path.write_text("[" * 100_000 if kind == "deep" else "9" * 10_000)
    with pytest.raises(LongtailError, match=r"x\.json.*: delete it"):
        read_document(path, NESTED)
