"""The picture of a search."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ElementTree

from longtail.report.slices import Panel, search_plot


def test_every_trial_is_a_point_and_the_best_stands_out() -> None:
    points = [(0.01, 50.0), (0.1, 70.0), (1.0, 60.0)]
    drawn = search_plot(
        [
            Panel("lr", points, log=True),
            Panel("network", [("a<b", 50.0), ("c", 70.0), ("c", 60.0)]),
        ],
        y="val/balanced, %",
    )
    ElementTree.fromstring(drawn)
    assert drawn.count("<circle") == 6
    assert len(re.findall(r"<circle[^>]*#b3541e", drawn)) == 2
    assert "a&lt;b" in drawn
    first = [float(x) for x in re.findall(r'<circle cx="([\d.]+)"', drawn)[:3]]
    assert first[1] - first[0] == first[2] - first[1] > 0, "powers of ten lie at equal distances"
    heights = [float(y) for y in re.findall(r'cy="([\d.]+)"', drawn)[:3]]
    assert heights[1] < heights[2] < heights[0], "up is better"


def test_one_trial_and_values_that_are_missing_can_be_drawn() -> None:
    ElementTree.fromstring(
        search_plot(
            [
                Panel("tau", [(1.0, 50.0)]),
                Panel("lr", [(None, 50.0)]),
                Panel("keep", [(True, 50.0)]),
            ],
            y="%",
        )
    )
