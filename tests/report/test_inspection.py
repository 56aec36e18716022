from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from longtail.report.inspection import page

if TYPE_CHECKING:
    from playwright.sync_api import Browser


def entry(split: str, row: int, label: str) -> dict[str, Any]:
    return {
        "image": f"{label}/<{row}>.png",
        "split": split,
        "row": row,
        "class": label,
        "width": 30,
        "height": 20,
    }


@pytest.fixture
def survey() -> dict[str, Any]:
    """What `longtail inspect` finds in data with every fault."""
    classes = [
        {
            **{
                "name": f"class <{i}>",
                "source": 100 // (i + 1),
                "train": 70 // (i + 1),
                "val": 1,
                "test": 20 // (i + 1),
            },
            **{
                "group": ("many", "medium", "few")[i % 3],
                "effective": 9.0,
                "known_to": 0.2 + 0.02 * i,
            },
        }
        for i in range(12)
    ]
    classes[-1] |= {"test": 0, "known_to": None}
    pair = [entry("train", 0, "a&b"), entry("test", 0, "c")]
    quantiles = {"least": 5.0, "1%": 6.0, "median": 30.0, "99%": 60.0, "most": 64.0}
    return {
        **{
            "format": 1,
            "data": "some",
            "name": "some <data>",
            "hash": "0123456789abcdef",
            "protocol": "holdout",
            "size": 32,
        },
        **{
            "images": {"train": 300, "val": 12, "test": 80},
            "largest": 100,
            "smallest": 8,
            "imbalance": 12.5,
            "gini": 0.4,
        },
        **{
            "equal_classes": 8.1,
            "effective": {"beta": 0.9999, "largest": 99.5, "smallest": 8.0, "imbalance": 12.4},
        },
        "groups": {
            "rule": "threshold",
            "members": {
                name: {"classes": 4, "images": 100, "known_to": 0.05}
                for name in ("many", "medium", "few")
            },
        },
        **{
            "known_to": 0.03,
            "classes": classes,
            "caveats": ["a caveat"],
            "warnings": ["a warning"],
            "emptied": [],
        },
        "known": [{"known_to": "±0.1 to ±0.2", "classes": 11, "least": 2, "most": 20}],
        "unreadable": [
            {"image": f"bad{i}.png", "split": "train", "class": "c", "reason": "cut <short>"}
            for i in range(300)
        ],
        "duplicates": {
            **{
                "exact": 1,
                "near": 1,
                "surplus": 3,
                "conflicts": 1,
                "leaked": 1,
                "notes": ["a note"],
            },
            "across": {"train and val": 0, "train and test": 1, "val and test": 0},
            "groups": [
                {"exact": True, "likeness": 1.0, "across": True, "conflict": True, "images": pair},
                {
                    "exact": False,
                    "likeness": 0.98,
                    "across": False,
                    "conflict": False,
                    "images": [entry("train", i, "c") for i in (1, 2, 3)],
                },
                {
                    "exact": False,
                    "likeness": 0.97,
                    "across": False,
                    "conflict": False,
                    "images": [entry("train", i, "c") for i in (7, 8)],
                },
            ],
        },
        "domains": None,
        "files": {
            **{
                "images": 392,
                "width": quantiles,
                "height": quantiles,
                "aspect": quantiles,
                "smaller_than_the_network": 9,
            },
            **{
                "converted": {"grey": 3},
                "unusual": {"tiny": {"count": 5, "images": [entry("train", 4, "c")]}},
            },
        },
        "examples": {"class <11>": [entry("train", 5, "c"), entry("val", 0, "c")]},
        **{"advice": ["Do <this>."], "commands": ["longtail train auto --data some"]},
    }


@pytest.fixture
def thumbnails() -> dict[str, Any]:
    rng = np.random.default_rng(0)
    places = ("train/0", "test/0", "train/1", "train/2", "train/4", "train/5", "val/0")
    return {place: rng.integers(256, size=(20, 30, 3), dtype=np.uint8) for place in places}


def test_the_page_shows_everything_and_loads_nothing(
    survey: dict[str, Any], thumbnails: dict[str, Any]
) -> None:
    text = page(survey, thumbnails)
    assert not re.search(r"(?:src|href)=\"(?!data:)", text)
    assert "http://" not in text
    assert "https://" not in text
    assert text.count("<img ") == 7
    for words in (
        *(
            "some &lt;data&gt;",
            "12.5",
            "Do &lt;this&gt;.",
            "longtail train auto --data some",
            "two labels, across splits, exact copy",
        ),
        *(
            "similarity 0.980",
            "and 1 more",
            "And 1 more groups",
            "Tiny: 5",
            "cut &lt;short&gt;",
            "300 images cannot be read, the first 200",
        ),
        *(
            "±3.0 points",
            "a note",
            "a caveat",
            "a warning",
            "unknown",
            'alt="a&amp;b, a&amp;b/&lt;0&gt;.png"',
        ),
    ):
        assert words in text, words
    assert "<0>" not in text


def test_the_page_is_shorter_if_files_were_not_read(survey: dict[str, Any]) -> None:
    survey |= {
        "files": None,
        "duplicates": None,
        "examples": {},
        "unreadable": [],
        "hash": None,
        "advice": [],
    }
    survey["images"]["test"], survey["known_to"] = 0, None
    text = page(survey, {})
    assert "<img" not in text
    assert "Duplicates" not in text
    assert "There are no test images." in text
    assert "No problems found." in text


@pytest.mark.browser
@pytest.mark.parametrize("width", [390, 1200])
def test_a_browser_is_content(
    survey: dict[str, Any], thumbnails: dict[str, Any], tmp_path: Path, browser: Browser, width: int
) -> None:
    (tmp_path / "x.html").write_text(page(survey, thumbnails), encoding="utf-8")
    tab = browser.new_page(viewport={"width": width, "height": 800})
    complaints: list[str] = []
    requested: list[str] = []
    tab.on("console", lambda message: complaints.append(message.text))
    tab.on("pageerror", lambda error: complaints.append(str(error)))
    tab.on("request", lambda request: requested.append(request.url))
    tab.goto((tmp_path / "x.html").as_uri())
    assert complaints == []
    assert [url for url in requested if not url.startswith("data:")] == [
        (tmp_path / "x.html").as_uri()
    ]
    assert tab.evaluate("[...document.images].every(one => one.complete && one.naturalWidth > 0)")
    assert tab.evaluate("document.documentElement.scrollWidth") <= width
    tab.click("summary")
    first = "table.sortable tbody tr:first-child th"
    assert tab.inner_text(first) == "class <0>"
    tab.click("table.sortable thead th:nth-child(2) button")
    assert tab.inner_text(first) == "class <11>"
    tab.close()
