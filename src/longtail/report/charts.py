"""Pictures of lines, as SVG."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from xml.sax.saxutils import escape

Line = Sequence[tuple[float, float]]

WIDTH, HEIGHT, LEFT, RIGHT, TOP, BOTTOM = 640, 400, 60, 150, 24, 50
COLOURS = (
    "#1f5fa8",
    "#b3541e",
    "#2a7d4f",
    "#7b3fa0",
    "#9a7d0a",
    "#4d4d4d",
    "#c2185b",
    "#00838f",
    "#5d4037",
)


def chart(lines: Mapping[str, Line], *, x: str, y: str) -> str:
    """A picture of lines with their names at the right.

    >>> chart({"few": [(0.0, 10.0), (1.0, 30.0)]}, x="tau", y="accuracy, %").count("<polyline")
    1
    """
    across = [point[0] for line in lines.values() for point in line]
    up = [point[1] for line in lines.values() for point in line]
    xs, ys = ticks(min(across), max(across)), ticks(min(up), max(up))

    def place(px: float, py: float) -> tuple[float, float]:
        wide, tall = WIDTH - LEFT - RIGHT, HEIGHT - TOP - BOTTOM
        return LEFT + wide * (px - xs[0]) / (xs[-1] - xs[0]), HEIGHT - BOTTOM - tall * (
            py - ys[0]
        ) / (ys[-1] - ys[0])

    def parts() -> Iterator[str]:
        yield f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" font-family="system-ui, sans-serif" font-size="13"'
        yield f' role="img" aria-label="{escape(y)} over {escape(x)}"><rect width="{WIDTH}" height="{HEIGHT}" fill="white"/>'
        for value in ys:
            left, height = place(xs[0], value)
            yield f'<line x1="{left:g}" x2="{WIDTH - RIGHT}" y1="{height:g}" y2="{height:g}" stroke="#e3e6ea"/>'
            yield text(left - 8, height + 4, f"{value:g}", anchor="end")
        for value in xs:
            yield text(*place(value, ys[0]), f"{value:g}", down=18)
        yield text(LEFT + (WIDTH - LEFT - RIGHT) / 2, HEIGHT - 8, x)
        yield f'<g transform="rotate(-90)">{text(-(HEIGHT - BOTTOM + TOP) / 2, 16, y)}</g>'
        taken: list[float] = []
        for (name, line), colour in zip(lines.items(), _colours(), strict=False):
            points = " ".join("{:.1f},{:.1f}".format(*place(*point)) for point in line)
            yield f'<polyline points="{points}" fill="none" stroke="{colour}" stroke-width="2"/>'
            height = place(*line[-1])[1]
            while any(abs(height - other) < 15 for other in taken):
                height += 3
            taken.append(height)
            yield text(WIDTH - RIGHT + 8, height + 4, name, anchor="start", colour=colour)
        yield "</svg>"

    return "\n".join(parts()) + "\n"


def ticks(low: float, high: float) -> list[float]:
    """Round numbers around a range, four to eight of them.

    >>> ticks(0.0, 1.5), ticks(12.0, 58.0)
    ([0.0, 0.25, 0.5, 0.75, 1.0, 1.25, 1.5], [10, 20, 30, 40, 50, 60])
    """
    if high <= low:
        low, high = low - 0.5, high + 0.5
    power = 10.0 ** math.floor(math.log10((high - low) / 4))
    step = next(
        power * factor for factor in (1, 2, 2.5, 5, 10) if (high - low) / (power * factor) <= 6.5
    )
    step = int(step) if step == int(step) else step
    return [
        step * number
        for number in range(math.floor(low / step + 1e-9), math.ceil(high / step - 1e-9) + 1)
    ]


def _colours() -> Iterator[str]:
    while True:
        yield from COLOURS


def text(
    x: float, y: float, words: str, *, anchor: str = "middle", colour: str = "#333", down: float = 0
) -> str:
    """Words of a picture."""
    return f'<text x="{x:.1f}" y="{y + down:.1f}" text-anchor="{anchor}" fill="{colour}">{escape(words)}</text>'
