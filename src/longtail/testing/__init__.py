"""Checks for methods, losses, recipes and datasets of your own, with pytest or without it.

Each check raises an AssertionError that says what is wrong. Our own tests call the same checks.
"""

from longtail.testing.datasets import check_dataset as check_dataset
from longtail.testing.losses import check_loss as check_loss
from longtail.testing.methods import check_method as check_method
from longtail.testing.recipes import check_recipe as check_recipe
