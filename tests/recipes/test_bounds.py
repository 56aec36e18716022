"""Numbers that cannot be meant are refused by name, for every recipe of ours."""

from __future__ import annotations

from typing import Any

import pytest

from longtail.errors import LongtailError
from longtail.recipes import RECIPES
from longtail.recipes.bounds import BOUNDS, check_bounds
from longtail.recipes.signatures import read


@pytest.mark.parametrize(
    ("recipe", "keywords", "message"),
    [
        ("cross_entropy", {"lr": 0.0}, "expected --lr above 0, got 0"),
        ("swad", {"tolerance_ratio": -1.0}, "--tolerance-ratio of 0 or more"),
        ("erm", {"weight_decay": -1.0}, "--weight-decay of 0 or more"),
        ("deit", {"drop_path": 2.0}, "--drop-path of at most 1"),
        ("mdd", {"lr_decay": -1.0}, "--lr-decay of 0 or more"),
        ("ldam", {"margin": -1.0}, "expected --margin of 0 or more, got -1"),
        ("paco", {"dim": -1}, "expected --dim of 1 or more and of at most 65,536, got -1"),
        ("paco", {"queue": 10**12}, "expected --queue of at most 1,000,000"),
        ("cross_entropy", {"size": 10**7}, "expected --size of at most 8,192"),
        ("balanced_softmax", {"warmup_start": -1.0}, "--warmup-start of 0 or more"),
        ("ce_gzsl", {"synthetic": 10**7}, "--synthetic of 1 or more and of at most 10,000"),
        ("moco_v2", {"temperature": 0.0}, "expected --temperature above 0"),
    ],
)
def test_a_number_outside_its_range_is_named(
    recipe: str, keywords: dict[str, Any], message: str
) -> None:
    with pytest.raises(LongtailError) as caught:
        read(recipe).keywords(keywords)
    assert message in str(caught.value)


def test_every_number_of_every_recipe_has_a_range_with_its_default() -> None:
    names = set()
    for recipe in RECIPES:
        parameters = read(recipe).parameters
        check_bounds({name: parameter.default for name, parameter in parameters.items()})
        names |= {
            name for name, parameter in parameters.items() if parameter.scalar in ("int", "float")
        }
    assert set(BOUNDS) == names
