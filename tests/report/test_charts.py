"""What a chart shows is in its text."""

from __future__ import annotations

import xml.etree.ElementTree as ET

import pytest

from longtail.report import charts

SVG = "{http://www.w3.org/2000/svg}"


def test_a_chart_is_an_xml_picture_with_named_lines_inside_of_it() -> None:
    picture = ET.fromstring(
        charts.chart(
            {"a < b": [(0, 1), (1, 3), (2, 2)], "c": [(0, 3), (2, 2)]}, x="tau", y="accuracy, %"
        )
    )
    words = [own.text for own in picture.iter(f"{SVG}text")]
    assert {"a < b", "c", "tau", "accuracy, %"} <= set(words)
    places = [
        tuple(map(float, point.split(",")))
        for own in picture.iter(f"{SVG}polyline")
        for point in own.attrib["points"].split()
    ]
    assert len(places) == 5
    assert all(0 <= x <= charts.WIDTH and 0 <= y <= charts.HEIGHT for x, y in places)
    assert places[1][1] < places[2][1] < places[0][1]  # 3 is above 2, which is above 1
    heights = [
        float(own.attrib["y"]) for own in picture.iter(f"{SVG}text") if own.text in ("a < b", "c")
    ]
    assert abs(heights[0] - heights[1]) >= 15, "names do not cover one another"


@pytest.mark.parametrize(("low", "high"), [(0, 1), (0.013, 0.014), (-3, 900), (5, 5), (1, 20)])
def test_ticks_cover_the_range_and_are_few(low: float, high: float) -> None:
    found = charts.ticks(low, high)
    assert found[0] <= low + 1e-9
    assert found[-1] >= high - 1e-9
    assert 3 <= len(found) <= 9
