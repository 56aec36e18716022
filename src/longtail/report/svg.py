"""A small plotter: SVG for a page, whose colours follow light and dark, or for a file.

Drawings name their colours by the classes of `templates/svg.css`. All text goes through `element`,
which escapes it.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import NamedTuple

from markupsafe import Markup, escape

Line = Sequence[tuple[float, float]]

WIDTH, HEIGHT = 340, 230
TOP, BOTTOM = 30, 40  # room above and below the axes
CHARACTER = 7.2  # approximate width of a letter in pixels
POINTS = 240  # most points of a line, to keep files small
MARKED = 12  # lines with at most this many points show markers


@dataclass(frozen=True)
class Axis:
    """An axis of a plot: `low` is at pixel `start`, `high` at pixel `end`."""

    low: float
    high: float
    start: float
    end: float
    log: bool = False

    def at(self, value: float) -> float:
        """The pixel of a value; values below a logarithmic axis, such as 0, lie at its start.

        >>> Axis(1, 100, 0.0, 50.0, log=True).at(10)
        25.0
        """
        low, high = self.low, self.high
        if self.log:
            low, high, value = math.log10(low), math.log10(high), math.log10(max(value, low))
        return self.start + (self.end - self.start) * (value - low) / (high - low)


def ticks(low: float, high: float) -> list[float]:
    """Round numbers around a range, four to eight of them.

    >>> ticks(0.0, 1.5), ticks(12.0, 58.0)
    ([0.0, 0.25, 0.5, 0.75, 1.0, 1.25, 1.5], [10, 20, 30, 40, 50, 60])
    """
    if high <= low:
        low, high = low - 0.5, high + 0.5
    power = 10.0 ** math.floor(math.log10((high - low) / 4))
    steps = (power * factor for factor in (1, 2, 2.5, 5, 10))
    step = next(step for step in steps if (high - low) / step <= 6.5)
    step = int(step) if step == int(step) else step
    first, last = math.floor(low / step + 1e-9), math.ceil(high / step - 1e-9)
    return [step * number for number in range(first, last + 1)]


def element(name: str, *inside: str, **attributes: str | float) -> Markup:
    """An SVG element: numbers are rounded to 0.01, text is escaped.

    >>> element("text", "a < b", class_="faint", x=1.5, text_anchor="end")
    Markup('<text class="faint" x="1.5" text-anchor="end">a &lt; b</text>')
    """
    written = "".join(
        f' {key.rstrip("_").replace("_", "-")}="{escape(_rounded(value))}"'
        for key, value in attributes.items()
    )
    body = "".join(map(escape, inside))
    return Markup(f"<{name}{written}>{body}</{name}>" if body else f"<{name}{written}/>")


def text(x: float, y: float, words: str, *, anchor: str = "middle", style: str = "") -> Markup:
    """A text element."""
    classes = {"class_": style} if style else {}
    return element("text", words, x=x, y=y, text_anchor=anchor, **classes)


def line(x1: float, y1: float, x2: float, y2: float, *, style: str) -> Markup:
    """A straight line."""
    return element("line", class_=style, x1=x1, y1=y1, x2=x2, y2=y2)


def rect(x: float, y: float, width: float, height: float, *inside: str, style: str) -> Markup:
    """A rectangle."""
    return element("rect", *inside, class_=style, x=x, y=y, width=width, height=height)


def disc(x: float, y: float, radius: float, *inside: str, style: str) -> Markup:
    """A filled circle, or a ring with the style "whisker"."""
    return element("circle", *inside, class_=style, cx=x, cy=y, r=radius)


def image(address: str, x: float, y: float, width: float, height: float) -> Markup:
    """An image from a data URI (`images.data_uri`)."""
    size = {"width": width, "height": height}
    return element("image", href=address, x=x, y=y, preserveAspectRatio="none", **size)


def y_grid(axis: Axis, values: Sequence[float], *, left: float, right: float) -> Iterator[Markup]:
    """Horizontal grid lines with tick labels on the left."""
    for value in values:
        yield line(left, axis.at(value), right, axis.at(value), style="grid")
        yield text(left - 7, axis.at(value) + 4, number(value), anchor="end", style="faint")


def x_numbers(axis: Axis, values: Iterable[float], y: float) -> Iterator[Markup]:
    """Tick labels below a horizontal axis at height `y`."""
    yield from (text(axis.at(value), y + 17, number(value), style="faint") for value in values)


def frame(
    across: Axis, up: Axis, x_ticks: Sequence[float], y_ticks: Sequence[float], *, x: str, y: str
) -> Iterator[Markup]:
    """The axes of a plot with grid lines, tick labels and axis titles `x` and `y`.

    Args:
        across: The horizontal axis.
        up: The vertical axis.
        x_ticks: Positions of its labels.
        y_ticks: Positions of its labels.
        x: Title of the horizontal axis.
        y: Title of the vertical axis.
    """
    yield from y_grid(up, y_ticks, left=across.start, right=across.end)
    yield from x_numbers(across, x_ticks, up.start)
    yield text((across.start + across.end) / 2, up.start + BOTTOM - 6, x, style="faint")
    yield text(2, 13, y, anchor="start", style="faint")


def left_of(values: Sequence[float]) -> float:
    """The width of the tick labels at the left of a plot."""
    return 12 + CHARACTER * max(len(number(value)) for value in values)


def number(value: float) -> str:
    """A tick label.

    >>> number(10_000), number(0.30000000000000004)
    ('10,000', '0.3')
    """
    return f"{value:,}" if isinstance(value, int) else f"{value:g}"


def cut(words: str, most: int) -> str:
    """Truncate text to a number of letters.

    >>> cut("axolotl", 4)
    'axo…'
    """
    return words if len(words) <= most else words[: most - 1] + "…"


def series(position: int) -> str:
    """The style of line number `position`: nine colours, then the next dash pattern.

    >>> series(0), series(9)
    ('s1', 's1 d2')
    """
    return f"s{position % 9 + 1}" + ("", " d2", " d3")[position // 9 % 3]


def drawing(
    parts: Iterable[str], *, title: str, words: str, width: float = WIDTH, height: float = HEIGHT
) -> Markup:
    """An SVG for a page; `words` are its description for screen readers.

    Args:
        parts: The elements.
        title: The name of the drawing.
        words: Its description.
        width: In pixels.
        height: In pixels.
    """
    described = element("title", title), element("desc", words)
    box = f"0 0 {width:g} {height:g}"
    return element("svg", *described, *parts, viewBox=box, role="img", aria_label=title)


def standalone(drawing: Markup) -> str:
    """An SVG as the content of a file, in light colours on white.

    The colours are written out: browsers know CSS variables, other programs often do not.
    """
    head, _, body = str(drawing).partition(">")
    paper = '<rect width="100%" height="100%" fill="#fff"/>'
    return f'{head} xmlns="http://www.w3.org/2000/svg"><style>{_style()}</style>{paper}{body}\n'


def line_plot(
    lines: Mapping[str, Line],
    *,
    title: str,
    x: str,
    y: str,
    styles: Mapping[str, str] | None = None,
    marks: Sequence[float] = (),
    shade: Line = (),
    width: float = WIDTH,
    height: float = HEIGHT,
) -> Markup:
    """A line plot with the name of every line at its end.

    Args:
        lines: Points from left to right, by name.
        title: What the plot is called for those who do not see it.
        x: What lies along the bottom.
        y: What lies upwards.
        styles: Classes of `svg.css` by name of a line; `series` where there is none.
        marks: x positions of dashed vertical lines.
        shade: Positive numbers behind the lines, on a logarithmic scale that fills the height.
        width: In pixels.
        height: In pixels.

    >>> plot = line_plot({"few": [(1, 10.0), (2, 30.0)]}, title="accuracy", x="epoch", y="%")
    >>> "few goes from 10 to 30" in plot
    True
    """
    names = {name: cut(name, 24) for name in lines}
    xs = [px for points in lines.values() for px, _ in points]
    ys = [py for points in lines.values() for _, py in points]
    # A single value is shown relative to zero.
    low = 0.0 if min(ys) == max(ys) > 0 else min(ys)
    x_ticks, y_ticks = ticks(min(xs), max(xs)), ticks(low, max(ys))
    left = left_of(y_ticks)
    right = width - max(62, 14 + CHARACTER * max(map(len, names.values())))
    across = Axis(x_ticks[0], x_ticks[-1], left, right)
    up = Axis(y_ticks[0], y_ticks[-1], height - BOTTOM, TOP)
    if all(value == int(value) for value in xs):  # no fractional epochs
        x_ticks = [value for value in x_ticks if value == int(value)]

    def parts() -> Iterator[Markup]:
        if shade:
            counts = [max(value, 0.5) for _, value in shade]
            log = Axis(min(counts) / 2, 2 * max(counts), up.start, up.end, log=True)
            outline = [(shade[0][0], log.low), *shade, (shade[-1][0], log.low)]
            area = _points((across.at(px), log.at(py)) for px, py in outline)
            yield element("polygon", class_="bar", points=area)
        yield from frame(across, up, x_ticks, y_ticks, x=x, y=y)
        for mark in marks:
            if across.low <= mark <= across.high:
                yield line(across.at(mark), up.end, across.at(mark), up.start, style="mark")
        ends = []
        for position, (name, points) in enumerate(lines.items()):
            style = (styles or {}).get(name, series(position))
            places = [(across.at(px), up.at(py)) for px, py in _thinned(points)]
            yield element("polyline", class_=f"line {style}", points=_points(places))
            if len(places) <= MARKED:
                radius = 3.5 if len(places) == 1 else 2.5
                yield from (disc(*place, radius, style=f"solid {style}") for place in places)
            ends.append((places[-1][1], names[name], style))
        for at, name, style in _apart(ends, lowest=up.start):
            yield text(right + 8, at + 4, name, anchor="start", style=f"label {style}")

    words = "; ".join(
        f"{name} goes from {points[0][1]:.3g} to {points[-1][1]:.3g}"
        for name, points in lines.items()
    )
    words = f"{y} over {x}: {words}."
    return drawing(parts(), title=title, words=words, width=width, height=height)


def line_file(lines: Mapping[str, Line], *, x: str, y: str) -> str:
    """A line plot as the content of a file."""
    title = f"{y} over {x}"
    return standalone(line_plot(lines, title=title, x=x, y=y, width=640, height=400))


class Bar(NamedTuple):
    """A bar: name, value with an interval, and the text after it."""

    name: str
    value: float | None
    text: str
    low: float | None = None
    high: float | None = None
    style: str = "s1"


def bar_chart(
    bars: Sequence[Bar], *, title: str, unit: str, highest: float = 100.0, width: float = WIDTH
) -> Markup:
    """Horizontal bars, one below the other, with their text at the end.

    Args:
        bars: From top to bottom.
        title: Above the bars.
        unit: Of the values, in the description.
        highest: The value at the right end.
        width: In pixels.

    >>> "A: 61.0" in bar_chart([Bar("A", 61.0, "61.0", 60.0, 62.0)], title="few", unit="%")
    True
    """
    left, row, top = 14 + 7.5 * max(len(bar.name) for bar in bars), 26, 26
    after = 16 + CHARACTER * max(len(bar.text) for bar in bars)
    across = Axis(0, highest, left, width - after)

    def parts() -> Iterator[Markup]:
        yield text(2, 13, title, anchor="start")
        for position, bar in enumerate(bars):
            y = top + row * position
            yield text(left - 8, y + 14, bar.name, anchor="end", style=f"label {bar.style}")
            if bar.value is None:
                yield text(left, y + 14, bar.text, anchor="start", style="faint")
                continue
            end = across.at(max(0.0, bar.value))
            yield rect(left, y + 3, max(end - left, 0.5), 14, style=f"solid pale {bar.style}")
            if bar.low is not None and bar.high is not None:
                low, high = (
                    across.at(min(max(0.0, bound), highest)) for bound in (bar.low, bar.high)
                )
                path = f"M{low:.1f} {y + 10}H{high:.1f}M{low:.1f} {y + 6}v8M{high:.1f} {y + 6}v8"
                yield element("path", class_=f"whisker {bar.style}", d=path)
                end = max(end, high)
            yield text(end + 6, y + 14, bar.text, anchor="start")

    words = f"In {unit}. {'; '.join(f'{bar.name}: {bar.text}' for bar in bars)}."
    height = top + row * len(bars) + 4
    return drawing(parts(), title=title, words=words, width=width, height=height)


class Thumbnail(NamedTuple):
    """An image: data URI, alternative text, and the label below it."""

    address: str
    alt: str
    label: str = ""


def image_grid(
    images: Sequence[Thumbnail],
    *,
    title: str,
    rows: int = 1,
    wide: float = 128,
    high: float = 128,
) -> Markup:
    """Images in columns of `rows`, with their labels below, or left of a row that shares one.

    Args:
        images: Column by column.
        title: What the images show.
        rows: Number of images in a column.
        wide: Width of an image in pixels.
        high: Height of an image in pixels.

    >>> image_grid([Thumbnail("data:", "a cat", "cat")] * 6, title="t", rows=2).count(">cat<")
    2
    """
    gap, foot = 8, 22
    labels = [{one.label for one in images[row::rows]} if rows > 1 else () for row in range(rows)]
    shared = [next(iter(given)) if len(given) == 1 else "" for given in labels]
    left = max((gap + CHARACTER * len(label) for label in shared if label), default=0)

    def parts() -> Iterator[Markup]:
        for row, label in enumerate(shared):
            yield text(0, row * (high + foot) + high / 2, label, anchor="start")
        for position, one in enumerate(images):
            row = position % rows
            x, y = left + position // rows * (wide + gap), row * (high + foot)
            yield image(one.address, x, y, wide, high)
            if not shared[row]:
                yield text(x + wide / 2, y + high + 15, cut(one.label, 20))

    columns = -(-len(images) // rows)
    size = {"width": left + columns * (wide + gap) - gap, "height": rows * (high + foot)}
    words = "; ".join(" ".join(filter(None, (one.alt, one.label))) for one in images)
    return drawing(parts(), title=title, words=f"{words}.", **size)


def _apart(
    ends: Iterable[tuple[float, str, str]], *, lowest: float, gap: float = 15
) -> list[tuple[float, str, str]]:
    """Move labels apart as little as possible to avoid overlap, none below `lowest`."""
    placed = sorted(ends)
    for here in range(1, len(placed)):
        at, name, style = placed[here]
        placed[here] = (max(at, placed[here - 1][0] + gap), name, style)
    for here in reversed(range(len(placed))):
        at, name, style = placed[here]
        placed[here] = (min(at, lowest), name, style)
        lowest = placed[here][0] - gap
    return placed


def _thinned(points: Line) -> Line:
    if len(points) <= POINTS:
        return points
    return [points[round(step * (len(points) - 1) / (POINTS - 1))] for step in range(POINTS)]


def _points(places: Iterable[tuple[float, float]]) -> str:
    return " ".join(f"{x:.1f},{y:.1f}" for x, y in places)


def _rounded(value: str | float) -> str:
    return value if isinstance(value, str) else f"{round(value, 2):g}"


@cache
def _style() -> str:
    """The rules of `svg.css` for drawings, with its light colours in place of variables."""
    sheet = (Path(__file__).parent / "templates" / "svg.css").read_text(encoding="utf-8")
    palette, _, rules = sheet.partition("/* Drawings.")
    light = dict(re.findall(r"--(\w+): (#\w+)", palette.partition("@media")[0]))
    return re.sub(r"var\(--(\w+)\)", lambda match: light[match[1]], rules.partition("*/")[2])
