"""The chooser: a table of cases, and its reasons."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest

from longtail.recipes.auto import MAX_EPOCHS, TIME_SHARE, Choice, Cost, Facts, choose
from longtail.recipes.signatures import read

PLANKTON = Facts(
    images=21_763,
    classes=121,
    largest=1425,
    smallest=6,
    validation=2425,
    test=6068,
    side=64,
    device="cpu",
    threads=2,
    pretrained=(),
)
# Images/s at 32 pixels, CPU
SPEED = {
    "fast_cnn": 600,
    "timm:resnet18": 250,
    "timm:resnet18.a1_in1k": 250,
    "timm:resnet50.a1_in1k": 80,
}


def costs(facts: Facts) -> Cost:
    faster = facts.threads if facts.device == "cpu" else 50
    return lambda recipe, keywords: (
        (keywords["size"] / 32) ** 2 / SPEED[keywords.get("network", "fast_cnn")] / faster
    )


def chosen(facts: Facts, *, minutes: float = 45) -> Choice:
    return choose(facts, costs(facts), seconds=60 * minutes)


CASES: dict[str, tuple[dict[str, Any], float, str, dict[str, Any], str]] = {
    "plankton": ({}, 45, "balanced_softmax", {"size": 64}, "validation"),
    "plankton, half the time": ({}, 20, "balanced_softmax", {"size": 48}, "validation"),
    "plankton, one thread and less time": (
        {"threads": 1},
        17,
        "balanced_softmax",
        {"size": 32},
        "validation",
    ),
    "plankton, all the time": ({"side": 128}, 600, "balanced_softmax", {"size": 64}, "validation"),
    "tiny": (
        {"images": 60, "classes": 4, "largest": 40, "smallest": 3, "validation": 6, "test": 14},
        45,
        "balanced_softmax",
        {"batch": 32, "lr": 0.025, "epochs": 200, "size": 64},
        "none",
    ),
    "two classes": (
        {
            "images": 2000,
            "classes": 2,
            "largest": 1900,
            "smallest": 100,
            "validation": 222,
            "test": 555,
        },
        45,
        "balanced_softmax",
        {"batch": 64, "lr": 0.05, "epochs": 200, "size": 64},
        "validation",
    ),
    "balanced": (
        {"largest": 200, "smallest": 170},
        45,
        "cross_entropy",
        {"size": 64},
        "validation",
    ),
    "huge": (
        {
            "images": 1_200_000,
            "classes": 1000,
            "largest": 5000,
            "smallest": 50,
            "validation": 130_000,
            "test": 0,
            "side": 224,
        },
        45,
        "balanced_softmax",
        {"size": 32, "epochs": 2},
        "validation",
    ),
    "a thousand classes": (
        {
            "images": 115_846,
            "classes": 1000,
            "largest": 1280,
            "smallest": 5,
            "validation": 20_000,
            "test": 50_000,
            "side": 224,
        },
        600,
        "balanced_softmax",
        {"size": 64},
        "validation",
    ),
    "grey, 20 pixels": ({"side": 32}, 45, "balanced_softmax", {"size": 32}, "validation"),
    "no time": ({}, 0.01, "balanced_softmax", {"size": 32, "epochs": 1}, "validation"),
    "digits of 8 pixels": (
        {"images": 364, "side": 8},
        45,
        "balanced_softmax",
        {"size": 8, "batch": 32},
        "validation",
    ),
    "pretrained": (
        {"pretrained": ("resnet18.a1_in1k",)},
        45,
        "balanced_softmax",
        {"network": "timm:resnet18.a1_in1k", "weights": "timm", "size": 64},
        "validation",
    ),
    "pretrained and small": (
        {"pretrained": ("resnet18.a1_in1k",), "side": 32, "images": 600},
        45,
        "balanced_softmax",
        {
            "network": "timm:resnet18.a1_in1k",
            "weights": "timm",
            "size": 64,
            "batch": 32,
            "lr": 0.0025,
            "epochs": 40,
        },
        "validation",
    ),
    "gpu": (
        {"device": "cuda"},
        45,
        "balanced_softmax",
        {"network": "timm:resnet18", "size": 64, "epochs": 200},
        "validation",
    ),
    "gpu, small images": (
        {"device": "cuda", "side": 32},
        45,
        "balanced_softmax",
        {"size": 32, "epochs": 200},
        "validation",
    ),
    "gpu and pretrained": (
        {"device": "cuda", "pretrained": ("resnet50.a1_in1k",), "side": 224},
        45,
        "balanced_softmax",
        {"network": "timm:resnet50.a1_in1k", "weights": "timm"},
        "validation",
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_the_table_of_cases(name: str) -> None:
    changes, minutes, recipe, keywords, adjust = CASES[name]
    facts = replace(PLANKTON, **changes)
    choice = chosen(facts, minutes=minutes)
    assert (choice.recipe, choice.adjust) == (recipe, adjust)
    assert {key: choice.keywords.get(key) for key in keywords} == keywords
    assert choice.keywords["size"] <= max(facts.side, 64)
    if "network" not in keywords:
        assert "network" not in choice.keywords  # the recipe's own
    defaults = {key: parameter.default for key, parameter in read(recipe).parameters.items()}
    assert not [
        key for key, value in choice.keywords.items() if value == defaults[key] and key != "epochs"
    ]
    read(recipe).keywords(choice.keywords)
    assert choice.reason.count(". ") == 1
    assert choice.reason.endswith(".")
    assert 1 <= choice.keywords["epochs"] <= MAX_EPOCHS[choice.keywords.get("weights", "random")]
    assert choice.minutes <= minutes * TIME_SHARE + 1e-6 or choice.keywords["epochs"] == 1


def test_more_time_never_means_less() -> None:
    sizes = [
        chosen(PLANKTON, minutes=minutes).keywords["size"] for minutes in (1, 5, 20, 60, 200, 1000)
    ]
    assert sizes == sorted(sizes)
    assert len(set(sizes)) == 3


def test_what_is_chosen_was_timed_and_what_is_out_of_reach_was_not() -> None:
    sizes: list[int] = []

    def cost(recipe: str, keywords: Mapping[str, Any]) -> float:
        sizes.append(keywords["size"])
        # Slower than its pixels say: the larger size is tried, and then not taken.
        return (2.0 if keywords["size"] == 48 else 1.0) * costs(PLANKTON)(recipe, keywords)

    choice = choose(PLANKTON, cost, seconds=60 * 20)
    assert sizes == [32, 48]
    assert choice.keywords["size"] == 32
    assert choice.keywords["epochs"] > chosen(PLANKTON, minutes=20).keywords["epochs"]


def test_the_reasons_say_what_is_so() -> None:
    why = chosen(PLANKTON, minutes=20).reason
    assert "6 to 1,425 training images (238 to 1)" in why
    assert "No pretrained weights are at hand" in why
    assert "larger images would leave too few on 2 threads" in why
    assert "nearly even" in chosen(replace(PLANKTON, smallest=1400)).reason
    assert "too few to adjust" in chosen(replace(PLANKTON, validation=3)).reason
    assert (
        "only has to be tuned" in chosen(replace(PLANKTON, pretrained=("resnet18.a1_in1k",))).reason
    )
