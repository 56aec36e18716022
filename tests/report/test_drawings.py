"""Drawings are XML with a title and a description, stay inside of their frame, and escape what they are given."""

from __future__ import annotations

import itertools
import xml.etree.ElementTree as ET

import pytest
from markupsafe import Markup

from longtail.report import drawings
from longtail.report.drawings import Bar, Spot

EVIL = '<script>alert("1")</script>'


def tree(drawing: Markup) -> ET.Element:
    assert isinstance(drawing, Markup)
    found = ET.fromstring(drawing)
    assert found.tag == "svg"
    assert found.attrib["role"] == "img"
    assert found.attrib["aria-label"]
    assert found.findtext("title") == found.attrib["aria-label"]
    assert found.findtext("desc")
    return found


def all_text(drawing: Markup) -> str:
    return " ".join(tree(drawing).itertext())


SPOTS = [
    Spot(
        f"class {n} {EVIL}",
        "many" if n < 3 else "few",
        1000 // (n + 1),
        n / 10,
        max(0, n / 10 - 0.1),
        n / 10 + 0.05,
    )
    for n in range(9)
]
ALL = {
    "lines": drawings.lines({EVIL: [(1, 2.0), (2, 3.0)]}, title=EVIL, x=EVIL, y=EVIL),
    "bars": drawings.bars(
        [Bar(EVIL, 3.0, EVIL, 1.0, 4.0), Bar("none", None, "no images")], title=EVIL, unit=EVIL
    ),
    "band": drawings.band(80.5, 80.0, low=79.0, high=81.0, title=EVIL),
    "classes": drawings.classes(SPOTS, title=EVIL),
    "reliability": drawings.reliability(
        [None, 0.5, 0.9], [None, 0.4, 0.95], [0, 3, 40], title=EVIL
    ),
}


@pytest.mark.parametrize("name", ALL)
def test_every_drawing_is_xml_with_words_and_escapes_what_it_is_given(name: str) -> None:
    assert not list(tree(ALL[name]).iter("script"))
    assert EVIL in all_text(ALL[name])
    assert "<script" not in ALL[name]


@pytest.mark.parametrize("name", ALL)
def test_everything_is_inside_of_the_frame(name: str) -> None:
    found = tree(ALL[name])
    _, _, width, height = map(float, found.attrib["viewBox"].split())
    for own in found.iter():
        for key, most in (
            ("x", width),
            ("x1", width),
            ("x2", width),
            ("cx", width),
            ("y", height),
            ("y1", height),
            ("y2", height),
            ("cy", height),
        ):
            if key in own.attrib and own.tag != "text":
                assert 0 <= float(own.attrib[key]) <= most, (own.tag, own.attrib)


def test_lines_rise_where_numbers_rise_and_names_keep_apart() -> None:
    found = tree(
        drawings.lines(
            {"a": [(1, 1.0), (2, 3.0)], "b": [(1, 3.0), (2, 2.99)], "c": [(2, 2.98)]},
            title="t",
            x="x",
            y="y",
        )
    )
    first, second, third = (own.attrib["points"].split() for own in found.iter("polyline"))
    heights = [[float(point.split(",")[1]) for point in own] for own in (first, second)]
    assert heights[0][0] > heights[0][1]
    assert heights[1][0] < heights[1][1]
    assert len(third) == 1
    assert len(list(found.iter("circle"))) == 1, "a single point is a disc"
    names = sorted(
        float(own.attrib["y"]) for own in found.iter("text") if own.text in ("a", "b", "c")
    )
    assert min(second - first for first, second in itertools.pairwise(names)) >= 14.9


def test_many_points_are_thinned_with_both_ends() -> None:
    line = [(float(x), float(x % 7)) for x in range(5000)]
    (drawn,) = tree(drawings.lines({"a": line}, title="t", x="x", y="y")).iter("polyline")
    assert len(drawn.attrib["points"].split()) == drawings.POINTS
    assert drawings._thinned(line)[0] == line[0]
    assert drawings._thinned(line)[-1] == line[-1]


def test_one_number_stands_above_zero() -> None:
    shown = all_text(drawings.lines({"rate": [(1, 0.1)]}, title="t", x="epoch", y="rate"))
    assert "-0" not in shown
    flat = all_text(drawings.lines({"few": [(1, 0.0), (2, 0.0)]}, title="t", x="epoch", y="%"))
    assert "few goes from 0 to 0" in flat


def test_groups_are_told_apart_without_colour() -> None:
    """Lines by their dashes, classes by their marks."""
    looks = [
        " ".join(style.split()[1:])
        for name, style in drawings.GROUPS.items()
        if name in ("many", "medium", "few")
    ]
    assert len(set(looks)) == 3
    marks = {
        group: drawings._mark(group, 10.0, 10.0, 4.0).replace('fill="none"', "")
        for group in ("many", "medium", "few")
    }
    assert len(set(marks.values())) == 3


def test_classes_without_images_and_long_tails() -> None:
    spots = [
        Spot(f"c{n}", "few", max(0, 50 - n), None if n == 5 else 0.5, None, None) for n in range(60)
    ]
    shown = all_text(drawings.classes(spots, title="t"))
    assert "c5: no images to judge it by; 45 training images, few" in shown
    assert "c59: recall 50%; 0 training images, few" in shown


def test_bars_are_as_long_as_their_numbers() -> None:
    found = tree(
        drawings.bars(
            [Bar("A", 50.0, "50"), Bar("B", 25.0, "25"), Bar("C", None, "no images")],
            title="t",
            unit="percent",
        )
    )
    long, short = (float(own.attrib["width"]) for own in found.iter("rect"))
    assert long == pytest.approx(2 * short, rel=0.01)
    assert "C: no images" in all_text(
        drawings.bars([Bar("C", None, "no images")], title="t", unit="percent")
    )
