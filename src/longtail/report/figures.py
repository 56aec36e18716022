"""Figures of analyses, training, sweeps and searches, made from the files of runs."""

from __future__ import annotations

import statistics
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
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
from longtail.records.row import Row, Summary
from longtail.report import images, svg
from longtail.report.agreement import check_headline
from longtail.report.folders import Arrays, Finished, read_folder
from longtail.report.rows import read_rows
from longtail.report.svg import Axis, Line, Thumbnail

GROUPS = {"balanced": "s6", "many": "s0 d3", "medium": "s0 d2", "few": "s1"}
"""Line styles of groups, with different dashes; the tail has the accent colour."""

_FILES = RunFolder(Path()).analysis


@dataclass(frozen=True)
class Figure:
    """A chart, or images in columns of `rows`, with a caption."""

    name: str
    caption: str
    drawing: Markup | None = None
    images: tuple[Thumbnail, ...] = ()
    rows: int = 1


# ------------------------------------------------------------------------------------- analyses


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
    written = []
    for figure in chain.from_iterable(map(_figures, arrays)):
        drawing = figure.drawing or svg.image_grid(
            figure.images, title=figure.caption, rows=figure.rows
        )
        written.append(files.figure(figure.name))
        write_text(written[-1], svg.standalone(drawing))
    return written


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


# ------------------------------------------------------------------------------------- training


def training_curves(run: Finished, stage: str) -> list[Markup]:
    """Plots of a stage: terms of the loss, validation by group and head, learning rate, notes."""
    journal = run.journals[stage]
    epochs = [line for line in journal if line.get("kind") == "epoch"]
    steps = epochs[-1]["step"] / epochs[-1]["epoch"] if epochs else 1
    dense = epochs if len(epochs) > 2 else journal
    validation = f"{metric_prefix(run, stage)}val/"
    headline, labels = run.row["headline"]["name"], run.row["labels"]
    shares = [name for name, label in labels.items() if label["format"] == "percent"]
    scale, unit = (100.0, ", %") if headline in shares else (1.0, "")
    shown = []

    def curve(key: str, lines: Sequence[Mapping[str, Any]], scale: float = 1.0) -> Line:
        return [
            (line["step"] / steps, scale * line[key])
            for line in lines
            if key in line and np.isfinite(line[key])
        ]

    def keys(start: str) -> list[str]:
        return [key for key in dict.fromkeys(chain(*dense)) if key.startswith(start)]

    def plot(
        lines: Mapping[str, Line], title: str, y: str, styles: Mapping[str, str] | None = None
    ) -> None:
        known = {name: points for name, points in lines.items() if points}
        if known:
            shown.append(svg.line_plot(known, title=title, x="epoch", y=y, styles=styles))

    terms = {key.removeprefix("terms/"): curve(key, dense) for key in keys("terms/")}
    title = "Training loss" if len(terms) == 1 else "Training loss by term"
    plot(terms, title, title.lower())
    if headline not in shares:
        title = labels[headline]["title"]
        plot({title: curve(f"{validation}{headline}", epochs)}, f"Validation: {title}", title)
    groups = {
        labels[name]["title"]: curve(f"{validation}{name}", epochs, 100.0)
        for name in sorted(shares, key=lambda name: name != headline)
        if name == headline or name != "top1"
    }
    plot(groups, "Validation accuracy by group", "validation accuracy, %", GROUPS)
    heads = {
        key.split("/")[-2]: curve(key, epochs, scale)
        for key in keys(validation)
        if key.endswith(f"/{headline}") and key != f"{validation}{headline}"
    }
    plot(heads, "Validation accuracy by head", labels[headline]["description"] + unit)
    plot({"rate": curve("rate", journal)}, "Learning rate", "learning rate", {"rate": "s0"})
    for key in keys("notes/"):
        name = key.removeprefix("notes/")
        plot({name: curve(key, dense)}, f"Note: {name}", name, {name: "s0"})
    return shown


def metric_prefix(run: Finished, stage: str) -> str:
    """The prefix of "val/..." in the journal for the selected weights."""
    headline, (first, *more) = run.row["headline"]["name"], run.row["selection"].split(", ")
    for average in (first.removeprefix("best ").partition("/")[0], *more):
        if any(f"{average}/val/{headline}" in line for line in run.journals[stage]):
            return f"{average}/"
    return ""


def metric_by_epoch(run: Finished, key: str) -> dict[float, float]:
    """A number by epoch of the last stage.

    Of the weights that were selected, such as "val/balanced", or "loss", the sum of its terms.
    """
    if not run.journals:
        return {}
    stage = [*run.journals][-1]
    prefix, values = metric_prefix(run, stage), {}
    for line in run.journals[stage]:
        if line.get("kind") == "epoch":
            terms = [value for name, value in line.items() if name.startswith("terms/")]
            value = sum(terms) if key == "loss" and terms else line.get(f"{prefix}{key}")
            if value is not None and np.isfinite(value):
                values[float(line["epoch"])] = float(value)
    return values


# ------------------------------------------------------------------------------------- sweeps


def write_sweep_figures(plot: Mapping[str, str], folders: Sequence[Path], path: Path) -> list[Path]:
    """Plot finished runs into `path` with the suffix .svg.

    With {"x": NAME}, test accuracy and its calibration over a keyword. With {"x": NAME,
    "lines": NAME, "score": SCORE}, a score of the test images, with one line per value of `lines`;
    a NAME is a keyword, a data flag, "recipe" or "parameters". With
    {"x": "epoch", "lines": KEYWORD}, the headline on validation, where there are validation
    images, and the training loss over epochs.
    """
    rows = read_rows(folders)
    if plot["x"] == "epoch":
        headline = check_headline(rows)["name"]
        label = rows[0]["labels"][headline]
        scale, unit = (100, ", %") if label["format"] == "percent" else (1, "")
        score = by_epoch(rows, plot["lines"], f"val/{headline}", scale=scale)
        loss = by_epoch(rows, plot["lines"], "loss")
        plots = {
            "": (score, f"{label['description']} on validation{unit}"),
            "-loss": (loss, "training loss"),
        }
    elif "score" in plot:
        label = rows[0]["labels"][plot["score"]]
        scale, unit = (100, ", %") if label["format"] == "percent" else (1, "")
        lines = score_by(rows, plot["x"], plot["lines"], plot["score"], scale=scale)
        plots = {"": (lines, f"{label['description']}{unit}")}
    else:
        plots = {
            "": (accuracy_by_keyword(rows, plot["x"]), "test accuracy, %"),
            "-ece": (ece_by_keyword(rows, plot["x"]), "ECE on test images"),
        }
    written = []
    for suffix, (lines, y) in plots.items():
        if lines:
            written.append(path.with_name(f"{path.name}{suffix}.svg"))
            write_text(written[-1], svg.line_file(lines, x=plot["x"], y=y))
    return written


def score_by(
    rows: Sequence[Row], x: str, lines: str, score: str, *, scale: float = 1.0
) -> dict[str, Line]:
    """A score of the test images over a setting, one line per value of another: means over runs."""
    return _means(
        (str(_setting(row, lines)), float(_setting(row, x)), scale * value)
        for row in rows
        if (value := _test(row)["scores"].get(score)) is not None
    )


def _setting(row: Row, name: str) -> Any:
    """A keyword, a data flag, the recipe or the number of parameters of a run."""
    places: tuple[Mapping[str, Any], ...] = (row["keywords"], row["data"], row)
    return next((place[name] for place in places if name in place), None)


def accuracy_by_keyword(rows: Sequence[Row], keyword: str) -> dict[str, Line]:
    """Test accuracy in percent, overall and per group, over a keyword: the mean over runs."""
    return _means(
        (name, float(row["keywords"][keyword]), 100 * value)
        for row in rows
        for name, value in {"overall": _test(row)["top1"], **_test(row)["groups"]}.items()
        if value is not None
    )


def ece_by_keyword(rows: Sequence[Row], keyword: str) -> dict[str, Line]:
    """The expected calibration error on test images over a keyword, by the kind of confidence."""
    return _means(
        (_test(row)["confidence"], float(row["keywords"][keyword]), _test(row)["ece"])
        for row in rows
    )


def by_epoch(rows: Sequence[Row], keyword: str, key: str, *, scale: float = 1.0) -> dict[str, Line]:
    """A number over epochs (`metric_by_epoch`), one line per value of a keyword."""
    return _means(
        (str(row["keywords"][keyword]), epoch, scale * value)
        for row in rows
        for epoch, value in metric_by_epoch(read_folder(Path(row["folder"])), key).items()
    )


def _test(row: Row) -> Summary:
    if row["test"] is None:
        raise LongtailError(f"expected runs with test images, got none in {row.get('folder')}")
    return row["test"]


def _means(points: Iterable[tuple[str, float, float]]) -> dict[str, Line]:
    """The mean of all values per line and position, sorted by position."""
    lines: dict[str, dict[float, list[float]]] = defaultdict(lambda: defaultdict(list))
    for name, x, value in points:
        lines[name][x].append(value)
    return {
        name: [(x, statistics.fmean(values)) for x, values in sorted(line.items())]
        for name, line in lines.items()
    }


# ------------------------------------------------------------------------------------- searches


@dataclass(frozen=True)
class Panel:
    """A keyword of a search: its value and score in every trial."""

    name: str
    points: Sequence[tuple[Any, float]]
    log: bool = False


def search_plot(panels: Sequence[Panel], *, y: str, higher_is_better: bool = True) -> Markup:
    """Panels side by side with a shared y axis; the best trial is highlighted.

    >>> panels = [Panel("tau", [(0.5, 60.0), (1.5, 70.0)]), Panel("network", [("a", 60.0)])]
    >>> search_plot(panels, y="accuracy, %").count("<circle")
    3
    """
    wide, gap, height = 200, 44, 260
    scores = [score for panel in panels for _, score in panel.points]
    y_ticks = svg.ticks(min(scores), max(scores))
    best = max(scores) if higher_is_better else min(scores)
    first = svg.left_of(y_ticks)
    up = Axis(y_ticks[0], y_ticks[-1], height - svg.BOTTOM, svg.TOP)

    def parts() -> Iterator[Markup]:
        yield svg.text(2, 13, y, anchor="start", style="faint")
        for position, panel in enumerate(panels):
            left = first + position * (wide + gap)
            if position == 0:
                yield from svg.y_grid(up, y_ticks, left=left, right=left + wide)
            else:
                heights = map(up.at, y_ticks)
                yield from (svg.line(left, at, left + wide, at, style="grid") for at in heights)
            yield svg.text(left + wide / 2, height - 6, panel.name)
            places, labels = _across(panel, left, left + wide)
            for at, label in labels.items():
                yield svg.text(at, up.start + 17, svg.cut(label, 12), style="faint")
            for at, (_, score) in zip(places, panel.points, strict=True):
                style = "solid s2" if score == best else "solid s1"
                yield svg.disc(at, up.at(score), 4, style=style)

    names = ", ".join(panel.name for panel in panels)
    words = f"{len(panels[0].points)} trials; the best has {best:g}."
    size = {"width": first + len(panels) * (wide + gap), "height": height}
    return svg.drawing(parts(), title=f"{y} over {names}", words=words, **size)


def _across(panel: Panel, left: float, right: float) -> tuple[list[float], dict[float, str]]:
    """The x positions of the points of a panel, and the labels of the axis."""
    values = [value for value, _ in panel.points]
    if not all(isinstance(value, int | float) and not isinstance(value, bool) for value in values):
        names = sorted(set(map(str, values)))
        axis = Axis(-0.5, len(names) - 0.5, left, right)
        places = {name: axis.at(place) for place, name in enumerate(names)}
        return [places[str(value)] for value in values], {at: text for text, at in places.items()}
    low, high = min(values), max(values)
    spread = (low, high) if low < high else (low / 2, low * 2) if panel.log else (low - 1, low + 1)
    axis = Axis(*spread, left + 12, right - 12, log=panel.log)
    return [axis.at(value) for value in values], {axis.at(end): f"{end:.3g}" for end in (low, high)}
