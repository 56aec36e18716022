"""Charts place scores and classes where their numbers say."""

from __future__ import annotations

import pytest

from longtail.report import charts
from longtail.report.charts import ClassScore
from longtail.report.curves import GROUPS

from .test_svg import EVIL, everything, inside, tree


def test_bins_of_a_reliability_diagram_lie_at_confidence_and_accuracy() -> None:
    root = tree(
        charts.reliability_diagram([None, 0.5, 0.75], [None, 0.25, 1], [0, 10, 40], title=EVIL)
    )
    labels = {
        (element.text, element.attrib["text-anchor"]): element.attrib
        for element in root.iter("text")
    }
    small, large = (element.attrib for element in root.iter("circle"))
    for circle, confidence, accuracy in ((small, "50", "25"), (large, "75", "100")):
        assert circle["cx"] == labels[confidence, "middle"]["x"]
        assert float(circle["cy"]) == pytest.approx(float(labels[accuracy, "end"]["y"]) - 4)
    radii = [float(circle["r"]) - 1.5 for circle in (small, large)]
    assert radii[1] == pytest.approx(2 * radii[0]), "the area is the number of images"
    inside(root)


def test_the_band_holds_what_lies_in_it() -> None:
    drawn = charts.band_plot(80.5, 80.0, low=79.0, high=81.0, title=EVIL)
    (band,), (run,) = (list(tree(drawn).iter(tag)) for tag in ("rect", "circle"))
    left, width = float(band.attrib["x"]), float(band.attrib["width"])
    assert float(run.attrib["cx"]) == pytest.approx(left + 0.75 * width, abs=0.02)
    assert EVIL in everything(drawn)
    inside(tree(drawn))


def test_classes_are_placed_by_recall_and_number_of_images() -> None:
    classes = [
        ClassScore(f"class {n} {EVIL}", group, images, recall, low, high)
        for n, (group, images, recall, low, high) in enumerate(
            [
                ("many", 1000, 1.0, 0.9, 1.0),
                ("medium", 100, 0.5, 0.25, 0.75),
                ("few", 10, 0.0, None, None),
                ("few", 0, None, None, None),
            ]
        )
    ]
    drawn = charts.class_chart(classes, title=EVIL)
    root = tree(drawn)
    inside(root)
    assert not list(root.iter("script"))
    many, medium, few, none = (
        element for element in root.iter("g") if element.find("title") is not None
    )
    levels = {element.text: float(element.attrib["y"]) - 4 for element in root.iter("text")}
    ring, disc = many.find("circle"), few.find("circle")
    assert ring is not None
    assert disc is not None
    assert (ring.attrib["class"], disc.attrib["class"]) == ("whisker", "solid")
    assert (float(ring.attrib["cy"]), float(disc.attrib["cy"])) == (30, levels["0"])
    square = medium.findall("rect")[-1].attrib
    middle = float(square["y"]) + float(square["height"]) / 2
    assert middle == pytest.approx(levels["50"], abs=0.01)
    whisker = medium.find("line")
    assert whisker is not None
    assert (float(whisker.attrib["y1"]), float(whisker.attrib["y2"])) == (
        levels["25"],
        levels["75"],
    )
    tops = [float(element.findall("rect")[1].attrib["y"]) for element in (many, medium, few)]
    assert tops[1] - tops[0] == pytest.approx(tops[2] - tops[1], abs=0.02), "logarithmic"
    assert none.findall("rect")[1].attrib["height"] == "0"
    assert "no images for evaluation; 0 training images, few" in everything(drawn)


def test_groups_are_distinguished_without_colour() -> None:
    """Lines by their dashes, classes by their marks."""
    dashes = [GROUPS[name].partition(" ")[2] for name in ("many", "medium", "few")]
    assert len(set(dashes)) == 3
    marks = {charts.group_mark(name, 10.0, 10.0, 4.0) for name in ("many", "medium", "few")}
    assert len(marks) == 3


def test_a_long_tail_is_described_by_its_ends() -> None:
    classes = [ClassScore(f"c{n}", "few", 60 - n, 0.5, None, None) for n in range(60)]
    words = tree(charts.class_chart(classes, title="t")).findtext("desc") or ""
    assert "c2:" in words
    assert "c57:" in words
    assert "c30:" not in words


@pytest.mark.parametrize("count", [1, 9, 10, 1000])
def test_every_class_of_a_histogram_has_a_bar_inside_the_drawing(count: int) -> None:
    classes = [
        {"name": f"c{i} {EVIL}", "source": source, "group": "few"}
        for i, source in enumerate((count, 1))
    ]
    root = tree(charts.class_histogram(classes, styles={"few": "s2"}))
    inside(root)
    first, last = (element.attrib for element in root.iter("rect"))
    assert float(first["height"]) >= float(last["height"]) > 3
    assert first["class"] == "solid s2"
    levels = {element.text: float(element.attrib["y"]) - 4 for element in root.iter("text")}
    assert float(last["y"]) == pytest.approx(levels["1"], abs=0.01)
