"""A recipe and its keywords for some data, a machine and a time, with the reasons in words."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from longtail.recipes.signatures import read

BALANCED = 1.5  # largest class over smallest, up to which there is no tail
ENOUGH = {
    "random": (20, 400_000),
    "timm": (8, 150_000),
}  # epochs, or images seen, below which smaller images are the better choice
MOST = {"random": 200, "timm": 40}  # epochs beyond which more of them hardly help
LARGEST = {"fast_cnn": 64}  # pixels; its features reach over a part of larger images only
VALIDATION = 20  # images, below which nothing is adjusted on them
MARGIN = 0.85  # of the time is planned for: machines are busy at times
EVALUATION = 1 / 3  # what asking about an image costs, of what learning from it does


@dataclass(frozen=True)
class Facts:
    """What the choice depends on."""

    images: int  # to learn from
    classes: int
    largest: int  # training images of the largest class
    smallest: int
    validation: int  # images
    test: int
    side: int  # pixels that most images have, of those that networks are usually given
    device: str
    threads: int
    pretrained: tuple[str, ...]  # timm models whose weights are at hand, the preferred one first


@dataclass(frozen=True)
class Choice:
    """A recipe with the keywords that are not its defaults, and the reasons for them in two sentences."""

    recipe: str
    keywords: Mapping[str, Any]
    adjust: Literal["none", "validation"]
    why: str
    minutes: float  # estimated


Cost = Callable[[str, Mapping[str, Any]], float]
"""Given a recipe and keywords: how many seconds it takes to learn from one image once."""


def choose(facts: Facts, cost: Cost, *, seconds: float) -> Choice:
    """Choose for these facts, so that all is done within so many seconds; nothing but `cost` is asked."""
    even = facts.largest <= BALANCED * facts.smallest
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

    def affordable(each: float) -> int:
        """Epochs, if learning from an image costs so much; validation follows each of them, with and without the average."""
        left = MARGIN * seconds - each * EVALUATION * (facts.validation + facts.test)
        return int(
            min(MOST[weights], left / (each * (facts.images + 2 * EVALUATION * facts.validation)))
        )

    epochs, seen = ENOUGH[weights]
    enough = min(epochs, math.ceil(seen / facts.images))
    sizes = _sizes(facts, network)
    # The cost grows with the pixels: what is out of reach by that rule is not timed, and what is chosen is.
    each = cost(recipe, {**fixed, "size": sizes[0]})
    within = [size for size in sizes if affordable(each * (size / sizes[0]) ** 2) >= enough]
    size = sizes[0]
    for larger in reversed([own for own in within if own > size]):
        slower = cost(recipe, {**fixed, "size": larger})
        if affordable(slower) >= enough:
            size, each = larger, slower
            break
    epochs = max(1, affordable(each))
    minutes = (
        each
        * (
            epochs * (facts.images + 2 * EVALUATION * facts.validation)
            + EVALUATION * (facts.validation + facts.test)
        )
        / 60
    )
    adjust: Literal["none", "validation"] = (
        "validation" if facts.validation >= VALIDATION else "none"
    )
    why = f"{_why_recipe(facts, recipe, adjust)} {_why_network(facts, network, weights, size, epochs, larger=size < sizes[-1])}"
    return Choice(recipe, {**fixed, "epochs": epochs, "size": size}, adjust, why, minutes)


def _network(facts: Facts) -> tuple[str, str]:
    if facts.pretrained:
        return f"timm:{facts.pretrained[0]}", "timm"
    return (
        ("timm:resnet18", "random")
        if facts.device != "cpu" and facts.side >= 64
        else ("fast_cnn", "random")
    )


def _sizes(facts: Facts, network: str) -> list[int]:
    """The sides that may be chosen, ascending: the images' own and smaller ones, as far as the network can use them."""
    from longtail.data.images.reading import SIZES  # here, because it imports torch

    least = (
        64 if network.startswith("timm:") else min(SIZES[0], facts.side)
    )  # timm's networks shrink images to a 32nd
    most = min(max(facts.side, least), LARGEST.get(network, SIZES[-1]))
    return sorted({size for size in SIZES if least <= size <= most} | {most})


def _why_recipe(facts: Facts, recipe: str, adjust: str) -> str:
    ratio = facts.largest / facts.smallest
    counts = f"{facts.smallest:,} to {facts.largest:,} training images"
    after = (
        f"{facts.validation:,} validation images say how logits are adjusted afterwards"
        if adjust == "validation"
        else f"{facts.validation:,} validation images are too few to adjust anything on"
    )
    if recipe == "cross_entropy":
        return f"The classes have {counts}, which is nearly even, so plain cross_entropy will do; {after}."
    return f"The classes have {counts} ({ratio:,.0f} to 1), so balanced_softmax makes rare ones count as much as frequent ones; {after}."


def _why_network(
    facts: Facts, network: str, weights: str, size: int, epochs: int, *, larger: bool
) -> str:
    where = (
        facts.device
        if facts.device != "cpu"
        else f"{facts.threads} thread{'s' if facts.threads > 1 else ''} of this CPU"
    )
    begun = (
        f"Pretrained weights are at hand, so {network} only has to be tuned"
        if weights == "timm"
        else f"No pretrained weights are at hand, so {network} learns from scratch"
    )
    sized = f"larger images would leave too few on {where}" if larger else f"on {where}"
    return f"{begun}: at {size} pixels there is time for {epochs:,} epoch{'s' if epochs > 1 else ''}{';' if larger else ''} {sized}."
