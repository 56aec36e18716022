"""Read data files of the package into dataclasses: an entry that does not fit is named."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import MISSING, fields, is_dataclass
from functools import cache
from pathlib import Path
from types import UnionType
from typing import Any, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

from longtail.errors import LongtailError
from longtail.naming import unknown

Built = TypeVar("Built")


def read_toml(path: Path) -> dict[str, Any]:
    """Read a TOML file."""
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except tomllib.TOMLDecodeError as error:
        raise LongtailError(f"{path} is not valid TOML: {error}") from None


def build(kind: type[Built], content: Mapping[str, Any], *, where: str) -> Built:
    """Make a dataclass from a mapping, and nested ones within it; `where` names the entry in
    errors.
    """
    assert is_dataclass(kind)
    known, kinds = {field.name: field for field in fields(kind)}, _types(kind)
    for name in content:
        if name not in known:
            raise unknown(f"field of {where}", name, known)
    for name, field in known.items():
        if name not in content and field.default is field.default_factory is MISSING:
            raise LongtailError(f"{where}: {name} is missing")
    return kind(
        **{
            name: _convert(value, kinds[name], where=f"{name} of {where}")
            for name, value in content.items()
        }
    )


@cache
def _types(kind: type) -> dict[str, Any]:
    return get_type_hints(kind)


def _convert(value: Any, kind: Any, *, where: str) -> Any:
    outer, inner = get_origin(kind), get_args(kind)
    if kind is Any:
        return value
    if outer in (UnionType, Union):  # `kind | None`: a file leaves the field out instead
        return _convert(value, inner[0], where=where)
    if is_dataclass(kind) and isinstance(value, Mapping):
        return build(kind, value, where=where)  # type: ignore[arg-type]
    if outer is tuple and isinstance(value, list | tuple):
        return tuple(_convert(item, inner[0], where=where) for item in value)
    if outer is Mapping and isinstance(value, Mapping):
        return {
            name: _convert(item, inner[1], where=f"{name} of {where}")
            for name, item in value.items()
        }
    if outer is Literal and value in inner:
        return value
    if kind is float and type(value) is int:
        return float(value)
    if isinstance(kind, type) and type(value) is kind:
        return value
    expected = kind.__name__ if isinstance(kind, type) else str(kind).replace("typing.", "")
    raise LongtailError(f"{where}: expected {expected}, got {value!r}")
