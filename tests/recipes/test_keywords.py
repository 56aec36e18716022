"""Every keyword of a recipe says what it means."""

from longtail.recipes import RECIPES
from longtail.recipes.keywords import KEYWORDS, meanings
from longtail.recipes.signatures import read


def test_every_keyword_is_explained_and_nothing_else() -> None:
    assert {name for recipe in RECIPES for name in read(recipe).parameters} == set(KEYWORDS)


def test_an_explanation_is_one_short_sentence() -> None:
    for name, meaning in KEYWORDS.items():
        assert meaning[0].isupper(), name
        assert meaning.endswith("."), name
        assert len(meaning) <= 90, name


def test_keywords_of_custom_recipes_have_no_built_in_meaning() -> None:
    assert meanings("ldam") == KEYWORDS
    assert not meanings("mine:ldam")
