"""What a run's method left in `analysis/`, as figures: arrays that are known are drawn, pictures are shown, the rest is named."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from markupsafe import Markup
from numpy.typing import NDArray

from longtail.errors import LongtailError
from longtail.records.layout import RunFolder
from longtail.report import drawings, pictures
from longtail.report.folders import Arrays, read_arrays


@dataclass(frozen=True)
class Figure:
    """A drawing, or pictures, with what they mean."""

    caption: str
    drawing: Markup | None = None
    pictures: tuple[
        tuple[str, str, str], ...
    ] = ()  # address, words for those who do not see it, words below it


def figures(files: tuple[Path, ...]) -> tuple[list[Figure], list[str]]:
    """Figures of the files that can be shown, and the names of those that cannot."""
    found: list[Figure] = []
    unknown: list[str] = []
    drawn = {name for path in files if path.name in KNOWN for name in KNOWN[path.name][1]}
    for path in files:
        if path.name in KNOWN:
            arrays = read_arrays(path)
            try:
                found += KNOWN[path.name][0](arrays)
            except KeyError as error:
                raise LongtailError(
                    f"expected an array {error} in {path}, got {', '.join(arrays)}: write it again"
                ) from error
        elif path.suffix.lower() in (".png", ".jpg", ".jpeg", ".svg"):
            if path.name not in drawn:  # matplotlib's drawing of arrays that are drawn here
                caption = PICTURES.get(path.name, (_FILES.path / path.name).as_posix())
                found.append(Figure(caption, pictures=((pictures.file(path), caption, ""),)))
        else:
            unknown.append(path.name)
    return found, unknown


def _gradcam(arrays: Arrays) -> list[Figure]:
    names, shown = arrays["classes"], []
    for image, look, target, answer in zip(
        arrays["image"], arrays["map"], arrays["target"], arrays["answer"], strict=True
    ):
        pixels = _pixels(image)
        words = str(names[target]) + ("" if target == answer else f", taken for {names[answer]}")
        shown.append((pictures.encoded(pixels), f"an image of {names[target]}", ""))
        shown.append(
            (
                pictures.encoded(pictures.spotlight(pixels, _bytes(look))),
                "where the network looks in it",
                words,
            )
        )
    kind = str(arrays["kind"]) if "kind" in arrays else "Grad-CAM"
    whose = " for the true class" if kind == "Grad-CAM" else ""
    return [
        Figure(
            f"Where the network looks{whose} ({kind}): what it does not use is dark.",
            pictures=tuple(shown),
        )
    ]


def _rollout(arrays: Arrays) -> list[Figure]:
    names, shown, tokens = arrays["classes"], [], ("class token", "distillation token")
    for image, maps, target in zip(arrays["image"], arrays["map"], arrays["target"], strict=True):
        pixels = _pixels(image)
        shown.append((pictures.encoded(pixels), f"an image of {names[target]}", str(names[target])))
        for token, look in zip(tokens, maps, strict=False):
            lit = pictures.spotlight(pixels, _bytes(look / max(float(look.max()), 1e-12)))
            shown.append((pictures.encoded(lit), f"what reaches the {token} of it", token))
    return [
        Figure(
            "What reaches the tokens that answer (attention rollout): what does not is dark.",
            pictures=tuple(shown),
        )
    ]


def _relations(arrays: Arrays) -> list[Figure]:
    order = np.argsort(-arrays["counts"], kind="stable")
    at = "pixels" if str(arrays["at"]) == "image" else "features"
    gradient = drawings.lines(
        {"gradient": _line(arrays["gradient"][order])},
        title="Gradient on the other images of the batch",
        x="classes, from frequent to rare",
        y=f"gradient on the others' {at}",
    )
    pairs = (arrays["attention_pairs"] / arrays["uniform"])[order][:, order]
    words = "Attention of a row's class to a column's through BatchFormer, both from frequent to rare, as a multiple of even attention"
    bounds = f"white {np.nanmin(pairs):.2f}, dark {np.nanmax(pairs):.2f}; grey: no pair was seen"
    return [
        Figure(
            "BatchFormer: how strongly the loss of a class's images pulls on the other images of the batch.",
            gradient,
        ),
        Figure(f"{words} ({bounds}).", pictures=((pictures.heat(pairs), words, ""),)),
    ]


def _distance(arrays: Arrays) -> list[Figure]:
    found = {
        f"block {block}": _line(np.sort(own))
        for block, own in enumerate(arrays["distance"], start=1)
    }
    drawing = drawings.lines(
        found,
        title="Mean attention distance of each head",
        x="heads, the most local first",
        y="pixels",
    )
    return [
        Figure(
            f"How far each head looks, on images of group {arrays['group']}: small is local, like a convolution.",
            drawing,
        )
    ]


def _rank(arrays: Arrays) -> list[Figure]:
    found = {
        str(name): _line(own) for name, own in zip(arrays["tokens"], arrays["rank"].T, strict=True)
    }
    drawing = drawings.lines(
        found, title="Rank of the features of the tail", x="block", y="directions"
    )
    return [
        Figure(
            f"Directions that are needed for the features of group {arrays['group']}, after each block.",
            drawing,
        )
    ]


def _entropy(arrays: Arrays) -> list[Figure]:
    order = np.argsort(-arrays["counts"], kind="stable")
    found = {name: _line(arrays[name][order]) for name in ("inside", "outside")}
    drawing = drawings.lines(
        found,
        title="How unsure the teacher is",
        x="classes, from frequent to rare",
        y="entropy, nats",
    )
    right = ", ".join(f"{name} {float(arrays[f'{name}_accuracy']):.1%}" for name in found)
    return [
        Figure(
            f"The teacher on weakly augmented images (inside) and on those it teaches with (outside); right: {right}.",
            drawing,
        )
    ]


def _training(arrays: Arrays) -> list[Figure]:
    apart = _over_epochs(arrays, {"": "notes/distance"})
    right = _over_epochs(
        arrays,
        {"": "val/balanced", "CLS": "val/cls/balanced", "DIST": "val/dist/balanced"},
        scale=100.0,
    )
    begins = {float(arrays[f"{number}/begin"]) for number, _ in enumerate(arrays["runs"])}
    marks = sorted(begin for begin in begins if np.isfinite(begin))
    said = " Dashed: where re-weighting begins." if marks else ""
    shown = []
    for title, y, found in (
        ("Distance between class token and distillation token", "1 - cosine", apart),
        ("Balanced validation accuracy, of both tokens and of each alone", "%", right),
    ):
        if found:
            shown.append(
                Figure(
                    f"{title}, over epochs.{said}",
                    drawings.lines(found, title=title, x="epoch", y=y, marks=marks),
                )
            )
    return shown


def _over_epochs(
    arrays: Arrays, keys: Mapping[str, str], *, scale: float = 1.0
) -> dict[str, list[tuple[float, float]]]:
    """Lines of every run, by its name and, of several, the name of the line; none for what a run has not."""
    found = {}
    for number, run in enumerate(arrays["runs"]):
        for name, key in keys.items():
            if f"{number}/{key}" in arrays:
                pairs = zip(
                    arrays[f"{number}/epoch"], scale * arrays[f"{number}/{key}"], strict=True
                )
                found[f"{run} {name}".strip()] = [
                    (float(x), float(y)) for x, y in pairs if np.isfinite(y)
                ]
    return {name: line for name, line in found.items() if line}


_FILES = RunFolder(Path()).analysis

KNOWN: Mapping[str, tuple[Callable[[Arrays], list[Figure]], tuple[str, ...]]] = {
    _FILES.arrays("gradcam").name: (_gradcam, ("looks.svg",)),
    _FILES.arrays("rollout").name: (_rollout, ("attended.svg",)),
    _FILES.arrays("relations").name: (_relations, ("gradient.svg", "by_pairs.svg")),
    _FILES.arrays("attention_distance").name: (_distance, ("locality.svg",)),
    _FILES.arrays("rank").name: (_rank, ("ranks.svg",)),
    _FILES.arrays("entropy").name: (_entropy, ("uncertainty.svg",)),
    _FILES.arrays("training").name: (_training, ("experts.svg", "convergence.svg")),
}
"""File -> what draws it, and the files that `longtail.analysis.figures` draws from the same arrays."""

PICTURES = {
    _FILES.reconstructions.name: "Masked autoencoding, from top to bottom: images, what the encoder saw of them, what it painted."
}


def _line(values: NDArray[Any]) -> list[tuple[float, float]]:
    return [
        (number, float(value)) for number, value in enumerate(values, start=1) if np.isfinite(value)
    ]


def _pixels(image: NDArray[Any]) -> NDArray[np.uint8]:
    """Floats (3, H, W) in [0, 1] as bytes (H, W, 3), at most 96 pixels wide: enough for a page."""
    from PIL import Image

    bytes_ = _bytes(image.transpose(1, 2, 0))
    return (
        bytes_
        if len(bytes_) <= 96
        else np.asarray(Image.fromarray(bytes_).resize((96, 96), Image.Resampling.BOX))
    )


def _bytes(values: NDArray[Any]) -> NDArray[np.uint8]:
    return np.asarray((255 * values).round().clip(0, 255).astype(np.uint8))
