"""Seeds: a function of all parts, over all three generators."""

import random

import numpy as np
import torch

from longtail.engine.seeding import seed_all


def random_numbers() -> tuple[float, float, float]:
    return torch.rand(()).item(), float(np.random.rand()), random.random()  # noqa: NPY002


def test_the_same_parts_give_the_same_numbers_and_others_give_others() -> None:
    seen = []
    for parts in (
        (0, "train", 1, 0),
        (1, "train", 1, 0),
        (0, "tune", 1, 0),
        (0, "train", 2, 0),
        (0, "train", 1, 1),
    ):
        seed_all(*parts)
        first = random_numbers()
        seed_all(*parts)
        assert random_numbers() == first
        seen.append(first)
    for numbers in zip(*seen, strict=True):
        assert len(set(numbers)) == len(seen)
