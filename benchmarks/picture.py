"""Draw docs/images/digits-recall.svg: what a balanced loss changes, class by class.

    python benchmarks/picture.py [--check]

It shows the results of the plan digits_lt_demo. With `--check` nothing is written: it fails if the
picture shows something else.
"""

from __future__ import annotations

import json
import statistics
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any
from xml.sax.saxutils import escape

from longtail.records.row import row_of

HERE = Path(__file__).parent
PICTURE = HERE.parent / "docs" / "images" / "digits-recall.svg"

WIDTH, HEIGHT = 760, 360
LEFT, RIGHT, TOP, BOTTOM = 60, 12, 60, 74
COLOURS = {"plain": "#b3541e", "balanced": "#1f5fa8"}
LABELS = {"plain": "cross entropy", "balanced": "balanced softmax"}
GREY = "#d9dde3"


def figure(folder: Path = HERE) -> str:
    """The whole picture, from the results in a folder."""
    rows: dict[str, list[Mapping[str, Any]]] = {name: [] for name in COLOURS}
    for path in sorted((folder / "results" / "digits_lt_demo").glob("*.json")):
        result = json.loads(path.read_text(encoding="utf-8"))
        rows[result["arm"]].append(row_of(result["row"], source=path))
    if not all(rows.values()):
        raise ValueError(
            "expected results of both arms of digits_lt_demo, got too few: run"
            " benchmarks/accuracy.py on this plan"
        )
    recalls = {
        name: [
            statistics.fmean(values)
            for values in zip(*(row["test"]["recall"] for row in runs), strict=True)
        ]
        for name, runs in rows.items()
    }
    counts = rows["plain"][0]["data"]["counts_before"]
    seeds = len(rows["plain"])
    return (
        "\n".join([*_frame(seeds), *_bars(counts), *_lines(recalls), *_legend(), "</svg>"]) + "\n"
    )


def _text(
    x: float,
    y: float,
    words: str,
    *,
    anchor: str = "middle",
    colour: str = "#333",
    size: int = 13,
    turn: str = "",
) -> str:
    return (
        f'<text x="{x:g}" y="{y:g}" text-anchor="{anchor}" fill="{colour}"'
        f' font-size="{size}"{turn}>{escape(words)}</text>'
    )


def _x(position: int, classes: int) -> float:
    return LEFT + (WIDTH - LEFT - RIGHT) * (position + 0.5) / classes


def _y(share: float) -> float:
    return HEIGHT - BOTTOM - (HEIGHT - TOP - BOTTOM) * share


def _frame(seeds: int) -> Iterator[str]:
    yield (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}"'
        ' font-family="system-ui, sans-serif" role="img"'
    )
    yield (
        ' aria-label="Recall of each digit with cross entropy and with balanced softmax, over the'
        ' number of training images">'
    )
    yield f'<rect width="{WIDTH}" height="{HEIGHT}" fill="white"/>'
    for percent in (0, 25, 50, 75, 100):
        y = _y(percent / 100)
        yield f'<line x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{y:g}" y2="{y:g}" stroke="#eceef1"/>'
        yield _text(LEFT - 8, y + 4, f"{percent}%", anchor="end", size=12)
    middle = (_y(0) + _y(1)) / 2
    yield _text(14, middle, "recall on test images", turn=f' transform="rotate(-90 14 {middle:g})"')
    yield _text(LEFT - 8, _y(0) + 36, "images", anchor="end", colour="#6b7280", size=12)
    yield _text(
        WIDTH / 2,
        HEIGHT - 10,
        f"digit, from the most frequent to the rarest (digits-lt, mean of {seeds} seeds)",
    )


def _bars(counts: Sequence[int]) -> Iterator[str]:
    wide = 0.62 * (WIDTH - LEFT - RIGHT) / len(counts)
    for label, count in enumerate(counts):
        x, y = _x(label, len(counts)), _y(0.92 * count / max(counts))
        yield (
            f'<rect x="{x - wide / 2:.1f}" y="{y:.1f}" width="{wide:.1f}" height="{_y(0) - y:.1f}"'
            f' fill="{GREY}"/>'
        )
        yield _text(x, _y(0) + 18, str(label))
        yield _text(x, _y(0) + 36, str(count), colour="#6b7280", size=12)


def _lines(recalls: Mapping[str, Sequence[float]]) -> Iterator[str]:
    for name, runs in recalls.items():
        points = [(_x(label, len(runs)), _y(recall)) for label, recall in enumerate(runs)]
        path = " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
        yield (
            f'<polyline points="{path}" fill="none" stroke="{COLOURS[name]}" stroke-width="2.5"'
            ' stroke-linejoin="round"/>'
        )
        yield from (
            f'<circle cx="{x:.1f}" cy="{y:.1f}" r="4" fill="{COLOURS[name]}"/>' for x, y in points
        )


def _legend() -> Iterator[str]:
    x = LEFT + 8
    for name, colour in COLOURS.items():
        yield f'<line x1="{x}" x2="{x + 26}" y1="28" y2="28" stroke="{colour}" stroke-width="2.5"/>'
        yield f'<circle cx="{x + 13}" cy="28" r="4" fill="{colour}"/>'
        yield _text(x + 34, 33, LABELS[name], anchor="start", size=14)
        x += 180
    yield f'<rect x="{x}" y="20" width="18" height="16" fill="{GREY}"/>'
    yield _text(x + 26, 33, "training images", anchor="start", size=14)


def main() -> None:
    """Draw the picture, or check it."""
    if "--check" not in sys.argv[1:]:
        PICTURE.parent.mkdir(parents=True, exist_ok=True)
        PICTURE.write_text(figure(), encoding="utf-8")
    elif not PICTURE.exists() or PICTURE.read_text(encoding="utf-8") != figure():
        sys.exit(f"{PICTURE} does not show what the results say: run python benchmarks/picture.py")


if __name__ == "__main__":
    main()
