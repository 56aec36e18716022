"""Figures that show an analysis of several runs together."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import reduce
from itertools import takewhile
from pathlib import Path
from typing import Any

import numpy as np
from markupsafe import Markup
from PIL import Image

from longtail.records.arrays import read_arrays
from longtail.records.layout import RunFolder
from longtail.report import images, svg
from longtail.report.figures import (
    Figure,
    image_bytes,
    indexed,
    thumbnail_pixels,
    token_figures,
)
from longtail.report.folders import Arrays
from longtail.report.svg import Thumbnail

ByRun = Mapping[str, Arrays]
"""The arrays of an analysis by the label of a run."""

COLUMNS = 8
"""Most images in a grid."""

SHEET = 520
"""The width of a sheet of reconstructions in pixels."""

_FILES = RunFolder(Path()).analysis


def side_by_side(runs: Mapping[str, Sequence[Path]]) -> list[Figure]:
    """Figures of the analyses that at least two runs have.

    Args:
        runs: The files of the folder `analysis/` of each run, by label.
    """
    shown = []
    for name, figures in _ANALYSES.items():
        arrays = {
            label: read_arrays(path, repair="delete it, or write it again")
            for label, files in runs.items()
            for path in files
            if path.name == name
        }
        if len(arrays) > 1:
            shown += figures(arrays)
    sheets = {
        label: path
        for label, files in runs.items()
        for path in files
        if path.name == _FILES.reconstructions.name
    }
    if len(sheets) > 1:
        caption = (
            "Masked autoencoding. In each sheet, from top to bottom: images, what the encoder saw"
            " of them, and their reconstruction."
        )
        shown.append(Figure("reconstructions", caption, _sheets(sheets, caption), rows=len(sheets)))
    return shown


def _sheets(paths: Mapping[str, Path], caption: str) -> Markup:
    """LiVT, the reconstructions of its appendix: the sheet of each run below the other."""
    shown = [
        Thumbnail(images.file_uri(path), f"reconstructions of {label}", label)
        for label, path in paths.items()
    ]
    with Image.open(next(iter(paths.values()))) as first:
        high = SHEET * first.height / first.width
    return svg.image_grid(shown, title=caption, rows=len(shown), wide=SHEET, high=high)


def write_side_by_side(folders: Sequence[Path], path: Path) -> list[Path]:
    """Write the figures of finished runs as SVG files: `path` with the name of a figure added.

    Of several seeds the first is shown.
    """
    runs: dict[str, list[Path]] = {}
    for folder in folders:
        runs.setdefault(folder.name.rpartition("-seed=")[0], RunFolder(folder).analysis.files())
    runs = {label: files for label, files in runs.items() if files}
    runs = dict(zip(_distinct([*runs]), runs.values(), strict=True))
    figures = side_by_side(runs)
    return [figure.write(path.with_name(f"{path.name}-{figure.name}.svg")) for figure in figures]


def _distinct(labels: Sequence[str]) -> list[str]:
    """The names of runs without the words that all of them begin with.

    >>> _distinct(["vit-loss=ce", "vit-loss=bce"])
    ['loss=ce', 'loss=bce']
    """
    words = [label.split("-") for label in labels]
    shared = len([*takewhile(lambda own: len({*own}) == 1, zip(*words, strict=False))])
    return ["-".join(own[shared:]) or label for own, label in zip(words, labels, strict=True)]


def _saliency(runs: ByRun) -> list[Figure]:
    """BatchFormer, figure 5."""
    caption = "Saliency maps of the same images: what a network does not use is dark."
    maps = {label: {label: arrays["map"]} for label, arrays in runs.items()}
    return _grid("saliency", caption, runs, maps)


def _rollout(runs: ByRun) -> list[Figure]:
    """DeiT-LT, figure 5."""
    maps = {}
    for label, arrays in runs.items():
        tokens = arrays["map"].swapaxes(0, 1)
        peak = tokens.max(axis=(2, 3), keepdims=True).clip(1e-12)
        names = ("class token", "distillation token")
        maps[label] = {
            f"{label}, {name}": values for name, values in zip(names, tokens / peak, strict=False)
        }
    caption = "Attention rollout of the same images: bright patches contribute most to a token."
    return _grid("rollouts", caption, runs, maps)


def _grid(
    name: str, caption: str, runs: ByRun, maps: Mapping[str, Mapping[str, Any]]
) -> list[Figure]:
    """The images that all runs have in a row, and each map of each run in a row below."""
    shared = reduce(np.intersect1d, (arrays["id"] for arrays in runs.values()))
    first = next(iter(runs.values()))
    ids = [image for image in first["id"] if image in shared][:COLUMNS]
    shown = []
    for image in ids:
        position = int(np.flatnonzero(first["id"] == image)[0])
        pixels = thumbnail_pixels(first["image"][position])
        title = str(first["classes"][first["target"][position]])
        shown.append(Thumbnail(images.data_uri(pixels), f"an image of {title}", title))
        for label, arrays in runs.items():
            position = int(np.flatnonzero(arrays["id"] == image)[0])
            for row, values in maps[label].items():
                lit = images.spotlight(pixels, image_bytes(values[position]))
                shown.append(Thumbnail(images.data_uri(lit), f"the map of {row}", row))
    rows = 1 + sum(map(len, maps.values()))
    if not shown:
        return []
    return [Figure(name, caption, svg.image_grid(shown, title=caption, rows=rows), rows=rows)]


def _attention_distance(runs: ByRun) -> list[Figure]:
    """DeiT-LT, figures 4b and S.3."""
    y, group = "mean attention distance, pixels", next(iter(runs.values()))["group"]
    heads = svg.line_plot(
        {label: indexed(np.sort(arrays["distance"][0])) for label, arrays in runs.items()},
        title="Attention distance of the heads of the first block",
        x="heads, the most local first",
        y=y,
    )
    blocks = svg.line_plot(
        {label: indexed(arrays["distance"].mean(axis=1)) for label, arrays in runs.items()},
        title="Attention distance by block",
        x="block",
        y=f"{y}, mean over heads",
    )
    words = f"on images of group {group}: small is local, like a convolution."
    return [
        Figure("heads", f"How far each head of the first block attends, {words}", heads),
        Figure("distances", f"How far each block attends, {words}", blocks),
    ]


def _rank(runs: ByRun) -> list[Figure]:
    """DeiT-LT, figures 4c and S.4."""
    lines, styles = {}, {}
    for position, (label, arrays) in enumerate(runs.items()):
        for token, ranks, dash in zip(
            arrays["tokens"], arrays["rank"].T, ("", " d2"), strict=False
        ):
            name = label if len(arrays["tokens"]) == 1 else f"{label} {token}"
            lines[name] = indexed(ranks)
            styles[name] = svg.series(position).partition(" ")[0] + dash
    title = "Rank of the features of the tail"
    drawing = svg.line_plot(lines, title=title, x="block", y="rank of the features", styles=styles)
    group = next(iter(runs.values()))["group"]
    caption = f"Directions that are needed for the features of group {group}, after each block."
    return [Figure("ranks", caption, drawing)]


def _tokens(runs: ByRun) -> list[Figure]:
    """DeiT-LT, figures 4a and S.5."""
    together: dict[str, Any] = {"runs": np.array([*runs])}
    for position, arrays in enumerate(runs.values()):
        for name, values in arrays.items():
            first, _, rest = name.partition("/")
            if first == "0":  # the run itself; `analyse_training` may have added others
                together[f"{position}/{rest}"] = values
    return token_figures(together)


_ANALYSES: Mapping[str, Callable[[ByRun], list[Figure]]] = {
    _FILES.arrays("gradcam").name: _saliency,
    _FILES.arrays("rollout").name: _rollout,
    _FILES.arrays("attention_distance").name: _attention_distance,
    _FILES.arrays("rank").name: _rank,
    _FILES.arrays("training").name: _tokens,
}
"""A file of arrays -> the figures of several runs."""
