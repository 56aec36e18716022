import pytest
from pair_data import pair_features

from longtail.data.open import open_data
from longtail.errors import LongtailError
from longtail.recipes.cge import cge
from longtail.testing import check_recipe

QUICK = {"epochs": 2, "batch": 16, "hidden": 8, "graph_width": 12}


@pytest.mark.parametrize(
    "keywords",
    [{}, {"batchformer": "on"}, {"batchformer": "frozen", "dim": 6}, {"batchformer": "self"}],
)
def test_cge_on_features(keywords: dict[str, object]) -> None:
    check_recipe(cge, pair_features(), network="vectors", **QUICK, **keywords)


def test_cge_learns_vectors_where_none_are_given() -> None:
    check_recipe(cge, pair_features(words=False), network="vectors", word_dim=5, **QUICK)


def test_cge_refuses_classes_that_are_no_pairs(tmp_path: object) -> None:
    with pytest.raises(LongtailError, match="are no pairs of an attribute and an object"):
        check_recipe(cge, open_data("digits-lt"))
