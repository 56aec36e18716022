"""The HTML page of `longtail inspect`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from longtail.report.charts import class_histogram
from longtail.report.images import data_uri
from longtail.report.page import render

STYLES = {"many": "s3", "medium": "s5", "few": "s2"}
NOT_READ = 200  # unreadable images listed


def page(survey: Mapping[str, Any], thumbnails: Mapping[str, NDArray[np.uint8]]) -> str:
    """A self-contained HTML page.

    `survey` is what `longtail inspect --json` writes, `thumbnails` are small images by "split/row".
    """
    shown = {place: data_uri(pixels) for place, pixels in thumbnails.items()}
    ordered = sorted(survey["classes"], key=lambda entry: (-entry["source"], entry["name"]))
    files, copies = survey["files"], survey["duplicates"]
    return render(
        "inspection.html",
        survey=survey,
        drawing=class_histogram(ordered, styles=STYLES),
        groups=[
            (name, entry, STYLES.get(name, "s1"))
            for name, entry in survey["groups"]["members"].items()
        ],
        classes=[
            [
                entry["name"],
                *(
                    (f"{entry[split]:,}", entry[split])
                    for split in ("source", "train", "val", "test")
                ),
                entry["group"],
                (
                    ("unknown", None)
                    if entry["known_to"] is None
                    else (f"±{entry['known_to']:.2f}", entry["known_to"])
                ),
            ]
            for entry in ordered
        ],
        domains=[] if survey["domains"] is None else _domains(survey),
        sizes=[] if files is None else _sizes(files),
        duplicates=(
            []
            if copies is None
            else [
                _group(entry, shown) for entry in copies["groups"] if _shown(entry["images"], shown)
            ]
        ),
        examples=[(name, _shown(images, shown)) for name, images in survey["examples"].items()],
        unusual=(
            []
            if files is None
            else [
                (name, entry, _shown(entry["images"], shown))
                for name, entry in files["unusual"].items()
            ]
        ),
        unreadable=survey["unreadable"][:NOT_READ],
    )


def _domains(survey: Mapping[str, Any]) -> list[list[str | tuple[str, int]]]:
    """The images of each class in each domain."""
    counts = zip(*survey["domains"]["counts"], strict=True)
    return [
        [entry["name"], *((f"{number:,}", number) for number in numbers)]
        for entry, numbers in zip(survey["classes"], counts, strict=True)
    ]


def _sizes(files: Mapping[str, Any]) -> list[list[str]]:
    columns = ("least", "1%", "median", "99%", "most")
    named = (("width, pixels", "width"), ("height, pixels", "height"), ("width / height", "aspect"))
    return [[name, *(f"{files[key][column]:g}" for column in columns)] for name, key in named]


def _group(entry: Mapping[str, Any], shown: Mapping[str, str]) -> dict[str, Any]:
    labels = [
        text
        for text, true in (("two labels", entry["conflict"]), ("across splits", entry["across"]))
        if true
    ]
    kind = "exact copy" if entry["exact"] else f"similarity {entry['likeness']:.3f}"
    return {
        "title": ", ".join([*labels, kind]),
        "conflict": entry["conflict"],
        "images": _shown(entry["images"], shown),
        "more": len(entry["images"]) - len(_shown(entry["images"], shown)),
    }


def _shown(
    images: Sequence[Mapping[str, Any]], shown: Mapping[str, str]
) -> list[tuple[str, Mapping[str, Any]]]:
    return [(shown[_place(image)], image) for image in images if _place(image) in shown]


def _place(image: Mapping[str, Any]) -> str:
    return f"{image['split']}/{image['row']}"
