"""Charts of scores and classes: reliability, recall, training images, a result in its band."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from markupsafe import Markup

from longtail.report import svg
from longtail.report.svg import Axis


def reliability_diagram(
    confidence: Sequence[float | None],
    accuracy: Sequence[float | None],
    images: Sequence[int],
    *,
    title: str,
) -> Markup:
    """Accuracy over confidence: calibrated on the diagonal, overconfident below it.

    >>> chart = reliability_diagram([None, 0.9], [None, 0.5], [0, 10], title="few")
    >>> "of 10 predictions with a confidence near 90%, 50% are correct" in chart
    True
    """
    side, values = 240, [0, 25, 50, 75, 100]
    left, right = svg.left_of(values), side - 14
    across, up = Axis(0, 100, left, right), Axis(0, 100, side - svg.BOTTOM, svg.TOP)
    bins = [
        (sure, correct, count)
        for sure, correct, count in zip(confidence, accuracy, images, strict=True)
        if sure is not None and correct is not None
    ]

    def parts() -> Iterator[Markup]:
        yield from svg.frame(across, up, values, values, x="confidence, %", y=title)
        yield svg.line(left, up.start, right, up.end, style="axis d2")
        for sure, correct, count in bins:
            place = across.at(100 * sure), up.at(100 * correct)
            radius, words = 1.5 + 8 * (count / max(images)) ** 0.5, _bin(sure, correct, count)
            yield svg.disc(*place, radius, svg.element("title", words), style="solid s1 dim")

    words = "; ".join(_bin(*row) for row in sorted(bins, key=lambda row: -row[2])[:4])
    words = f"Largest bins: {words}."
    return svg.drawing(parts(), title=f"Reliability: {title}", words=words, width=side, height=side)


def _bin(sure: float, correct: float, count: int) -> str:
    return f"of {count:,} predictions with a confidence near {sure:.0%}, {correct:.0%} are correct"


def band_plot(measured: float, published: float, *, low: float, high: float, title: str) -> Markup:
    """A result in percent on a short axis, with the published number and its band.

    Args:
        measured: The result.
        published: The published number.
        low: Lower end of the band.
        high: Upper end of the band.
        title: What is measured.

    >>> chart = band_plot(80.5, 80.4, low=79.4, high=81.4, title="accuracy")
    >>> "this run 80.5, published 80.4, band 79.4 to 81.4" in chart
    True
    """
    values = svg.ticks(min(low, measured) - 0.5, max(high, measured) + 0.5)
    axis = Axis(values[0], values[-1], 20, svg.WIDTH - 20)
    at = axis.at(measured)
    anchor = "end" if at > svg.WIDTH / 2 else "start"
    parts = [
        svg.text(2, 13, f"{title}, %", anchor="start", style="faint"),
        svg.rect(axis.at(low), 46, axis.at(high) - axis.at(low), 26, style="bar"),
        svg.line(20, 72, svg.WIDTH - 20, 72, style="axis"),
        *svg.x_numbers(axis, values, 71),
        svg.line(axis.at(published), 42, axis.at(published), 72, style="whisker s0"),
        svg.disc(at, 59, 5.5, style="solid s1"),
        svg.text(at, 36, f"this run {measured:.1f}", anchor=anchor, style="label s1"),
    ]
    words = f"In percent: this run {measured:.1f}, published {published:.1f}"
    words = f"{words}, band {low:.1f} to {high:.1f}."
    return svg.drawing(parts, title=title, words=words, height=96)


class ClassScore(NamedTuple):
    """A class: group, number of training images, and recall with its interval."""

    name: str
    group: str
    images: int
    recall: float | None
    low: float | None
    high: float | None


def class_chart(classes: Sequence[ClassScore], *, title: str) -> Markup:
    """Recall and number of training images by class, from frequent to rare.

    >>> chart = class_chart([ClassScore("truck", "few", 45, 0.5, 0.3, 0.7)], title="classes")
    >>> words = "truck: recall 50%, 95% interval 30% to 70%; 45 training images, few"
    >>> words in chart
    True
    """
    width, left, split, bottom = 880, 56, 210, 330
    across = Axis(-0.5, len(classes) - 0.5, left, width - 14)
    step = across.at(1) - across.at(0)
    up = Axis(0, 100, split, svg.TOP)
    down = count_axis(max(one.images for one in classes), start=bottom, end=split + 34)
    named = len(classes) <= 24
    slanted = named and max(len(one.name) for one in classes) > step / 7

    def parts() -> Iterator[Markup]:
        for y, words in (
            (13, "recall per class, %, with its 95% interval"),
            (split + 24, "training images, log scale"),
        ):
            yield svg.text(2, y, words, anchor="start", style="faint")
        yield from svg.y_grid(up, (0, 25, 50, 75, 100), left=left, right=width - 14)
        yield from svg.y_grid(down, powers(down.high), left=left, right=width - 14)
        for position, one in enumerate(classes):
            x, name = across.at(position), svg.cut(one.name, 14)
            yield svg.element(
                "g", *_class(one, x, step, up, down), class_="s1" if one.group == "few" else "s0"
            )
            if slanted:
                turned = f"translate({x + 4:.1f} {bottom + 12}) rotate(-40)"
                yield svg.element("g", svg.text(0, 0, name, anchor="end"), transform=turned)
            elif named:
                yield svg.text(x, bottom + 16, name)

    known = [one for one in classes if one.recall is not None]
    words = "; ".join(map(_sentence, known if len(known) <= 12 else [*known[:3], *known[-3:]]))
    words = f"From the most frequent class to the rarest. {words}."
    words = f"{words} The table of classes has all the numbers."
    height = bottom + (86 if slanted else 26)
    return svg.drawing(parts(), title=title, words=words, width=width, height=height)


def _class(one: ClassScore, x: float, step: float, up: Axis, down: Axis) -> Iterator[Markup]:
    """The bar and the marker of a class, with its numbers as a tooltip."""
    yield svg.element("title", _sentence(one))
    hover = {"x": x - step / 2, "y": up.end, "width": step, "height": down.start - up.end}
    yield svg.element("rect", fill="transparent", **hover)
    thick, top = min(step * 0.7, 40), down.at(one.images)
    style = "solid" if one.group == "few" else "bar"
    yield svg.rect(x - thick / 2, top, thick, down.start - top, style=style)
    if one.low is not None and one.high is not None:
        yield svg.line(x, up.at(100 * one.low), x, up.at(100 * one.high), style="whisker")
    if one.recall is not None:
        yield group_mark(one.group, x, up.at(100 * one.recall), min(4.5, 1.5 + step / 4))


def group_mark(group: str, x: float, y: float, size: float) -> Markup:
    """A disc for few, a square for medium, a ring for many, to be readable without colour."""
    if group == "medium":
        return svg.rect(x - size * 0.8, y - size * 0.8, size * 1.6, size * 1.6, style="solid")
    return svg.disc(x, y, size, style="whisker" if group == "many" else "solid")


def _sentence(one: ClassScore) -> str:
    recall = "no images for evaluation" if one.recall is None else f"recall {one.recall:.0%}"
    if one.recall is not None and one.low is not None and one.high is not None:
        recall += f", 95% interval {one.low:.0%} to {one.high:.0%}"
    return f"{one.name}: {recall}; {one.images:,} training images, {one.group}"


def class_histogram(
    classes: Sequence[Mapping[str, Any]], *, styles: Mapping[str, str], width: float = 700
) -> Markup:
    """Images per class, given from the largest to the smallest, on a log scale.

    >>> classes = [{"name": "a", "source": 90, "group": "many"}]
    >>> class_histogram(classes, styles={"many": "s3"}).count("<rect")
    1
    """
    height, left = 240, 46
    first, last = classes[0], classes[-1]
    up = count_axis(first["source"], start=height - 24, end=14)
    across = Axis(0, len(classes), left, width)
    step = across.at(1) - left

    def parts() -> Iterator[Markup]:
        yield from svg.y_grid(up, powers(up.high), left=left, right=width)
        for rank, one in enumerate(classes):
            top, style = up.at(one["source"]), styles.get(one["group"], "s1")
            size = across.at(rank), top, step - min(1.0, step / 5), up.start - top
            words = f"{one['name']}: {one['source']:,} images, {one['group']}"
            yield svg.rect(*size, svg.element("title", words), style=f"solid {style}")
        for x, one, anchor in ((left, first, "start"), (width, last, "end")):
            yield svg.text(x, height - 6, svg.cut(one["name"], 32), anchor=anchor, style="faint")

    words = f"From {first['name']} with {first['source']:,} to {last['name']} with"
    words = f"{words} {last['source']:,}."
    return svg.drawing(parts(), title="Images per class", words=words, width=width, height=height)


def count_axis(most: int, *, start: float, end: float) -> Axis:
    """A log axis for numbers of images, so that small classes are visible.

    It starts at 0.5, so that a class with one image has a bar.
    """
    return Axis(0.5, max(most, 2), start, end, log=True)


def powers(most: float) -> list[int]:
    """The powers of ten up to a number.

    >>> powers(120)
    [1, 10, 100]
    """
    return [10**power for power in range(len(str(int(most))))]
