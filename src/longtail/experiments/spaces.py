"""Where a keyword of a recipe is searched: a range or some values, as they are typed."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from longtail.errors import LongtailError
from longtail.recipes.signatures import Parameter, Recipe


@dataclass(frozen=True)
class Range:
    """Numbers between two ends; `log` draws their logarithm."""

    low: float
    high: float
    log: bool
    integer: bool

    def value(self, drawn: float) -> float:
        """What a run is given: three digits say enough, and can be typed."""
        return int(drawn) if self.integer else min(max(float(f"{drawn:.3g}"), self.low), self.high)


@dataclass(frozen=True)
class Choices:
    """Some values, as they are typed."""

    texts: tuple[str, ...]
    parameter: Parameter

    def value(self, drawn: str) -> Any:
        """What a run is given."""
        return self.parameter.parse(drawn)


Space = Mapping[str, Range | Choices]


def parse_space(recipe: Recipe, name: str, text: str) -> Range | Choices:
    """Read where a keyword is searched: LOW..HIGH, log:LOW..HIGH, or VALUE,VALUE (lists: 1,2;3,4);
    `|`
    separates values too.

    >>> from longtail.recipes.signatures import read
    >>> parse_space(read("balanced_softmax"), "tau", "0.5..1.5")
    Range(low=0.5, high=1.5, log=False, integer=False)
    >>> parse_space(read("balanced_softmax"), "network", "fast_cnn,resnet32").texts
    ('fast_cnn', 'resnet32')
    """
    parameter = recipe.parameter(name)
    ends = text.removeprefix("log:").split("..")
    if text.startswith("log:") or (len(ends) == 2 and parameter.scalar in ("int", "float")):
        return _range(parameter, text, ends)
    texts = tuple(
        part.strip()
        for part in (text.split("|") if "|" in text else text.split(";" if parameter.many else ","))
    )
    if len(set(texts)) < 2 or len(set(texts)) < len(texts):
        raise LongtailError(
            f"expected LOW..HIGH or two values or more for {name}, each once, got {text!r}: fix one"
            f" value with --set {name}={text}"
        )
    for part in texts:
        parameter.parse(part)  # refuses
    return Choices(texts, parameter)


def _range(parameter: Parameter, text: str, ends: Sequence[str]) -> Range:
    name, log, integer = parameter.name, text.startswith("log:"), parameter.scalar == "int"
    if parameter.many or parameter.scalar not in ("int", "float"):
        raise LongtailError(
            f"expected values of {name}, which is {parameter.kind}, got the range {text!r}: write"
            f" --search {name}=VALUE,VALUE"
        )
    try:
        low, high = (int(end) if integer else float(end) for end in ends)
    except ValueError:
        raise LongtailError(
            f"expected {name}=LOW..HIGH with two of {parameter.scalar}, got {text!r}"
        ) from None
    if not (math.isfinite(low) and math.isfinite(high) and low < high):
        raise LongtailError(f"expected {name}=LOW..HIGH with LOW below HIGH, got {text!r}")
    if log and low <= 0:
        raise LongtailError(
            f"expected a positive LOW in {name}=log:LOW..HIGH, got {text!r}: zero has no logarithm"
        )
    return Range(low, high, log, integer)
