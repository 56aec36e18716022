"""Drawings inside a page: SVG in the page's own colours, which follow light and dark, with words for those who do not see them."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from markupsafe import Markup, escape

from longtail.report.charts import Line, ticks

WIDTH, HEIGHT = 340, 230
RIGHT, TOP, BOTTOM = 62, 30, 40
POINTS = 240  # of a line; more cannot be seen and would make the file large

GROUPS = {"balanced": "s6", "many": "s0 d3", "medium": "s0 d2", "few": "s1"}
"""How the lines of the groups are drawn: the tail, which matters most here, in the accent colour; each with a dash of its own."""


class Bar(NamedTuple):
    """A bar with its name, how far it is known, and what is written after it."""

    name: str
    value: float | None
    text: str
    low: float | None = None
    high: float | None = None
    style: str = "s1"


class Spot(NamedTuple):
    """A class: how often it was seen in training, how often it is recognised, and within which bounds that is known."""

    name: str
    group: str
    images: int
    recall: float | None
    low: float | None
    high: float | None


@dataclass(frozen=True)
class _Axes:
    """A place on the paper for every pair of numbers."""

    x: Sequence[float]  # ticks
    y: Sequence[float]
    width: float = WIDTH
    height: float = HEIGHT
    right: float = RIGHT

    @property
    def left(self) -> float:
        return 12 + 7.2 * max(len(f"{value:g}") for value in self.y)

    def at(self, x: float, y: float) -> tuple[float, float]:
        wide, tall = self.width - self.left - self.right, self.height - TOP - BOTTOM
        return self.left + wide * (x - self.x[0]) / (self.x[-1] - self.x[0]), TOP + tall * (
            self.y[-1] - y
        ) / (self.y[-1] - self.y[0])

    def grid(self, *, x: str, y: str, whole: bool = False) -> Iterator[str]:
        """Lines with their numbers; `whole` leaves out numbers along the bottom that are not whole, such as half an epoch."""
        for value in self.y:
            left, height = self.at(self.x[0], value)
            yield f'<line class="grid" x1="{left:g}" x2="{self.width - self.right:g}" y1="{height:.1f}" y2="{height:.1f}"/>'
            yield _text(left - 7, height + 4, f"{value:g}", anchor="end", style="faint")
        for value in self.x:
            if not whole or value == int(value):
                yield _text(
                    self.at(value, self.y[0])[0],
                    self.height - BOTTOM + 17,
                    f"{value:g}",
                    style="faint",
                )
        yield _text(
            self.left + (self.width - self.left - self.right) / 2, self.height - 6, x, style="faint"
        )
        yield _text(2, 13, y, anchor="start", style="faint")


def lines(
    found: Mapping[str, Line],
    *,
    title: str,
    x: str,
    y: str,
    styles: Mapping[str, str] | None = None,
    within: tuple[float, float] | None = None,
    marks: Sequence[float] = (),
) -> Markup:
    """Lines with their names at their ends; `within` holds the vertical axis to a range, `marks` are dashed lines from top to bottom.

    >>> "few goes from 10 to 30" in lines({"few": [(1, 10.0), (2, 30.0)]}, title="accuracy", x="epoch", y="%")
    True
    """
    across = [px for line in found.values() for px, _ in line]
    up = [py for line in found.values() for _, py in line]
    right = max(RIGHT, 14 + 7.2 * max(map(len, found)))
    low, high = within or (min(up), max(up))
    low = (
        0.0 if low == high > 0 else low
    )  # a single number stands above zero, not in the middle of nowhere
    axes = _Axes(ticks(min(across), max(across)), ticks(low, high), right=right)

    def parts() -> Iterator[str]:
        yield from axes.grid(x=x, y=y, whole=all(px == int(px) for px in across))
        for mark in marks:
            if axes.x[0] <= mark <= axes.x[-1]:
                (left, top), (_, bottom) = axes.at(mark, axes.y[-1]), axes.at(mark, axes.y[0])
                yield f'<line class="mark" x1="{left:.1f}" x2="{left:.1f}" y1="{top:.1f}" y2="{bottom:.1f}"/>'
        ends: list[tuple[float, str, str]] = []
        for number, (name, line) in enumerate(found.items()):
            style = (styles or {}).get(name, series(number))
            places = [axes.at(*point) for point in _thinned(line)]
            if len(places) == 1:
                yield f'<circle class="solid {style}" cx="{places[0][0]:.1f}" cy="{places[0][1]:.1f}" r="3.5"/>'
            yield f'<polyline class="line {style}" points="{" ".join(f"{px:.1f},{py:.1f}" for px, py in places)}"/>'
            ends.append((places[-1][1], name, style))
        for height, name, style in _apart(ends):
            yield _text(
                axes.width - right + 8, height + 4, name, anchor="start", style=f"label {style}"
            )

    words = "; ".join(
        f"{name} goes from {_short(line[0][1])} to {_short(line[-1][1])}"
        for name, line in found.items()
    )
    return _svg(parts(), title=title, words=f"{y} over {x}: {words}.")


def bars(
    found: Sequence[Bar], *, title: str, unit: str, highest: float = 100.0, width: float = WIDTH
) -> Markup:
    """Bars to the right, one below the other, with their numbers behind them.

    >>> "A: 61.0" in bars([Bar("A", 61.0, "61.0", 60.0, 62.0)], title="few", unit="%")
    True
    """
    left, row, top = 14 + 7.5 * max(len(bar.name) for bar in found), 26, 26
    after = 16 + 7.2 * max(len(bar.text) for bar in found)
    scale = (width - left - after) / highest

    def parts() -> Iterator[str]:
        yield _text(2, 13, title, anchor="start")
        for number, bar in enumerate(found):
            y = top + row * number
            yield _text(left - 8, y + 14, bar.name, anchor="end", style=f"label {bar.style}")
            if bar.value is None:
                yield _text(left, y + 14, bar.text, anchor="start", style="faint")
                continue
            end = left + scale * max(0.0, bar.value)
            wide = max(end - left, 0.5)
            yield f'<rect class="solid {bar.style}" x="{left:.1f}" y="{y + 3}" width="{wide:.1f}" height="14" rx="1" opacity=".55"/>'
            if bar.low is not None and bar.high is not None:
                low, high = (
                    left + scale * min(max(0.0, bound), highest) for bound in (bar.low, bar.high)
                )
                yield f'<path class="whisker {bar.style}" d="M{low:.1f} {y + 10}H{high:.1f}M{low:.1f} {y + 6}v8M{high:.1f} {y + 6}v8"/>'
                end = max(end, high)
            yield _text(end + 6, y + 14, bar.text, anchor="start")

    words = "; ".join(f"{bar.name}: {bar.text}" for bar in found)
    return _svg(
        parts(),
        title=title,
        words=f"In {unit}. {words}.",
        width=width,
        height=top + row * len(found) + 4,
    )


def band(measured: float, published: float, *, low: float, high: float, title: str) -> Markup:
    """A number on a short axis, with the band it should fall into; all in percent.

    >>> "this run 80.5, published 80.4, band 79.4 to 81.4" in band(80.5, 80.4, low=79.4, high=81.4, title="accuracy")
    True
    """
    marks = ticks(min(low, measured) - 0.5, max(high, measured) + 0.5)
    wide = (WIDTH - 40) / (marks[-1] - marks[0])

    def at(value: float) -> float:
        return 20 + wide * (value - marks[0])

    def parts() -> Iterator[str]:
        yield _text(2, 13, f"{title}, %", anchor="start", style="faint")
        yield f'<rect class="bar" x="{at(low):.1f}" y="46" width="{wide * (high - low):.1f}" height="26"/>'
        yield f'<line class="axis" x1="20" x2="{WIDTH - 20}" y1="72" y2="72"/>'
        for value in marks:
            yield _text(at(value), 88, f"{value:g}", style="faint")
        yield f'<line class="whisker s0" x1="{at(published):.1f}" x2="{at(published):.1f}" y1="42" y2="72"/>'
        yield f'<circle class="solid s1" cx="{at(measured):.1f}" cy="59" r="5.5"/>'
        near = at(measured) > WIDTH / 2
        yield _text(
            at(measured),
            36,
            f"this run {measured:.1f}",
            anchor="end" if near else "start",
            style="label s1",
        )

    words = f"In percent: this run {measured:.1f}, published {published:.1f}, band {low:.1f} to {high:.1f}."
    return _svg(parts(), title=title, words=words, height=96)


def classes(found: Sequence[Spot], *, title: str) -> Markup:
    """Two pictures over one row of classes, from frequent to rare: how often each is recognised, and below how often it was seen.

    >>> "truck: recall 50%, known to lie between 30% and 70%; 45 training images, few" in classes(
    ...     [Spot("truck", "few", 45, 0.5, 0.3, 0.7)], title="classes")
    True
    """
    width, left, split, bottom = 880.0, 56, 210.0, 330.0
    step = (width - left - 14) / len(found)
    most = max(2, max(spot.images for spot in found))
    powers = [10**power for power in range(7) if 10**power <= most]
    named = len(found) <= 24
    height = bottom + (86 if named and max(len(spot.name) for spot in found) > step / 7 else 26)

    def up(share: float) -> float:
        return split - (split - TOP) * share

    def down(count: int) -> float:  # logarithmic: the tail would vanish otherwise
        return (
            bottom - (bottom - split - 34) * (0.06 + 0.94 * math.log(count) / math.log(most))
            if count
            else bottom
        )

    def parts() -> Iterator[str]:
        yield _text(
            2, 13, "recall on each class, %, with its 95% interval", anchor="start", style="faint"
        )
        yield _text(2, split + 24, "training images, logarithmic", anchor="start", style="faint")
        for share in (0, 0.25, 0.5, 0.75, 1):
            yield f'<line class="grid" x1="{left}" x2="{width - 14:g}" y1="{up(share):.1f}" y2="{up(share):.1f}"/>'
            yield _text(left - 7, up(share) + 4, f"{100 * share:g}", anchor="end", style="faint")
        for power in powers:
            yield f'<line class="grid" x1="{left}" x2="{width - 14:g}" y1="{down(power):.1f}" y2="{down(power):.1f}"/>'
            yield _text(left - 7, down(power) + 4, f"{power:,}", anchor="end", style="faint")
        for number, spot in enumerate(found):
            x = left + step * (number + 0.5)
            style = "s1" if spot.group == "few" else "s0"
            yield f"<g class='{style}'><title>{_safe(_sentence(spot))}</title>"
            yield f'<rect x="{x - step / 2:.1f}" y="{TOP}" width="{step:.1f}" height="{bottom - TOP:g}" fill="transparent"/>'
            thick = min(step * 0.7, 40)
            yield f'<rect class="{"solid" if spot.group == "few" else "bar"}" x="{x - thick / 2:.1f}" y="{down(spot.images):.1f}" '
            yield f'width="{thick:.1f}" height="{bottom - down(spot.images):.1f}"/>'
            if spot.low is not None and spot.high is not None:
                yield f'<line class="whisker" x1="{x:.1f}" x2="{x:.1f}" y1="{up(spot.low):.1f}" y2="{up(spot.high):.1f}"/>'
            if spot.recall is not None:
                yield _mark(spot.group, x, up(spot.recall), min(4.5, 1.5 + step / 4))
            yield "</g>"
            if named and height > bottom + 30:
                name = _text(0, 0, _cut(spot.name, 14), anchor="end")
                yield f'<g transform="translate({x + 4:.1f} {bottom + 12:g}) rotate(-40)">{name}</g>'
            elif named:
                yield _text(x, bottom + 16, _cut(spot.name, 14))

    seen = [spot for spot in found if spot.recall is not None]
    words = "; ".join(
        _sentence(spot) for spot in (seen if len(seen) <= 12 else [*seen[:3], *seen[-3:]])
    )
    words = f"From the most frequent class to the rarest. {words}. The table of classes has all the numbers."
    return _svg(parts(), title=title, words=words, width=width, height=height)


def reliability(
    confidence: Sequence[float | None],
    accuracy: Sequence[float | None],
    images: Sequence[int],
    *,
    title: str,
) -> Markup:
    """How often answers of a certain confidence are right: on the diagonal confidence is honest, below it too high.

    >>> "of 10 answers with a confidence near 90%, 50% are right" in reliability([None, 0.9], [None, 0.5], [0, 10], title="few")
    True
    """
    axes = _Axes([0, 25, 50, 75, 100], [0, 25, 50, 75, 100], width=240, height=240, right=14)
    bins = [
        (sure, right, count)
        for sure, right, count in zip(confidence, accuracy, images, strict=True)
        if sure is not None and right is not None
    ]

    def parts() -> Iterator[str]:
        yield from axes.grid(x="confidence, %", y=title)
        (left, low), (right, high) = axes.at(0, 0), axes.at(100, 100)
        yield f'<line class="axis d2" x1="{left:g}" y1="{low:g}" x2="{right:g}" y2="{high:g}"/>'
        for sure, share, count in bins:
            x, y = axes.at(100 * sure, 100 * share)
            radius = 1.5 + 8 * (count / max(images)) ** 0.5
            yield f'<circle class="solid s1" cx="{x:.1f}" cy="{y:.1f}" r="{radius:.1f}" opacity=".8">'
            yield f"<title>{_safe(_bin(sure, share, count))}</title></circle>"

    words = "; ".join(_bin(*own) for own in sorted(bins, key=lambda own: -own[2])[:4])
    return _svg(
        parts(),
        title=f"Reliability: {title}",
        words=f"Most answers: {words}.",
        width=240,
        height=240,
    )


def series(number: int) -> str:
    """The look of line `number` in a drawing of many: nine colours, and another dash in each round.

    >>> series(0), series(9)
    ('s1', 's1 d2')
    """
    return f"s{number % 9 + 1}" + ("", " d2", " d3")[number // 9 % 3]


def _svg(
    parts: Iterable[str], *, title: str, words: str, width: float = WIDTH, height: float = HEIGHT
) -> Markup:
    name, body = _safe(title), "".join(parts)
    # Nothing in `parts` comes from outside but through _safe.
    named = f'role="img" aria-label="{name}"><title>{name}</title><desc>{_safe(words)}</desc>'
    return Markup(f'<svg viewBox="0 0 {width:g} {height:g}" {named}{body}</svg>')


def _text(x: float, y: float, words: str, *, anchor: str = "middle", style: str = "") -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}"{f" class={chr(34)}{style}{chr(34)}" if style else ""}>{_safe(words)}</text>'


def _safe(words: str) -> str:
    return str(escape(words))


def _mark(group: str, x: float, y: float, size: float) -> str:
    """A disc for few, a square for medium, a ring for many: no meaning rests on colour alone."""
    if group == "medium":
        return f'<rect class="solid" x="{x - size * 0.8:.1f}" y="{y - size * 0.8:.1f}" width="{size * 1.6:.1f}" height="{size * 1.6:.1f}"/>'
    ring = ' fill="none" class="whisker"' if group == "many" else ' class="solid"'
    return f'<circle cx="{x:.1f}" cy="{y:.1f}" r="{size:.1f}"{ring}/>'


def _sentence(spot: Spot) -> str:
    known = (
        ""
        if spot.low is None or spot.high is None
        else f", known to lie between {spot.low:.0%} and {spot.high:.0%}"
    )
    recall = (
        "no images to judge it by" if spot.recall is None else f"recall {spot.recall:.0%}{known}"
    )
    return f"{spot.name}: {recall}; {spot.images:,} training images, {spot.group}"


def _bin(sure: float, right: float, count: int) -> str:
    return f"of {count:,} answers with a confidence near {sure:.0%}, {right:.0%} are right"


def _apart(ends: Sequence[tuple[float, str, str]], gap: float = 15) -> list[tuple[float, str, str]]:
    """Names as near to their heights as they can be when none is nearer to another than `gap`, and none is below the drawing."""
    placed = sorted(ends)
    for number in range(1, len(placed)):
        height, name, style = placed[number]
        placed[number] = (max(height, placed[number - 1][0] + gap), name, style)
    lowest = float(HEIGHT - BOTTOM)
    for number in reversed(range(len(placed))):
        height, name, style = placed[number]
        placed[number] = (min(height, lowest), name, style)
        lowest = placed[number][0] - gap
    return placed


def _thinned(line: Line) -> Line:
    if len(line) <= POINTS:
        return line
    return [line[round(number * (len(line) - 1) / (POINTS - 1))] for number in range(POINTS)]


def _short(value: float) -> str:
    return f"{value:.3g}"


def _cut(name: str, most: int) -> str:
    return name if len(name) <= most else name[: most - 1] + "…"
