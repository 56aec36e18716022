"""Ranges and values, read by the types of a recipe. What is refused is in tests/cli/test_search.py."""

from __future__ import annotations

from longtail.experiments.spaces import Choices, Range, space
from longtail.recipes.signatures import read


def test_the_space_is_read_by_the_types_of_the_recipe() -> None:
    recipe = read("balanced_softmax")
    assert space(recipe, "lr", "log:0.01..0.3") == Range(0.01, 0.3, log=True, whole=False)
    assert space(recipe, "epochs", "2..9") == Range(2, 9, log=False, whole=True)
    for text in ("fast_cnn,resnet32", "fast_cnn|resnet32"):
        assert space(recipe, "network", text) == Choices(
            ("fast_cnn", "resnet32"), recipe.parameters["network"]
        )
    optional = space(recipe, "lr", "none,0.1")
    assert isinstance(optional, Choices)
    assert [optional.value(text) for text in optional.texts] == [None, 0.1]


def test_what_is_drawn_can_be_typed_and_stays_in_its_range() -> None:
    wide = Range(0.01234, 0.3, log=True, whole=False)
    assert wide.value(0.0456789) == 0.0457
    assert wide.value(0.012341) == 0.01234
    assert Range(1, 9, log=False, whole=True).value(3) == 3
