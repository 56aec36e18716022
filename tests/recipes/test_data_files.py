"""Data files become dataclasses, and what does not fit is named."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import pytest

from longtail.recipes.data_files import build, read_toml


@dataclass(frozen=True)
class Inner:
    name: str


@dataclass(frozen=True)
class Outer:
    rate: float
    kind: Literal["a", "b"] = "a"
    seeds: tuple[int, ...] = ()
    parts: Mapping[str, Inner] = field(default_factory=dict)
    more: str | None = None
    any: Mapping[str, Any] = field(default_factory=dict)


def test_every_kind_of_field_is_read() -> None:
    content = {
        "rate": 1,
        "kind": "b",
        "seeds": [0, 1],
        "parts": {"x": {"name": "y"}},
        "more": "text",
        "any": {"z": [1, None]},
    }
    built = build(Outer, content, where="here")
    assert built == Outer(1.0, "b", (0, 1), {"x": Inner("y")}, "text", {"z": [1, None]})
    assert isinstance(built.rate, float)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ({}, "here: rate is missing"),
        ({"rate": 1, "sedes": [0]}, "unknown field of here 'sedes': did you mean seeds"),
        ({"rate": "fast"}, "rate of here: expected float, got 'fast'"),
        ({"rate": True}, "rate of here: expected float, got True"),
        ({"rate": 1, "kind": "c"}, r"kind of here: expected Literal\['a', 'b'\], got 'c'"),
        ({"rate": 1, "seeds": [0.5]}, "seeds of here: expected int, got 0.5"),
        ({"rate": 1, "seeds": 3}, "seeds of here: expected tuple"),
        ({"rate": 1, "parts": {"x": {}}}, "x of parts of here: name is missing"),
        ({"rate": 1, "more": 3}, "more of here: expected str, got 3"),
    ],
)
def test_what_does_not_fit_is_named(content: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        build(Outer, content, where="here")


def test_a_file_that_is_not_toml_is_named(tmp_path: Path) -> None:
    (tmp_path / "x.toml").write_text("a = [")
    with pytest.raises(ValueError, match=r"x\.toml is not valid TOML"):
        read_toml(tmp_path / "x.toml")
