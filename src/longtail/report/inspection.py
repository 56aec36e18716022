"""The page of `longtail inspect`: what was found in data, with pictures."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from longtail.report.charts import class_histogram
from longtail.report.images import data_uri
from longtail.report.page import render

STYLES = {"many": "s3", "medium": "s5", "few": "s2"}
NOT_READ = 200  # images named


def page(found: Mapping[str, Any], pictures: Mapping[str, NDArray[np.uint8]]) -> str:
    """One HTML file that loads nothing. `found` is what `longtail inspect --json` writes,
    `pictures` are small ones by split/row.
    """
    shown = {place: data_uri(pixels) for place, pixels in pictures.items()}
    ordered = sorted(found["classes"], key=lambda own: (-own["source"], own["name"]))
    files, twice = found["files"], found["duplicates"]
    return render(
        "inspection.html",
        found=found,
        drawing=class_histogram(ordered, styles=STYLES),
        groups=[
            (name, own, STYLES.get(name, "s1")) for name, own in found["groups"]["members"].items()
        ],
        classes=[
            [
                own["name"],
                *((f"{own[split]:,}", own[split]) for split in ("source", "train", "val", "test")),
                own["group"],
                (
                    ("unknown", None)
                    if own["known_to"] is None
                    else (f"±{own['known_to']:.2f}", own["known_to"])
                ),
            ]
            for own in ordered
        ],
        sizes=[] if files is None else _sizes(files),
        duplicates=(
            []
            if twice is None
            else [_group(own, shown) for own in twice["groups"] if _shown(own["images"], shown)]
        ),
        examples=[(name, _shown(images, shown)) for name, images in found["examples"].items()],
        unusual=(
            []
            if files is None
            else [
                (name, own, _shown(own["images"], shown)) for name, own in files["unusual"].items()
            ]
        ),
        unreadable=found["unreadable"][:NOT_READ],
    )


def _sizes(files: Mapping[str, Any]) -> list[list[str]]:
    columns = ("least", "1%", "median", "99%", "most")
    named = (("width, pixels", "width"), ("height, pixels", "height"), ("width / height", "aspect"))
    return [[name, *(f"{files[key][column]:g}" for column in columns)] for name, key in named]


def _group(own: Mapping[str, Any], shown: Mapping[str, str]) -> dict[str, Any]:
    marks = [
        text
        for text, true in (("two labels", own["conflict"]), ("across splits", own["across"]))
        if true
    ]
    kind = "exact copy" if own["exact"] else f"alike by {own['likeness']:.3f}"
    return {
        "title": ", ".join([*marks, kind]),
        "conflict": own["conflict"],
        "pictures": _shown(own["images"], shown),
        "more": len(own["images"]) - len(_shown(own["images"], shown)),
    }


def _shown(
    images: Sequence[Mapping[str, Any]], shown: Mapping[str, str]
) -> list[tuple[str, Mapping[str, Any]]]:
    return [(shown[_place(one)], one) for one in images if _place(one) in shown]


def _place(one: Mapping[str, Any]) -> str:
    return f"{one['split']}/{one['row']}"
