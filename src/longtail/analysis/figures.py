"""Figures of the arrays in a run's folder `analysis/`. Needs the extra `plot`."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from longtail.errors import LongtailError, MissingExtra
from longtail.records.files import atomic_write
from longtail.records.layout import AnalysisFolder, ArraysName


def draw(folder: str | Path) -> list[Path]:
    """Draw whatever arrays a folder `analysis/` holds, as SVG files beside them; convergence only where there were validation images."""
    files = AnalysisFolder(Path(folder))
    known: dict[ArraysName, tuple[Callable[[dict[str, Any]], Any], ...]] = {
        "relations": (gradient, by_pairs),
        "gradcam": (looks,),
        "rollout": (attended,),
        "attention_distance": (locality,),
        "rank": (ranks,),
        "entropy": (uncertainty,),
        "training": (experts, convergence),
    }
    stored = files.stored()
    found = [name for name in known if name in stored]
    if not found:
        names = " or ".join(files.arrays(name).name for name in known)
        raise LongtailError(
            f"expected {names}, got neither at {folder}: longtail.analysis writes them"
        )
    drawn = []
    for name in found:
        with np.load(stored[name]) as archive:
            arrays = dict(archive)
        for figure in known[name]:
            if figure is convergence and not any(own.endswith("val/balanced") for own in arrays):
                continue
            drawn.append(files.figure(figure.__name__))
            with atomic_write(drawn[-1]) as part:
                figure(arrays).savefig(part, format="svg", bbox_inches="tight")
    return drawn


def gradient(arrays: dict[str, Any]) -> Any:
    """Figure 6: the gradient of each class's loss on the other images, from the most frequent class to the rarest."""
    order = np.argsort(-arrays["counts"], kind="stable")
    figure = _figure(6, 3.5)
    axes = figure.subplots()
    axes.plot(arrays["gradient"][order], color="tab:blue")
    axes.set_xlabel("classes, from frequent to rare")
    axes.set_ylabel(
        f"gradient on the others' {'pixels' if str(arrays['at']) == 'image' else 'features'}"
    )
    counts = axes.twinx()
    counts.plot(arrays["counts"][order], color="tab:gray", linestyle="--")
    counts.set_yscale("log")
    counts.set_ylabel("training images")
    return figure


def by_pairs(arrays: dict[str, Any]) -> Any:
    """Attention from class to class, as a multiple of what it would be if all images were alike."""
    order = np.argsort(-arrays["counts"], kind="stable")
    figure = _figure(4.5, 4)
    axes = figure.subplots()
    shown = axes.imshow(
        (arrays["attention_pairs"] / arrays["uniform"])[order][:, order], cmap="viridis"
    )
    axes.set_xlabel("class attended to, from frequent to rare")
    axes.set_ylabel("class that attends")
    figure.colorbar(shown, ax=axes)
    return figure


def looks(arrays: dict[str, Any]) -> Any:
    """Images above, and below them where the network looks for their class."""
    count = len(arrays["image"])
    figure = _figure(1.4 * count, 3.2)
    grid = figure.subplots(2, count, squeeze=False)
    names = arrays["classes"]
    for column in range(count):
        picture = arrays["image"][column].transpose(1, 2, 0)
        for row in range(2):
            grid[row, column].imshow(picture)
            grid[row, column].set_axis_off()
        grid[1, column].imshow(arrays["map"][column], cmap="jet", alpha=0.5, vmin=0, vmax=1)
        grid[0, column].set_title(str(names[arrays["target"][column]]), fontsize=8)
        if arrays["answer"][column] != arrays["target"][column]:
            grid[1, column].set_title(f"taken for {names[arrays['answer'][column]]}", fontsize=7)
    return figure


def attended(arrays: dict[str, Any]) -> Any:
    """DeiT-LT, figure 5: images, and below them what reaches the class token and the distillation token."""
    count, tokens = arrays["map"].shape[:2]
    figure = _figure(1.4 * count, 1.6 * (1 + tokens))
    grid = figure.subplots(1 + tokens, count, squeeze=False)
    for column in range(count):
        picture = arrays["image"][column].transpose(1, 2, 0)
        side = picture.shape[0]
        for row in range(1 + tokens):
            grid[row, column].imshow(picture)
            grid[row, column].set_xticks([])
            grid[row, column].set_yticks([])
            if row:
                extent = (-0.5, side - 0.5, side - 0.5, -0.5)
                grid[row, column].imshow(
                    arrays["map"][column, row - 1],
                    cmap="jet",
                    alpha=0.5,
                    extent=extent,
                    interpolation="bilinear",
                )
        grid[0, column].set_title(str(arrays["classes"][arrays["target"][column]]), fontsize=8)
    for row, name in enumerate(("CLS", "DIST")[:tokens], start=1):
        grid[row, 0].set_ylabel(name)
    return figure


def locality(arrays: dict[str, Any]) -> Any:
    """DeiT-LT, figure 4b: how far each head looks, the most local first, a line for each block."""
    figure = _figure(5, 3.5)
    axes = figure.subplots()
    for block, distances in enumerate(arrays["distance"], start=1):
        axes.plot(
            np.sort(distances),
            marker="o",
            label=f"block {block}",
            color=str(0.8 * (block - 1) / len(arrays["distance"])),
        )
    axes.set_xlabel("heads, sorted")
    axes.set_ylabel(f"mean attention distance, pixels ({arrays['group']})")
    axes.legend(fontsize=7, ncols=2)
    return figure


def ranks(arrays: dict[str, Any]) -> Any:
    """DeiT-LT, figures 4c and S.4: directions needed for the features of rare classes, after each block."""
    figure = _figure(5, 3.5)
    axes = figure.subplots()
    for name, values in zip(arrays["tokens"], arrays["rank"].T, strict=True):
        axes.plot(np.arange(1, len(values) + 1), values, marker="o", label=str(name).upper())
    axes.set_xlabel("blocks")
    axes.set_ylabel(f"rank of features ({arrays['group']})")
    axes.legend()
    return figure


def uncertainty(arrays: dict[str, Any]) -> Any:
    """DeiT-LT, figure 3: the entropy of a teacher's answers in and out of its distribution, from frequent to rare classes."""
    order = np.argsort(-arrays["counts"], kind="stable")
    figure = _figure(6, 3.5)
    axes = figure.subplots()
    for name, label in (("inside", "in distribution"), ("outside", "out of distribution")):
        axes.plot(
            arrays[name][order],
            marker="o",
            label=f"{label} ({float(arrays[f'{name}_accuracy']):.1%} right)",
        )
    axes.set_xlabel("classes, from frequent to rare")
    axes.set_ylabel("entropy of the teacher, nats")
    axes.legend()
    return figure


def experts(arrays: dict[str, Any]) -> Any:
    """DeiT-LT, figure 4a: the distance between class token and distillation token; a line where re-weighting begins."""
    figure = _over_epochs(arrays, {"notes/distance": "-"}, "1 - cosine of CLS and DIST")
    for number, _ in enumerate(arrays["runs"]):
        begin = float(arrays[f"{number}/begin"])
        if not np.isnan(begin):
            figure.axes[0].axvline(begin, color=f"C{number}", linestyle="--", alpha=0.6)
    return figure


def convergence(arrays: dict[str, Any]) -> Any:
    """DeiT-LT, figure S.5: validation accuracy over epochs; dashed for the class token alone, dotted for the distillation token."""
    lines = {"val/balanced": "-", "val/cls/balanced": "--", "val/dist/balanced": ":"}
    return _over_epochs(arrays, lines, "balanced validation accuracy")


def _over_epochs(arrays: dict[str, Any], lines: dict[str, str], y: str) -> Any:
    figure = _figure(6, 3.5)
    axes = figure.subplots()
    for number, run in enumerate(arrays["runs"]):
        for name, style in lines.items():
            if f"{number}/{name}" in arrays:
                label = str(run) if style == "-" else None
                axes.plot(
                    arrays[f"{number}/epoch"],
                    arrays[f"{number}/{name}"],
                    style,
                    color=f"C{number}",
                    label=label,
                )
    axes.set_xlabel("epochs")
    axes.set_ylabel(y)
    axes.legend()
    return figure


def _figure(width: float, height: float) -> Any:
    try:
        from matplotlib.figure import (
            Figure,
        )  # here, because it takes half a second, and not everyone has it
    except ModuleNotFoundError:
        raise MissingExtra(
            "figures need matplotlib, which is not here: pip install 'longtail[plot]'"
        ) from None
    return Figure(figsize=(width, height), dpi=150)
