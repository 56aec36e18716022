"""JSON files of a run folder: written in the current format, read in any format up to it."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from types import NoneType, UnionType
from typing import Any, Literal, NotRequired, get_args, get_origin, get_type_hints, is_typeddict

from longtail.errors import LongtailError
from longtail.records.files import read_regular, write_text

LIMIT = 100_000_000  # bytes of a JSON file

FORMAT = 2
"""Of every JSON file of a run folder; raised when a reader of the old files would misread the new
ones.
"""

Document = dict[str, Any]
JsonType = type | tuple[type, ...]
NUMBER: JsonType = (int, float)
_SCALARS: Mapping[Any, frozenset[type]] = {
    **{kind: frozenset({kind}) for kind in (str, int, bool, NoneType)},
    float: frozenset({int, float}),
}
_NAMES = {dict: "an object", list: "a list", str: "a string", int: "a number", float: "a number"}


def _same(document: Document) -> Document:
    return document


@dataclass(frozen=True)
class Kind:
    """A kind of JSON file: its required keys, its upgrade from format 1, and its repair."""

    name: str  # "row"
    required: Mapping[str, JsonType]  # of the current format
    repair: str  # what a person can do, as an imperative: "delete it and run ... again"
    upgrade: Callable[[Document], Document] = field(default=_same)  # format 1 to the current one
    versioned: bool = True  # False: files of format 1 do not say their format
    fields: type | None = None  # a TypedDict that everything inside is checked against
    # What is inconsistent in a document of the right types, as "X, got Y"; None if nothing is
    problem: Callable[[Document], str | None] = field(default=lambda document: None)


def read_document(path: Path, kind: Kind) -> Document:
    """Read a JSON file of a run folder, in the current format whichever it was written in."""
    try:
        content = json.loads(read_regular(path, limit=LIMIT))
    except (FileNotFoundError, NotADirectoryError):
        raise LongtailError(
            f"expected a run folder with {path.name}, got none at {path.parent}: pass the folder"
            " given as --out"
        ) from None
    except RecursionError:
        raise LongtailError(
            f"expected a {kind.name}, got JSON of too many levels in {path}: {kind.repair}"
        ) from None
    except (OSError, ValueError) as error:
        raise LongtailError(
            f"expected JSON, got something else or a part of it in {path} ({error}): {kind.repair}"
        ) from error
    return current(content, kind, source=path)


def current(content: object, kind: Kind, *, source: Path) -> Document:
    """A document in the current format; errors name `source`."""
    if not isinstance(content, dict):
        raise LongtailError(
            f"expected a JSON object, got {named(content)} in {source}: {kind.repair}"
        )
    format = content.get("format", None if kind.versioned else 1)
    if not isinstance(format, int) or isinstance(format, bool):
        raise LongtailError(
            f"expected a {kind.name} with its format version, got none in {source}: this file was"
            " not written by longtail"
        )
    if format > FORMAT:
        raise LongtailError(
            f"expected format {FORMAT} or older, got {format} in {source}: a newer longtail wrote"
            " it, upgrade this one"
        )
    if format < FORMAT:
        try:
            content = {**kind.upgrade(content), "format": FORMAT}
        except (AttributeError, KeyError, TypeError, ValueError) as error:
            raise LongtailError(
                f"expected a {kind.name} of format {format}, got something else in {source}"
                f" ({error}): {kind.repair}"
            ) from error
    missing = [name for name in kind.required if name not in content]
    if missing:
        raise LongtailError(
            f"expected a complete {kind.name}, missing {', '.join(missing)} in {source}:"
            f" {kind.repair}"
        )
    for name, wanted in kind.required.items():
        if not isinstance(content[name], wanted):
            raise LongtailError(
                f"expected {_wanted(wanted)} as {name}, got {named(content[name])} in {source}:"
                f" {kind.repair}"
            )
    if kind.fields is not None and (problem := _mismatch(content, kind.fields, "")):
        raise LongtailError(f"expected {problem} in {source}: {kind.repair}")
    if problem := kind.problem(content):
        raise LongtailError(f"expected {problem} in {source}: {kind.repair}")
    return content


def write_document(path: Path, content: Mapping[str, Any]) -> None:
    """Write a JSON file of a run folder in one move, with the format first."""
    body = {name: value for name, value in content.items() if name != "format"}
    write_text(path, json.dumps({"format": FORMAT, **body}, indent=1) + "\n")


def upgrade_file(path: Path, kind: Kind) -> None:
    """Write a file of an earlier format again in the current one; leave any other as it is."""
    if path.exists():
        document = read_document(path, kind)
        if json.loads(read_regular(path, limit=LIMIT)).get("format") != FORMAT:
            write_document(path, document)


def renamed(content: Mapping[str, Any], names: Mapping[str, str]) -> Document:
    """A copy with other keys, in the same order.

    >>> renamed({"a": 1, "b": 2}, {"a": "c"})
    {'c': 1, 'b': 2}
    """
    return {names.get(name, name): value for name, value in content.items()}


def required_by(fields: type) -> dict[str, JsonType]:
    """The keys that a TypedDict requires, and the JSON types of their values."""
    return {
        name: _json_type(hint)
        for name, hint in _hints(fields).items()
        if get_origin(hint) is not NotRequired
    }


def _mismatch(value: Any, hint: Any, name: str) -> str | None:
    """What a JSON value should be instead and where, by its type hint; None if it is right."""
    if type(value) in _scalars(hint):
        return None
    origin, arguments = get_origin(hint), get_args(hint)
    if origin is NotRequired:
        return _mismatch(value, arguments[0], name)
    if origin is UnionType:
        problems = [_mismatch(value, argument, name) for argument in arguments]
        return None if None in problems else problems[0]
    if hint is Any or origin is Literal:
        return None
    wanted = _json_type(hint)
    # In JSON true and false are no numbers, although Python's bool is an int
    if not isinstance(value, wanted) or (isinstance(value, bool) and hint is not bool):
        return f"{_wanted(wanted)} as {name}, got {named(value)}"
    inside: dict[str, tuple[Any, Any]] = {}
    given: Any = value
    if is_typeddict(hint):
        for key, inner in _hints(hint).items():
            if key in given:
                inside[key] = (given[key], inner)
            elif get_origin(inner) is not NotRequired:
                return f"{key} in {name or 'it'}, got none"
    elif origin is dict:
        inside = {key: (item, arguments[1]) for key, item in given.items()}
    elif origin is list:
        if _scalars(arguments[0]).issuperset(map(type, given)):
            return None  # one step for thousands of numbers
        inside = {str(number): (item, arguments[0]) for number, item in enumerate(given)}
    for key, (item, inner) in inside.items():
        if problem := _mismatch(item, inner, f"{name}.{key}" if name else key):
            return problem
    return None


@cache
def _hints(fields: type) -> dict[str, Any]:
    return get_type_hints(fields, include_extras=True)


@cache
def _scalars(hint: Any) -> frozenset[type]:
    """The types of numbers, texts and null that a type hint accepts."""
    if get_origin(hint) is UnionType:
        return frozenset[type]().union(*map(_scalars, get_args(hint)))
    return _SCALARS.get(hint, frozenset())


def _json_type(hint: Any) -> JsonType:
    if hint is Any:
        return object
    if get_origin(hint) is UnionType:
        alternatives = (_json_type(argument) for argument in get_args(hint))
        return tuple(kind for types in alternatives for kind in _as_tuple(types))
    if is_typeddict(hint):
        return dict
    plain: type = get_origin(hint) or hint
    return NUMBER if plain is float else plain


def named(value: object) -> str:
    """The type of a JSON value, in words."""
    return "nothing" if value is None else _NAMES.get(type(value), f"a {type(value).__name__}")


def _wanted(types: JsonType) -> str:
    return " or ".join(dict.fromkeys(_NAMES.get(kind, "null") for kind in _as_tuple(types)))


def _as_tuple(types: JsonType) -> tuple[type, ...]:
    return types if isinstance(types, tuple) else (types,)
