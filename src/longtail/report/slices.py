"""What a search found, as SVG: a panel for each keyword, a point for each trial."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any
from xml.sax.saxutils import escape

from longtail.report.charts import COLOURS, text, ticks

WIDTH, HEIGHT, LEFT, GAP, TOP, BOTTOM = 200, 260, 60, 44, 16, 46


@dataclass(frozen=True)
class Panel:
    """A keyword and its trials: what it was, and what came of it."""

    name: str
    points: Sequence[tuple[Any, float]]
    log: bool = False


def search_plot(panels: Sequence[Panel], *, y: str) -> str:
    """Draw panels side by side with one scale upwards; the best point of all is filled with another colour.

    >>> search_plot([Panel("tau", [(0.5, 60.0), (1.5, 70.0)]), Panel("network", [("a", 60.0), ("b", 70.0)])], y="accuracy, %").count("<circle")
    4
    """
    up = [height for panel in panels for _, height in panel.points]
    ys, best = ticks(min(up), max(up)), max(up)
    wide = LEFT + len(panels) * (WIDTH + GAP)

    def level(value: float) -> float:
        return TOP + (HEIGHT - TOP - BOTTOM) * (1 - (value - ys[0]) / (ys[-1] - ys[0]))

    def parts() -> Iterator[str]:
        yield f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {wide} {HEIGHT}" font-family="system-ui, sans-serif" font-size="13"'
        names = ", ".join(panel.name for panel in panels)
        yield f' role="img" aria-label="{escape(y)} over {escape(names)}"><rect width="{wide}" height="{HEIGHT}" fill="white"/>'
        yield f'<g transform="rotate(-90)">{text(-(HEIGHT - BOTTOM + TOP) / 2, 14, y)}</g>'
        yield from (text(LEFT - 8, level(value) + 4, f"{value:g}", anchor="end") for value in ys)
        for number, panel in enumerate(panels):
            left = LEFT + number * (WIDTH + GAP)
            for value in ys:
                yield f'<line x1="{left}" x2="{left + WIDTH}" y1="{level(value):.1f}" y2="{level(value):.1f}" stroke="#e3e6ea"/>'
            yield text(left + WIDTH / 2, HEIGHT - 8, panel.name)
            places, labels = _across(panel)
            yield from (
                text(left + WIDTH * place, HEIGHT - BOTTOM + 18, label) for label, place in labels
            )
            for place, (_, height) in zip(places, panel.points, strict=True):
                colour = COLOURS[1] if height == best else COLOURS[0]
                yield f'<circle cx="{left + WIDTH * place:.1f}" cy="{level(height):.1f}" r="4" fill="{colour}" fill-opacity="0.75"/>'
        yield "</svg>"

    return "\n".join(parts()) + "\n"


def _across(panel: Panel) -> tuple[list[float], list[tuple[str, float]]]:
    """Where the points of a panel lie, from 0 to 1, and the labels below."""
    values = [value for value, _ in panel.points]
    if not all(isinstance(value, int | float) and not isinstance(value, bool) for value in values):
        names = sorted(set(map(str, values)))
        places = {name: (number + 0.5) / len(names) for number, name in enumerate(names)}
        return [places[str(value)] for value in values], list(places.items())
    scaled = [math.log10(value) if panel.log else float(value) for value in values]
    low, high = min(scaled), max(scaled)
    spread = (high - low) or 1.0
    ends = dict.fromkeys((values[scaled.index(low)], values[scaled.index(high)]))
    where = [0.06 + 0.88 * (value - low) / spread for value in scaled]
    return where, [(f"{value:g}", where[values.index(value)]) for value in ends]
