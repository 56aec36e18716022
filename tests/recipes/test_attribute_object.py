from pair_data import pair_features

from longtail.recipes.attribute_object import attribute_object
from longtail.testing import check_recipe


def test_the_product_of_two_classifiers() -> None:
    quick = {"epochs": 2, "batch": 16, "hidden": 12, "network": "vectors"}
    check_recipe(attribute_object, pair_features(words=False), batchformer="on", **quick)
