"""The page about LiVT points at lines that exist, and its numbers are those of the results."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
PAGE = (ROOT / "docs" / "livt.md").read_text(encoding="utf-8")
TEXT = " ".join(PAGE.split())


def test_the_equations_are_where_the_page_says() -> None:
    lines = re.findall(r"^\| .* \| `(src/\S+)`: `(.*)` \|$", PAGE, re.MULTILINE)
    assert len(lines) == 12
    for path, line in lines:
        assert line in (ROOT / path).read_text(encoding="utf-8"), f"{path} has no line {line}"


def _speed(name: str) -> Any:
    return json.loads((ROOT / "benchmarks" / "results" / "speed" / f"{name}.json").read_text(encoding="utf-8"))["figures"]


def test_speeds_are_those_of_the_results() -> None:
    small, large, tokens, classes = map(_speed, ("livt_step", "livt_step_paper", "livt_tokens", "livt_classes"))
    assert f"{small['all_over_visible']:g} times as fast with a decoder 128 wide and 2 blocks, {large['all_over_visible']:g} times" in TEXT
    assert f"lightly takes {small['lightly_over_visible']:.2f} and {large['lightly_over_visible']:.2f} times as long" in TEXT
    assert f"reach {small['visible_percent_of_peak']:.0f} and {large['visible_percent_of_peak']:.0f}% of what" in TEXT
    assert f"exponents of {tokens['power']:.2f}, and of {classes['power']:.2f} from 1,000 classes on" in TEXT
