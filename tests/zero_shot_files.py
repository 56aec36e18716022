"""Tiny files in the layout of the standard splits of generalised zero-shot learning."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import scipy.io

CLASSES, UNSEEN, IMAGES, ATTRIBUTES, FEATURES = 8, 2, 14, 6, 12


def arrays() -> tuple[dict[str, Any], dict[str, Any]]:
    """The arrays of res101.mat and of att_splits.mat.

    Class numbers follow the names; `allclasses_names` is in another order. The features are a
    noisy function of the attributes, so that unseen classes can be recognised.
    """
    rng = np.random.default_rng(0)
    names = [f"{number:03}.Bird_{chr(65 + number)}" for number in range(1, CLASSES + 1)]
    attributes = rng.random((CLASSES, ATTRIBUTES))
    label = np.repeat(np.arange(CLASSES), IMAGES)
    centre = np.maximum(attributes @ rng.normal(size=(ATTRIBUTES, FEATURES)), 0)
    features = np.maximum(centre[label] + 0.1 * rng.normal(size=(len(label), FEATURES)), 0)
    unseen = np.isin(label, [1, 4])
    number = np.tile(np.arange(IMAGES), CLASSES)
    rows = np.arange(len(label)) + 1
    order = rng.permutation(CLASSES)
    images = {
        "features": features.T,
        "labels": label[:, None] + 1.0,
        "image_files": _cells(
            [f"/data/images/{names[c]}/{i}.jpg" for c, i in zip(label, number, strict=True)]
        ),
    }
    seen_test = ~unseen & (number >= 10)
    splits = {
        "att": attributes[order].T,
        "allclasses_names": _cells([names[c] for c in order]),
        "trainval_loc": rows[~unseen & (number < 10)][:, None],
        "test_seen_loc": rows[seen_test][:, None],
        "test_unseen_loc": rows[unseen][:, None],
        # As in the published files, these share images with test_seen_loc.
        "train_loc": rows[~unseen & (label < 5)][:, None],
        "val_loc": rows[~unseen & (label >= 5)][:, None],
    }
    return images, splits


def write(folder: Path, *, drop: str = "", **changed: Any) -> Path:
    """Write res101.mat and att_splits.mat into a folder, without an array or with others."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, content in zip(("res101", "att_splits"), arrays(), strict=True):
        content |= {key: changed[key] for key in changed if key in content}
        content.pop(drop, None)
        scipy.io.savemat(folder / f"{name}.mat", content)
    return folder


def _cells(words: list[str]) -> Any:
    cells = np.empty((len(words), 1), dtype=object)
    cells[:, 0] = words
    return cells
