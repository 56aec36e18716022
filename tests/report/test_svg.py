"""Drawings are XML with a title and a description, place numbers where they belong, and escape."""

from __future__ import annotations

import itertools
import re
import xml.etree.ElementTree as ET
from collections.abc import Sequence

import pytest
from markupsafe import Markup

from longtail.report import svg
from longtail.report.svg import Axis, Bar, Thumbnail

EVIL = '<script>alert("1")</script>'


def tree(drawing: Markup) -> ET.Element:
    """A drawing of a page, which is escaped, named and described."""
    assert isinstance(drawing, Markup)
    root = ET.fromstring(drawing)
    assert root.tag == "svg"
    assert root.attrib["role"] == "img"
    assert root.findtext("title") == root.attrib["aria-label"] != ""
    assert root.findtext("desc")
    return root


def texts(drawing: Markup) -> list[str]:
    return [element.text or "" for element in tree(drawing).iter("text")]


def everything(drawing: Markup) -> str:
    return " ".join(tree(drawing).itertext())


def places(line: ET.Element) -> list[tuple[float, float]]:
    return [
        (float(x), float(y))
        for x, y in (point.split(",") for point in line.attrib["points"].split())
    ]


def inside(root: ET.Element) -> None:
    """Assert that all shapes lie inside of the frame."""
    _, _, width, height = map(float, root.attrib["viewBox"].split())
    sides = dict.fromkeys(("x", "x1", "x2", "cx"), width) | dict.fromkeys(
        ("y", "y1", "y2", "cy"), height
    )
    for element in root.iter():
        for key, most in sides.items():
            if key in element.attrib and element.tag != "text":
                assert 0 <= float(element.attrib[key]) <= most, (element.tag, element.attrib)


ALL = {
    "line_plot": svg.line_plot(
        {EVIL: [(1, 2.0), (2, 3.0)]},
        title=EVIL,
        x=EVIL,
        y=EVIL,
        marks=[1.5],
        shade=[(1, 100), (2, 0)],
    ),
    "bar_chart": svg.bar_chart(
        [Bar(EVIL, 3.0, EVIL, 1.0, 4.0), Bar("none", None, "no images")], title=EVIL, unit=EVIL
    ),
    "image_grid": svg.image_grid([Thumbnail("data:,", EVIL, EVIL)] * 3, title=EVIL, rows=2),
}


@pytest.mark.parametrize("name", ALL)
def test_every_plot_escapes_what_it_is_given_and_stays_inside_of_its_frame(name: str) -> None:
    assert not list(tree(ALL[name]).iter("script"))
    assert EVIL in everything(ALL[name])
    assert "<script" not in ALL[name]
    inside(tree(ALL[name]))


def test_attributes_are_escaped_and_numbers_rounded() -> None:
    made = svg.element("image", href='a"b<c', x=1 / 3, aria_label="x")
    assert made == '<image href="a&#34;b&lt;c" x="0.33" aria-label="x"/>'


@pytest.mark.parametrize(
    ("axis", "value", "pixel"),
    [
        (Axis(0, 10, 100, 200), 2.5, 125),
        (Axis(0, 10, 200, 100), 2.5, 175),
        (Axis(0.01, 100, 0, 40, log=True), 0.1, 10),
        (Axis(0.5, 100, 300, 200, log=True), 0, 300),
    ],
)
def test_an_axis_places_values(axis: Axis, value: float, pixel: float) -> None:
    assert axis.at(value) == pytest.approx(pixel)


@pytest.mark.parametrize(("low", "high"), [(0, 1), (0.013, 0.014), (-3, 900), (5, 5), (1, 20)])
def test_ticks_cover_the_range_and_are_few(low: float, high: float) -> None:
    values = svg.ticks(low, high)
    assert values[0] <= low + 1e-9
    assert values[-1] >= high - 1e-9
    assert 3 <= len(values) <= 9
    steps = [second - first for first, second in itertools.pairwise(values)]
    assert steps == pytest.approx([steps[0]] * len(steps))


def test_points_lie_at_their_numbers_on_both_axes() -> None:
    root = tree(svg.line_plot({"a": [(1, 10.0), (2, 30.0), (3, 20.0)]}, title="t", x="x", y="y"))
    labels = {
        (element.text, element.attrib["text-anchor"]): element.attrib
        for element in root.iter("text")
    }
    (line,) = root.iter("polyline")
    for x, y, place in zip(("1", "2", "3"), ("10", "30", "20"), places(line), strict=True):
        assert place[0] == pytest.approx(float(labels[x, "middle"]["x"]), abs=0.1)
        assert place[1] == pytest.approx(float(labels[y, "end"]["y"]) - 4, abs=0.1)


def test_names_keep_apart_and_a_single_point_is_a_disc() -> None:
    lines = {"a": [(1, 1.0), (2, 3.0)], "b": [(1, 3.0), (2, 2.99)], "c": [(2, 2.98)]}
    root = tree(svg.line_plot(lines, title="t", x="x", y="y"))
    assert [len(places(element)) for element in root.iter("polyline")] == [2, 2, 1]
    assert [element.attrib["r"] for element in root.iter("circle")] == ["2.5"] * 4 + ["3.5"]
    heights = sorted(
        float(element.attrib["y"]) for element in root.iter("text") if element.text in lines
    )
    assert min(second - first for first, second in itertools.pairwise(heights)) >= 14.9
    assert heights[0] >= svg.TOP, "none above the plot"
    crowd = {f"line {n}": [(1, 0.0), (2, 0.0)] for n in range(9)}
    lowest = max(
        float(element.attrib["y"])
        for element in tree(svg.line_plot(crowd, title="t", x="x", y="y")).iter("text")
        if element.text in crowd
    )
    assert lowest <= svg.HEIGHT - svg.BOTTOM + 4


def test_many_points_are_thinned_with_both_ends() -> None:
    line = [(float(x), float(x % 7)) for x in range(5000)]
    root = tree(svg.line_plot({"a": line}, title="t", x="x", y="y"))
    (drawn,) = root.iter("polyline")
    assert len(places(drawn)) == svg.POINTS
    assert not list(root.iter("circle"))
    assert svg._thinned(line)[0] == line[0]
    assert svg._thinned(line)[-1] == line[-1]


def test_one_number_stands_above_zero_and_epochs_are_integers() -> None:
    assert texts(svg.line_plot({"a": [(1, 0.1)]}, title="t", x="epoch", y="y"))[0] == "0"
    shown = texts(svg.line_plot({"a": [(1, 0.0), (2, 0.0)]}, title="t", x="epoch", y="y"))
    assert "1" in shown
    assert "1.2" not in shown
    assert "1.2" in texts(svg.line_plot({"a": [(1, 0.0), (1.9, 0.0)]}, title="t", x="x", y="y"))


def test_marks_are_dashed_and_those_outside_are_left_out() -> None:
    root = tree(svg.line_plot({"a": [(1, 0.0), (3, 1.0)]}, title="t", x="x", y="y", marks=[2, 9]))
    (mark,) = (element for element in root.iter("line") if element.attrib["class"] == "mark")
    (line,) = root.iter("polyline")
    middle = sum(x for x, _ in places(line)) / 2
    assert float(mark.attrib["x1"]) == float(mark.attrib["x2"]) == pytest.approx(middle, abs=0.1)


def test_the_shade_is_logarithmic() -> None:
    counts = [(1, 1000.0), (2, 100.0), (3, 10.0)]
    root = tree(svg.line_plot({"a": [(1, 0.0), (3, 1.0)]}, title="t", x="x", y="y", shade=counts))
    (area,) = root.iter("polygon")
    heights = [y for _, y in places(area)]
    assert heights[2] - heights[1] == pytest.approx(heights[3] - heights[2], abs=0.2)
    assert heights[1] < heights[2] < heights[3] < heights[4] == heights[0]


def test_bars_are_as_long_as_their_numbers_and_whiskers_as_their_interval() -> None:
    bars = [Bar("A", 50.0, "50", 40.0, 60.0), Bar("B", 25.0, "25"), Bar("C", None, "no images")]
    drawing = svg.bar_chart(bars, title="t", unit="percent")
    long, short = (element.attrib for element in tree(drawing).iter("rect"))
    assert float(long["width"]) == pytest.approx(2 * float(short["width"]), rel=0.01)
    (whisker,) = tree(drawing).iter("path")
    ends = re.match(r"M([\d.]+) \d+H([\d.]+)", whisker.attrib["d"])
    assert ends is not None
    pixels = [float(long["x"]) + share * float(long["width"]) for share in (0.8, 1.2)]
    assert [float(end) for end in ends.groups()] == pytest.approx(pixels, abs=0.1)
    assert "C: no images" in everything(drawing)


def test_images_lie_in_columns() -> None:
    images = [Thumbnail("data:,", f"image {n}", str(n)) for n in range(5)]
    root = tree(svg.image_grid(images, title="t", rows=2))
    spots = [
        (float(element.attrib["x"]), float(element.attrib["y"])) for element in root.iter("image")
    ]
    assert spots[0][0] == spots[1][0] < spots[2][0] == spots[3][0] < spots[4][0]
    assert spots[0][1] == spots[2][1] == spots[4][1] < spots[1][1]
    _, _, width, height = map(float, root.attrib["viewBox"].split())
    assert width == spots[4][0] + float(next(root.iter("image")).attrib["width"])
    assert height > spots[1][1]


def test_a_label_of_a_complete_row_stands_once_beside_it() -> None:
    names = ("cat", "a long name", "dog", "a long name")
    images = [Thumbnail("data:,", "", name) for name in names]
    root = tree(svg.image_grid(images, title="t", rows=2))
    labels = [element.text for element in root.iter("text")]
    assert sorted(filter(None, labels)) == ["a long name", "cat", "dog"]
    spots = {float(element.attrib["x"]) for element in root.iter("image")}
    assert min(spots) >= svg.CHARACTER * len("a long name"), "no image lies on the label"


def test_a_file_is_a_drawing_whose_colours_need_no_page() -> None:
    content = svg.line_file({"a < b": [(0, 1), (1, 3)], "c": [(0, 3)]}, x="tau", y="accuracy, %")
    root = ET.fromstring(content)
    name = "{http://www.w3.org/2000/svg}"
    assert root.tag == f"{name}svg"
    assert {"a < b", "c", "tau", "accuracy, %"} <= {
        element.text for element in root.iter(f"{name}text")
    }
    style = root.findtext(f"{name}style") or ""
    assert ".s2 { color: #a8480f; }" in style, "the light palette"
    assert "var(" not in style
    used: Sequence[str] = [
        word for element in root.iter() for word in element.attrib.get("class", "").split()
    ]
    assert {"grid", "faint", "line", "s1", "s2"} <= set(used)
    assert all(f".{word} " in style for word in used)
