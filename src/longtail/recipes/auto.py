"""The recipe and keywords that `longtail train auto` chooses for some data, machine and time."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from longtail.recipes.signatures import read

MAX_BALANCED_RATIO = 1.5  # largest class over smallest, up to which there is no tail
# Epochs, or images trained on, below which smaller images are the better choice.
SUFFICIENT = {"random": (20, 400_000), "timm": (8, 150_000)}
MAX_EPOCHS = {"random": 200, "timm": 40}  # more hardly help
MAX_SIZE = {"fast_cnn": 64}  # pixels; its features cover a part of larger images only
MIN_VALIDATION = 20  # images, below which nothing is adjusted on them
TIME_SHARE = 0.85  # of the time is planned for: machines are busy at times
EVALUATION_COST = 1 / 3  # of an image, as a share of the cost of training on it


@dataclass(frozen=True)
class Facts:
    """What the choice depends on."""

    images: int  # for training
    classes: int
    largest: int  # training images of the largest class
    smallest: int
    validation: int  # images
    test: int
    side: int  # pixels of most images, rounded to a usual input size
    device: str
    threads: int
    pretrained: tuple[str, ...]  # timm models whose weights are cached, the preferred one first


@dataclass(frozen=True)
class Choice:
    """A recipe, the keywords that differ from its defaults, and the reasons in two sentences."""

    recipe: str
    keywords: Mapping[str, Any]
    adjust: Literal["none", "validation"]
    reason: str
    minutes: float  # estimated


Cost = Callable[[str, Mapping[str, Any]], float]
"""Given a recipe and keywords: the seconds that training on one image takes."""


def choose(facts: Facts, cost: Cost, *, seconds: float) -> Choice:
    """Choose a recipe, network, size and epochs so that everything is done within `seconds`."""
    even = facts.largest <= MAX_BALANCED_RATIO * facts.smallest
    recipe = "cross_entropy" if even else "balanced_softmax"
    network, weights = _network(facts)
    batch = next((size for size in (128, 64) if facts.images >= 16 * size), 32)
    fixed = {"network": network, "weights": weights, "batch": batch}
    if batch != 128:
        fixed["lr"] = round((0.1 if weights == "random" else 0.01) * batch / 128, 5)
    fixed = {
        name: value
        for name, value in fixed.items()
        if value != read(recipe).parameters[name].default
    }

    def affordable(cost_per_image: float) -> int:
        """Epochs that fit; each ends with validation, with and without the moving average."""
        left = TIME_SHARE * seconds - cost_per_image * EVALUATION_COST * (
            facts.validation + facts.test
        )
        return int(
            min(
                MAX_EPOCHS[weights],
                left / (cost_per_image * (facts.images + 2 * EVALUATION_COST * facts.validation)),
            )
        )

    epochs, images = SUFFICIENT[weights]
    enough = min(epochs, math.ceil(images / facts.images))
    sizes = _sizes(facts, network)
    # The cost grows with the pixels: only sizes that may fit by that rule are timed.
    per_image = cost(recipe, {**fixed, "size": sizes[0]})
    within = [size for size in sizes if affordable(per_image * (size / sizes[0]) ** 2) >= enough]
    size = sizes[0]
    for larger in reversed([candidate for candidate in within if candidate > size]):
        slower = cost(recipe, {**fixed, "size": larger})
        if affordable(slower) >= enough:
            size, per_image = larger, slower
            break
    epochs = max(1, affordable(per_image))
    minutes = (
        per_image
        * (
            epochs * (facts.images + 2 * EVALUATION_COST * facts.validation)
            + EVALUATION_COST * (facts.validation + facts.test)
        )
        / 60
    )
    adjust: Literal["none", "validation"] = (
        "validation" if facts.validation >= MIN_VALIDATION else "none"
    )
    larger_exists = size < sizes[-1]
    reason = (
        f"{_recipe_reason(facts, recipe, adjust)} "
        f"{_network_reason(facts, network, weights, size, epochs, larger=larger_exists)}"
    )
    return Choice(recipe, {**fixed, "epochs": epochs, "size": size}, adjust, reason, minutes)


def _network(facts: Facts) -> tuple[str, str]:
    if facts.pretrained:
        return f"timm:{facts.pretrained[0]}", "timm"
    return (
        ("timm:resnet18", "random")
        if facts.device != "cpu" and facts.side >= 64
        else ("fast_cnn", "random")
    )


def _sizes(facts: Facts, network: str) -> list[int]:
    """The input sizes to choose from, ascending: up to the images' size, as the network allows."""
    from longtail.data.images.reading import SIZES  # here, because it imports torch

    # Timm's networks shrink images to a 32nd
    least = 64 if network.startswith("timm:") else min(SIZES[0], facts.side)
    most = min(max(facts.side, least), MAX_SIZE.get(network, SIZES[-1]))
    return sorted({size for size in SIZES if least <= size <= most} | {most})


def _recipe_reason(facts: Facts, recipe: str, adjust: str) -> str:
    ratio = facts.largest / facts.smallest
    counts = f"{facts.smallest:,} to {facts.largest:,} training images"
    after = (
        f"{facts.validation:,} validation images say how logits are adjusted afterwards"
        if adjust == "validation"
        else f"{facts.validation:,} validation images are too few to adjust anything on"
    )
    if recipe == "cross_entropy":
        return (
            f"The classes have {counts}, which is nearly even, so plain cross_entropy will do; "
            f"{after}."
        )
    return (
        f"The classes have {counts} ({ratio:,.0f} to 1), so balanced_softmax makes rare ones count "
        f"as much as frequent ones; {after}."
    )


def _network_reason(
    facts: Facts, network: str, weights: str, size: int, epochs: int, *, larger: bool
) -> str:
    where = (
        facts.device
        if facts.device != "cpu"
        else f"{facts.threads} thread{'s' if facts.threads > 1 else ''} of this CPU"
    )
    start = (
        f"Pretrained weights are at hand, so {network} only has to be tuned"
        if weights == "timm"
        else f"No pretrained weights are at hand, so {network} learns from scratch"
    )
    sized = f"larger images would leave too few on {where}" if larger else f"on {where}"
    epochs_text = f"{epochs:,} epoch{'s' if epochs > 1 else ''}{';' if larger else ''}"
    return f"{start}: at {size} pixels there is time for {epochs_text} {sized}."
