"""Ranges and values, read by the types of a recipe. What is refused is in
tests/experiments/test_search.py.
"""

from __future__ import annotations

from longtail.experiments.spaces import Choices, Range, parse_space
from longtail.recipes.signatures import read


def test_the_space_is_read_by_the_types_of_the_recipe() -> None:
    recipe = read("balanced_softmax")
    assert parse_space(recipe, "lr", "log:0.01..0.3") == Range(0.01, 0.3, log=True, integer=False)
    assert parse_space(recipe, "epochs", "2..9") == Range(2, 9, log=False, integer=True)
    for text in ("fast_cnn,resnet32", "fast_cnn|resnet32"):
        assert parse_space(recipe, "network", text) == Choices(
            ("fast_cnn", "resnet32"), recipe.parameters["network"]
        )
    optional = parse_space(recipe, "lr", "none,0.1")
    assert isinstance(optional, Choices)
    assert [optional.value(text) for text in optional.texts] == [None, 0.1]


def test_sampled_values_can_be_typed_and_stay_in_their_range() -> None:
    wide = Range(0.01234, 0.3, log=True, integer=False)
    assert wide.value(0.0456789) == 0.0457
    assert wide.value(0.012341) == 0.01234
    assert Range(1, 9, log=False, integer=True).value(3) == 3
