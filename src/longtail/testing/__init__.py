"""Checks for your methods, losses, recipes and datasets, with or without pytest.

Each check raises an AssertionError that says what is wrong. The tests of longtail use them too.
"""

from longtail.testing.datasets import check_dataset as check_dataset
from longtail.testing.losses import check_loss as check_loss
from longtail.testing.methods import check_method as check_method
from longtail.testing.recipes import check_recipe as check_recipe
