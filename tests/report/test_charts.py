"""What a chart shows is in its text."""

from __future__ import annotations

import json
import xml.etree.ElementTree as ET
from pathlib import Path
from typing import Any

import pytest

from longtail.report import charts

SVG = "{http://www.w3.org/2000/svg}"


def row(folder: Path, *, tau: float, few: float | None, epochs: list[float] | None = None) -> dict[str, Any]:
    (folder / "finetune").mkdir(parents=True)
    lines = [{"kind": "epoch", "epoch": n + 1, "val/top1": value} for n, value in enumerate(epochs or [])]
    (folder / "finetune" / "journal.jsonl").write_text("".join(json.dumps(line) + "\n" for line in [{"kind": "step"}, *lines]))
    return {
        "keywords": {"tau": tau, "loss": f"loss {tau:g}"},
        "test": {"top1": 0.5, "groups": {"many": 0.6, "medium": 0.5, "few": few}},
        "epochs": {"pretrain": 3, "finetune": 2},
        "folder": str(folder),
    }


def test_seeds_are_averaged_and_groups_without_classes_left_out(tmp_path: Path) -> None:
    rows: Any = [row(tmp_path / str(n), tau=tau, few=few) for n, (tau, few) in enumerate([(1.0, 0.2), (0.0, 0.1), (1.0, 0.4)])]
    lines = charts.over_keyword(rows, "tau")
    assert lines["few"] == [(0.0, 10.0), (1.0, pytest.approx(30.0))]
    assert lines["overall"] == [(0.0, 50.0), (1.0, 50.0)]
    assert "few" not in charts.over_keyword([row(tmp_path / "none", tau=1.0, few=None)], "tau")  # type: ignore[list-item]


def test_epochs_are_those_of_the_last_stage(tmp_path: Path) -> None:
    rows: Any = [
        row(tmp_path / str(n), tau=tau, few=0.1, epochs=own) for n, (tau, own) in enumerate([(1, [0.1, 0.3]), (1, [0.3, 0.5]), (0, [0.2])])
    ]
    assert charts.over_epochs(rows, "loss") == {"loss 1": [(1, pytest.approx(20.0)), (2, pytest.approx(40.0))], "loss 0": [(1, 20.0)]}
    with pytest.raises(ValueError, match="judged on validation images"):
        charts.over_epochs([row(tmp_path / "unjudged", tau=1.0, few=0.1)], "loss")  # type: ignore[list-item]


def test_a_chart_is_an_xml_picture_with_named_lines_inside_of_it() -> None:
    picture = ET.fromstring(charts.chart({"a < b": [(0, 1), (1, 3), (2, 2)], "c": [(0, 3), (2, 2)]}, x="tau", y="accuracy, %"))
    words = [own.text for own in picture.iter(f"{SVG}text")]
    assert {"a < b", "c", "tau", "accuracy, %"} <= set(words)
    places = [tuple(map(float, point.split(","))) for own in picture.iter(f"{SVG}polyline") for point in own.attrib["points"].split()]
    assert len(places) == 5
    assert all(0 <= x <= charts.WIDTH and 0 <= y <= charts.HEIGHT for x, y in places)
    assert places[1][1] < places[2][1] < places[0][1]  # 3 is above 2, which is above 1
    heights = [float(own.attrib["y"]) for own in picture.iter(f"{SVG}text") if own.text in ("a < b", "c")]
    assert abs(heights[0] - heights[1]) >= 15, "names do not cover one another"


@pytest.mark.parametrize(("low", "high"), [(0, 1), (0.013, 0.014), (-3, 900), (5, 5), (1, 20)])
def test_ticks_cover_the_range_and_are_few(low: float, high: float) -> None:
    found = charts.ticks(low, high)
    assert found[0] <= low + 1e-9
    assert found[-1] >= high - 1e-9
    assert 3 <= len(found) <= 9
