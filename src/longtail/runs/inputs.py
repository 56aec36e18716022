"""Which inputs a run gets: the size of images for fast_cnn, and data that it cannot train on."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from longtail import processes
from longtail.data.dataset import Dataset
from longtail.data.images.reading import natural_size
from longtail.data.open import find
from longtail.errors import LongtailError, warn
from longtail.records.kinds import read_recipe
from longtail.records.layout import RunFolder
from longtail.runs.identity import RunConfig

FAST_CNN_SIZE = 64
"""The side in pixels of the largest images that fast_cnn is given by default."""


def with_small_images(config: RunConfig, out: Path) -> RunConfig:
    """Images of 64 pixels for fast_cnn, also as a teacher, unless a size is given.

    Larger ones take it days. A run that was started with larger images keeps them. Known datasets
    have published sizes.
    """
    sizes = [name for name in ("size", "teacher_size") if _is_of_fast_cnn(config.keywords, name)]
    if not sizes or not Path(config.data.source).exists():
        return config
    started = read_recipe(out)["keywords"] if RunFolder(out).recipe.exists() else None
    source = find(config.data)
    if source.splits["train"].inputs.vectors() is not None:
        return config
    native = source.size or natural_size(source)
    if native <= FAST_CNN_SIZE:
        return config
    small = {}
    for size in sizes:
        if started is not None and started.get(size) is None:
            continue
        small[size] = FAST_CNN_SIZE
        if processes.rank() == 0:
            of, flag = "of the teacher " * (size != "size"), size.replace("_", "-")
            warn(
                f"images {of}are resized to {FAST_CNN_SIZE} pixels, for which fast_cnn is made:"
                f" pass --{flag} {native} for larger ones, which take"
                f" {(native / FAST_CNN_SIZE) ** 2:.0f} times as long"
            )
    return replace(config, keywords={**config.keywords, **small})


def _is_of_fast_cnn(keywords: Mapping[str, Any], size: str) -> bool:
    """Whether fast_cnn is trained, and the keyword of its size is left at None."""
    if size == "teacher_size" and keywords.get("teacher") is not None:
        return False
    network = size.replace("size", "network")
    return keywords.get(network) == "fast_cnn" and keywords.get(size, 0) is None


def check_inputs(config: RunConfig, dataset: Dataset) -> None:
    """Refuse data without what adjusting needs, and networks that take other inputs than it has."""
    if config.adjust == "validation" and not len(dataset.val):
        raise LongtailError(
            "expected validation images to adjust on, "
            f"got none of {dataset.name} (protocol {config.data.protocol}): use --protocol holdout "
            "where classes have five images or more, or --adjust none"
        )
    if config.adjust == "validation" and not bool((dataset.counts > 0).all()):
        raise LongtailError(
            "--adjust validation needs training images of every class, "
            f"and {dataset.name} has classes without: use --adjust none"
        )
    network = config.keywords.get("network")
    if dataset.has_vectors and network != "vectors":
        advice = (
            f"this recipe trains {network}: pass --network vectors"
            if "network" in config.keywords
            else "this recipe needs images: choose one that has the keyword network"
        )
        raise LongtailError(f"{dataset.name} has feature vectors instead of images, and {advice}")
    if network == "vectors" and not dataset.has_vectors:
        if config.recipe.parameters["network"].default == "vectors":
            raise LongtailError(
                f"{config.recipe.name} trains on feature vectors, and {dataset.name} has images:"
                " compute features with `longtail embed` first"
            )
        raise LongtailError(
            f"--network vectors is for feature vectors, and {dataset.name} has images: "
            "choose another network"
        )
    if dataset.has_vectors and config.tta == "flip":
        raise LongtailError(
            f"--tta flip mirrors images, and {dataset.name} has feature vectors: remove it"
        )
