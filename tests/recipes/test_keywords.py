"""Every keyword of a recipe says what it means."""

from longtail.recipes import RECIPES
from longtail.recipes.keywords import KEYWORDS
from longtail.recipes.signatures import read


def test_every_keyword_is_explained_and_nothing_else() -> None:
    assert {name for recipe in RECIPES for name in read(recipe).parameters} == set(KEYWORDS)


def test_an_explanation_is_one_short_sentence() -> None:
    for name, meaning in KEYWORDS.items():
        assert meaning[0].isupper() or meaning.split()[0] in ("uniform",), name
        assert meaning.endswith("."), name
        assert len(meaning) <= 140, name
