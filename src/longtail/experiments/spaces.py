"""Search spaces of keywords, parsed from text: a range or a list of values."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from longtail.errors import LongtailError
from longtail.recipes.signatures import Parameter, Recipe


@dataclass(frozen=True)
class Range:
    """Numbers from `low` to `high`, sampled on a log scale if `log`."""

    low: float
    high: float
    log: bool
    integer: bool

    def value(self, sample: float) -> float:
        """The value for a run, rounded to three digits to keep commands short."""
        return (
            int(sample) if self.integer else min(max(float(f"{sample:.3g}"), self.low), self.high)
        )


@dataclass(frozen=True)
class Choices:
    """A list of values as text."""

    texts: tuple[str, ...]
    parameter: Parameter

    def value(self, sample: str) -> Any:
        """The value for a run."""
        return self.parameter.parse(sample)


Space = Mapping[str, Range | Choices]


def parse_space(recipe: Recipe, name: str, text: str) -> Range | Choices:
    """Parse the search space of a keyword: LOW..HIGH, log:LOW..HIGH, or VALUE,VALUE.

    Lists are separated by semicolons, as in 1,2;3,4; `|` separates values, too.

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
            f"expected LOW..HIGH or at least two different values for {name}, got {text!r}: to use"
            f" one value, pass --set {name}={text}"
        )
    for part in texts:
        parameter.parse(part)  # raises for an invalid value
    return Choices(texts, parameter)


def _range(parameter: Parameter, text: str, ends: Sequence[str]) -> Range:
    name, log, integer = parameter.name, text.startswith("log:"), parameter.scalar == "int"
    if parameter.many or parameter.scalar not in ("int", "float"):
        raise LongtailError(
            f"{name} is {parameter.kind} and has no range, got {text!r}: write"
            f" --search {name}=VALUE,VALUE"
        )
    try:
        low, high = (int(end) if integer else float(end) for end in ends)
    except ValueError:
        raise LongtailError(
            f"expected {name}=LOW..HIGH with two {parameter.scalar} numbers, got {text!r}"
        ) from None
    if not (math.isfinite(low) and math.isfinite(high) and low < high):
        raise LongtailError(f"expected {name}=LOW..HIGH with LOW below HIGH, got {text!r}")
    if log and low <= 0:
        raise LongtailError(
            f"expected a positive LOW in {name}=log:LOW..HIGH, got {text!r}: use LOW..HIGH without"
            " log"
        )
    return Range(low, high, log, integer)
