"""Figures of analyses, made from the files of runs."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
from markupsafe import Markup
from numpy.typing import NDArray

from longtail.errors import LongtailError
from longtail.records.arrays import read_arrays
from longtail.records.files import write_text
from longtail.records.layout import AnalysisFolder, RunFolder
from longtail.report import images, svg
from longtail.report.folders import Arrays
from longtail.report.svg import Thumbnail

_FILES = RunFolder(Path()).analysis


@dataclass(frozen=True)
class Figure:
    """A chart, or images in columns of `rows`, with a caption."""

    name: str
    caption: str
    drawing: Markup | None = None
    images: tuple[Thumbnail, ...] = ()
    rows: int = 1

    def write(self, path: Path) -> Path:
        """Write it as an SVG file, and return the path."""
        drawing = self.drawing or svg.image_grid(self.images, title=self.caption, rows=self.rows)
        write_text(path, svg.standalone(drawing))
        return path


def analysis_figures(files: Sequence[Path]) -> tuple[list[Figure], list[str]]:
    """Figures of the files in a folder `analysis/`, and the names of files without a figure."""
    shown = list(chain.from_iterable(_figures(path) for path in files if path.name in ANALYSES))
    written, unknown = {_FILES.figure(figure.name).name for figure in shown}, []
    for path in files:
        if path.suffix.lower() in (".png", ".jpg", ".jpeg", ".svg"):
            if (
                path.name not in written
            ):  # not a file of write_figures: its arrays are shown already
                caption = CAPTIONS.get(path.name, (_FILES.path / path.name).as_posix())
                sheet = Thumbnail(images.file_uri(path), caption)
                shown.append(Figure(path.stem, caption, images=(sheet,)))
        elif path.name not in ANALYSES:
            unknown.append(path.name)
    return shown, unknown


def write_figures(folder: str | Path) -> list[Path]:
    """Write figures of all arrays in a folder `analysis/` next to them, as SVG files."""
    files = AnalysisFolder(Path(folder))
    arrays = [files.path / name for name in ANALYSES if (files.path / name).exists()]
    if not arrays:
        raise LongtailError(
            f"{folder} has none of {', '.join(ANALYSES)}: write them with longtail.analysis"
        )
    figures = chain.from_iterable(map(_figures, arrays))
    return [figure.write(files.figure(figure.name)) for figure in figures]


def _figures(path: Path) -> list[Figure]:
    arrays = read_arrays(path, repair="delete it, or write it again")
    try:
        return ANALYSES[path.name](arrays)
    except KeyError as error:
        names = ", ".join(arrays)
        raise LongtailError(
            f"expected an array {error} in {path}, got {names}: write it again"
        ) from error


def _gradcam(arrays: Arrays) -> list[Figure]:
    names, shown = arrays["classes"], []
    samples = (arrays[name] for name in ("image", "map", "target", "answer"))
    for image, saliency, target, predicted in zip(*samples, strict=True):
        pixels, wrong = (
            thumbnail_pixels(image),
            f"predicted {names[predicted]}" if target != predicted else "",
        )
        lit = images.spotlight(pixels, image_bytes(saliency))
        alt = f"an image of {names[target]}"
        shown.append(Thumbnail(images.data_uri(pixels), alt, str(names[target])))
        shown.append(Thumbnail(images.data_uri(lit), "saliency map of it", wrong))
    kind = str(arrays["kind"]) if "kind" in arrays else "Grad-CAM"
    which = " for the true class" if kind == "Grad-CAM" else ""
    caption = f"Saliency maps{which} ({kind}): what the network does not use is dark."
    return [Figure("looks", caption, images=tuple(shown), rows=2)]


def _rollout(arrays: Arrays) -> list[Figure]:
    """DeiT-LT, figure 5."""
    names, shown, tokens = arrays["classes"], [], ("class token", "distillation token")
    for image, maps, target in zip(arrays["image"], arrays["map"], arrays["target"], strict=True):
        pixels, name = thumbnail_pixels(image), str(names[target])
        shown.append(Thumbnail(images.data_uri(pixels), f"an image of {name}", name))
        for token, values in zip(tokens, maps, strict=False):
            lit = images.spotlight(pixels, image_bytes(values / max(float(values.max()), 1e-12)))
            shown.append(Thumbnail(images.data_uri(lit), f"what reaches the {token} of it", token))
    caption = "Attention rollout to the classification tokens: bright patches contribute most."
    return [Figure("attended", caption, images=tuple(shown), rows=1 + arrays["map"].shape[1])]


def _relations(arrays: Arrays) -> list[Figure]:
    """BatchFormer, figure 6, and the attention from class to class."""
    order, shade, shaded = _by_frequency(arrays["counts"])
    at = "pixels" if str(arrays["at"]) == "image" else "features"
    gradient = svg.line_plot(
        {"gradient": indexed(arrays["gradient"][order])},
        title="Gradient on the other images of the batch",
        x="classes, from frequent to rare",
        y=f"gradient on the others' {at}",
        shade=shade,
    )
    pairs = (arrays["attention_pairs"] / arrays["uniform"])[order][:, order]
    return [
        Figure(
            "gradient",
            "BatchFormer: how strongly the loss of a class's images pulls on the other images of"
            f" the batch.{shaded}",
            gradient,
        ),
        Figure(
            "by_pairs",
            "Attention of a row's class to a column's through BatchFormer, both from frequent to"
            " rare, as a multiple of even attention; grey: no pairs.",
            _pairs(pairs),
        ),
    ]


def _pairs(values: NDArray[Any]) -> Markup:
    """A matrix as an image with its scale."""
    left, top, side, title = 28, 26, 220, "Attention between classes"
    low, high = (f"{bound:.4g}" for bound in (np.nanmin(values), np.nanmax(values)))
    middle = -(top + side / 2)
    scale = images.heat_map(np.linspace(1, 0, 64)[:, None])
    parts = [
        svg.text(2, 13, "as a multiple of even attention", anchor="start", style="faint"),
        svg.image(images.heat_map(values), left, top, side, side),
        svg.text(
            left + side / 2,
            top + side + 18,
            "class attended to, from frequent to rare",
            style="faint",
        ),
        svg.element(
            "g", svg.text(middle, 18, "class that attends", style="faint"), transform="rotate(-90)"
        ),
        svg.image(scale, left + side + 12, top, 12, side),
        svg.text(left + side + 30, top + 10, high, anchor="start", style="faint"),
        svg.text(left + side + 30, top + side, low, anchor="start", style="faint"),
    ]
    words = f"From {low}, white, to {high}, dark."
    return svg.drawing(parts, title=title, words=words, height=top + side + 26)


def _attention_distance(arrays: Arrays) -> list[Figure]:
    """DeiT-LT, figure 4b."""
    drawing = svg.line_plot(
        {
            f"block {block}": indexed(np.sort(distances))
            for block, distances in enumerate(arrays["distance"], start=1)
        },
        title="Mean attention distance of each head",
        x="heads, the most local first",
        y="mean attention distance, pixels",
    )
    caption = f"How far each head attends, on images of group {arrays['group']}"
    return [Figure("locality", f"{caption}: small is local, like a convolution.", drawing)]


def _rank(arrays: Arrays) -> list[Figure]:
    """DeiT-LT, figures 4c and S.4."""
    lines = {
        str(name): indexed(ranks)
        for name, ranks in zip(arrays["tokens"], arrays["rank"].T, strict=True)
    }
    title = "Rank of the features of the tail"
    drawing = svg.line_plot(lines, title=title, x="block", y="rank of the features")
    caption = f"Directions that are needed for the features of group {arrays['group']}"
    return [Figure("ranks", f"{caption}, after each block.", drawing)]


def _entropy(arrays: Arrays) -> list[Figure]:
    """DeiT-LT, figure 3."""
    order, shade, shaded = _by_frequency(arrays["counts"])
    lines = {name: indexed(arrays[name][order]) for name in ("inside", "outside")}
    drawing = svg.line_plot(
        lines,
        title="How unsure the teacher is",
        x="classes, from frequent to rare",
        y="entropy of the teacher, nats",
        shade=shade,
    )
    right = ", ".join(f"{name} {float(arrays[f'{name}_accuracy']):.1%}" for name in lines)
    caption = (
        "The teacher on weakly augmented images (inside) and on those it teaches with (outside);"
        f" right: {right}.{shaded}"
    )
    return [Figure("uncertainty", caption, drawing)]


def token_figures(arrays: Arrays) -> list[Figure]:
    """DeiT-LT, figures 4a and S.5."""
    runs = [str(run) for run in arrays["runs"]]
    starts = [float(arrays[f"{position}/begin"]) for position, _ in enumerate(runs)]
    marks = sorted({start for start in starts if np.isfinite(start)})
    dashed = " Dashed: start of re-weighting." if marks else ""
    heads = {"": "", " CLS": "cls/", " DIST": "dist/"}
    shown = []
    for name, title, y, keys, scale in (
        (
            "experts",
            "Distance between class token and distillation token",
            "1 - cosine of class token and distillation token",
            {"": "notes/distance"},
            1.0,
        ),
        (
            "convergence",
            "Balanced validation accuracy, of both tokens and of each alone",
            "balanced validation accuracy, %",
            {head: f"val/{prefix}balanced" for head, prefix in heads.items()},
            100.0,
        ),
    ):
        lines, styles = {}, {}
        for position, run in enumerate(runs):
            for (head, key), dash in zip(keys.items(), ("", " d2", " d3"), strict=False):
                values = scale * arrays.get(f"{position}/{key}", np.array([]))
                epochs = arrays[f"{position}/epoch"][: len(values)]
                known = np.isfinite(values)
                if known.any():
                    lines[run + head] = [*zip(epochs[known], values[known], strict=True)]
                    styles[run + head] = svg.series(position).partition(" ")[0] + dash
        if lines:
            drawing = svg.line_plot(lines, title=title, x="epoch", y=y, marks=marks, styles=styles)
            shown.append(Figure(name, f"{title}, over epochs.{dashed}", drawing))
    return shown


ANALYSES: Mapping[str, Callable[[Arrays], list[Figure]]] = {
    _FILES.arrays("relations").name: _relations,
    _FILES.arrays("gradcam").name: _gradcam,
    _FILES.arrays("rollout").name: _rollout,
    _FILES.arrays("attention_distance").name: _attention_distance,
    _FILES.arrays("rank").name: _rank,
    _FILES.arrays("entropy").name: _entropy,
    _FILES.arrays("training").name: token_figures,
}
"""A file of arrays -> its figures."""

CAPTIONS = {
    _FILES.reconstructions.name: (
        "Masked autoencoding, from top to bottom: images, what the encoder saw"
        " of them, what it painted."
    )
}


def _by_frequency(counts: NDArray[Any]) -> tuple[NDArray[Any], list[tuple[float, float]], str]:
    """The classes from frequent to rare, their numbers of training images, and words on these."""
    order = np.argsort(-counts, kind="stable")
    shade = indexed(counts[order])
    words = f" Shaded: training images, logarithmic, {shade[0][1]:,.0f} to {shade[-1][1]:,.0f}."
    return order, shade, words


def indexed(values: NDArray[Any]) -> list[tuple[float, float]]:
    """Points of a line over 1, 2, ...; values that are not finite are left out."""
    return [
        (place, float(value)) for place, value in enumerate(values, start=1) if np.isfinite(value)
    ]


def thumbnail_pixels(image: NDArray[Any]) -> NDArray[np.uint8]:
    """Floats (3, H, W) in [0, 1] as bytes (H, W, 3), at most 96 pixels wide: enough for a page."""
    return images.shrink(image_bytes(image.transpose(1, 2, 0)), 96)


def image_bytes(values: NDArray[Any]) -> NDArray[np.uint8]:
    """Floats in [0, 1] as bytes."""
    return np.asarray((255 * values).round().clip(0, 255).astype(np.uint8))
