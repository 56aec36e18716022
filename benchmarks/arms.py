"""The arms of a plan as a picture: a line each, a dot for each seed, overall and by group.
`render.py` puts it beside the plan's table.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Mapping, Sequence
from xml.sax.saxutils import escape

from longtail.report.svg import ticks

WIDTH, RIGHT, TOP, ROW, FOOT, GAP = 800, 14, 30, 24, 28, 26
CHARACTER = 6.6  # pixels of a letter in the names of arms
BLUE, GREY = "#1f5fa8", "#6b7280"


def figure(scores: Mapping[str, Mapping[str, Sequence[float]]], *, title: str) -> str:
    """An SVG from percents by panel, arm and seed; the dashed line is the mean of the first arm.

    >>> drawn = picture({"balanced": {"plain": [40.0, 41.0], "new": [44.0]}}, title="A plan")
    >>> drawn.count("<circle"), drawn.count('class="mean"'), drawn.count("stroke-dasharray")
    (3, 2, 1)
    """
    arms = list(next(iter(scores.values())))
    left = 16 + CHARACTER * max(map(len, arms))
    wide = (WIDTH - left - RIGHT - GAP * (len(scores) - 1)) / len(scores)
    height = TOP + ROW * len(arms) + FOOT

    def parts() -> Iterator[str]:
        yield (
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}"'
            ' font-family="system-ui, sans-serif" font-size="12"'
        )
        yield (
            f' role="img" aria-label="{escape(title)}"><rect width="{WIDTH}" height="{height}"'
            ' fill="white"/>'
        )
        for place, arm in enumerate(arms):
            yield _text(left - 10, TOP + ROW * (place + 0.5) + 4, arm, anchor="end")
        for number, (name, panel) in enumerate(scores.items()):
            yield from _panel(name, panel, left + number * (wide + GAP), wide)
        yield "</svg>"

    return "\n".join(parts()) + "\n"


def _panel(
    name: str, arms: Mapping[str, Sequence[float]], left: float, wide: float
) -> Iterator[str]:
    values = [value for own in arms.values() for value in own]
    marks = ticks(min(values), max(values))
    bottom = TOP + ROW * len(arms)

    def across(value: float) -> float:
        return left + wide * (value - marks[0]) / (marks[-1] - marks[0])

    yield _text(left + wide / 2, 18, f"{name}, %")
    for mark in marks:
        yield (
            f'<line x1="{across(mark):.1f}" x2="{across(mark):.1f}" y1="{TOP}" y2="{bottom}"'
            ' stroke="#e3e6ea"/>'
        )
    for mark, anchor in ((marks[0], "start"), (marks[-1], "end")):
        yield _text(across(mark), bottom + 16, f"{mark:g}", anchor=anchor, colour=GREY)
    first = across(statistics.fmean(next(iter(arms.values()))))
    yield (
        f'<line x1="{first:.1f}" x2="{first:.1f}" y1="{TOP}" y2="{bottom}" stroke="{GREY}"'
        ' stroke-dasharray="3 3"/>'
    )
    for place, own in enumerate(arms.values()):
        y, mean = TOP + ROW * (place + 0.5), across(statistics.fmean(own))
        yield (
            f'<line class="mean" x1="{mean:.1f}" x2="{mean:.1f}" y1="{y - 8:g}" y2="{y + 8:g}"'
            f' stroke="{BLUE}" stroke-width="3"/>'
        )
        yield from (
            f'<circle cx="{across(value):.1f}" cy="{y:g}" r="4" fill="{BLUE}" fill-opacity="0.45"/>'
            for value in own
        )


def _text(x: float, y: float, words: str, *, anchor: str = "middle", colour: str = "#333") -> str:
    return (
        f'<text x="{x:.1f}" y="{y:g}" text-anchor="{anchor}" fill="{colour}">{escape(words)}</text>'
    )
