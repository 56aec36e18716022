"""Figures of the arrays in a run's folder `analysis/`. Needs the extra `plot`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np


def draw(folder: str | Path) -> list[Path]:
    """Draw whatever arrays a folder `analysis/` holds, as SVG files beside them."""
    folder = Path(folder)
    known = {"relations.npz": (gradient, by_pairs), "gradcam.npz": (looks,)}
    found = [name for name in known if (folder / name).exists()]
    if not found:
        raise ValueError(f"expected {' or '.join(known)}, got neither at {folder}: write them with longtail.analysis.analyse")
    drawn = []
    for name in found:
        with np.load(folder / name) as stored:
            arrays = dict(stored)
        for figure in known[name]:
            drawn.append(folder / f"{figure.__name__}.svg")
            figure(arrays).savefig(drawn[-1], bbox_inches="tight")
    return drawn


def gradient(arrays: dict[str, Any]) -> Any:
    """Figure 6: the gradient of each class's loss on the other images, from the most frequent class to the rarest."""
    order = np.argsort(-arrays["counts"], kind="stable")
    figure = _figure(6, 3.5)
    axes = figure.subplots()
    axes.plot(arrays["gradient"][order], color="tab:blue")
    axes.set_xlabel("classes, from frequent to rare")
    axes.set_ylabel(f"gradient on the others' {'pixels' if str(arrays['at']) == 'image' else 'features'}")
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
    shown = axes.imshow((arrays["attention_pairs"] / arrays["uniform"])[order][:, order], cmap="viridis")
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


def _figure(width: float, height: float) -> Any:
    try:
        from matplotlib.figure import Figure  # here, because it takes half a second, and not everyone has it
    except ModuleNotFoundError:
        raise ModuleNotFoundError("figures need matplotlib, which is not here: pip install 'longtail[plot]'") from None
    return Figure(figsize=(width, height), dpi=150)
