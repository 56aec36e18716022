"""The page of `longtail inspect`: what was found in data, with pictures."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from markupsafe import Markup, escape
from numpy.typing import NDArray

from longtail.report.pages import render
from longtail.report.pictures import encoded

STYLES = {"many": "s3", "medium": "s5", "few": "s2"}
NOT_READ = 200  # images named


def page(found: Mapping[str, Any], pictures: Mapping[str, NDArray[np.uint8]]) -> str:
    """One HTML file that loads nothing. `found` is what `longtail inspect --json` writes, `pictures` are small ones by split/row."""
    shown = {place: encoded(pixels) for place, pixels in pictures.items()}
    ordered = sorted(found["classes"], key=lambda own: (-own["source"], own["name"]))
    files, twice = found["files"], found["duplicates"]
    return render(
        "inspection.html",
        found=found,
        drawing=histogram(ordered),
        groups=[
            (name, own, STYLES.get(name, "s1")) for name, own in found["groups"]["members"].items()
        ],
        classes=[
            [
                own["name"],
                *((f"{own[split]:,}", own[split]) for split in ("source", "train", "val", "test")),
                own["group"],
                ("unknown", None)
                if own["known_to"] is None
                else (f"±{own['known_to']:.2f}", own["known_to"]),
            ]
            for own in ordered
        ],
        sizes=[] if files is None else _sizes(files),
        duplicates=[]
        if twice is None
        else [_group(own, shown) for own in twice["groups"] if _shown(own["images"], shown)],
        examples=[(name, _shown(images, shown)) for name, images in found["examples"].items()],
        unusual=[]
        if files is None
        else [(name, own, _shown(own["images"], shown)) for name, own in files["unusual"].items()],
        unreadable=found["unreadable"][:NOT_READ],
    )


def histogram(
    ordered: Sequence[Mapping[str, Any]], *, width: float = 700, height: float = 240
) -> Markup:
    """Bars of the classes from the largest to the smallest, on a logarithmic scale: the tail would vanish on another.

    >>> histogram([{"name": "a", "source": 90, "group": "many"}, {"name": "b", "source": 3, "group": "few"}])[:4]
    Markup('<svg')
    """
    left, top, bottom = 46, 14, 24
    most = ordered[0]["source"]
    high = math.log10(max(most, 10)) * 1.02 + 0.3  # a class with one image still has a bar
    wide = (width - left) / len(ordered)

    def y(count: float) -> float:
        return top + (height - top - bottom) * (1 - (math.log10(count) + 0.3) / (high + 0.3))

    def parts() -> Iterator[str]:
        for power in range(int(math.log10(most)) + 1):
            line = y(10**power)
            yield f'<line class="grid" x1="{left}" x2="{width:g}" y1="{line:.1f}" y2="{line:.1f}"/>'
            yield f'<text class="faint" x="{left - 6}" y="{line + 4:.1f}" text-anchor="end">{10**power:,}</text>'
        for rank, own in enumerate(ordered):
            upper, gap = y(own["source"]), min(1.0, wide / 5)
            yield (
                f'<rect class="solid {STYLES.get(own["group"], "s1")}" x="{left + rank * wide:.2f}" y="{upper:.1f}" '
                f'width="{wide - gap:.2f}" height="{height - bottom - upper:.1f}"><title>{escape(own["name"])}: {own["source"]:,} images, '
                f"{escape(own['group'])}</title></rect>"
            )
        yield f'<text class="faint" x="{left}" y="{height - 6:g}">{escape(_cut(ordered[0]["name"]))}</text>'
        yield f'<text class="faint" x="{width:g}" y="{height - 6:g}" text-anchor="end">{escape(_cut(ordered[-1]["name"]))}</text>'

    words = f"Images per class, from {ordered[0]['name']} with {most:,} to {ordered[-1]['name']} with {ordered[-1]['source']:,}."
    inside = "".join(parts())
    return Markup(
        f'<svg viewBox="0 0 {width:g} {height:g}" role="img" aria-label="{escape(words)}">{inside}</svg>'
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


def _cut(name: str, most: int = 32) -> str:
    return name if len(name) <= most else name[: most - 1] + "…"
