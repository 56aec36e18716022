import json
import math
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
import torch
import zero_shot_files
from hypothesis import given
from hypothesis import strategies as st

from longtail.data.inspect.facts import (
    effective_number,
    equal_classes,
    facts,
    gini,
    mean_known_to,
    recall_known_to,
)
from longtail.data.open import open_data

MakeFolder = Callable[..., Path]


def test_facts_of_a_folder(tmp_path: Path, make_folder: MakeFolder) -> None:
    result = facts(open_data(str(make_folder(tmp_path, {"a": 30, "b": 10, "c": 3}))))
    assert json.loads(json.dumps(result)) == result
    assert result["images"] == {"train": 32, "val": 3, "test": 8}
    assert (result["largest"], result["smallest"], result["imbalance"]) == (30, 3, 10.0)
    entry = result["classes"][1]
    assert {key: entry[key] for key in list(entry)[:6]} == {
        "name": "b",
        "source": 10,
        "train": 7,
        "val": 1,
        "test": 2,
        "group": "medium",
    }
    assert entry["effective"] == pytest.approx(sum(0.9999**i for i in range(10)))
    assert entry["known_to"] == pytest.approx(0.4055, abs=1e-4)
    assert result["groups"]["rule"] == "ranks: 1/1/1"
    assert result["groups"]["members"]["few"] == {"classes": 1, "images": 3, "known_to": None}
    assert result["effective"]["imbalance"] == pytest.approx(
        result["effective"]["largest"] / result["effective"]["smallest"]
    )
    assert result["known_to"] == pytest.approx(
        1.96 * (0.25 / (6 + 1.96**2) + 0.25 / (2 + 1.96**2)) ** 0.5 / 2, rel=1e-4
    )
    assert (result["not_tested"], result["not_validated"]) == (["c"], ["c"])


@given(st.lists(st.integers(0, 500), min_size=1, max_size=20).filter(any))
def test_gini_is_half_the_mean_difference_over_the_mean(counts: list[int]) -> None:
    differences = sum(abs(a - b) for a in counts for b in counts) / len(counts) ** 2
    assert gini(torch.tensor(counts)) == pytest.approx(
        differences / (2 * sum(counts) / len(counts))
    )


@given(st.integers(1, 60), st.floats(0.1, 0.9999))
def test_an_effective_number_is_a_sum_of_powers(count: int, beta: float) -> None:
    assert effective_number(count, beta=beta) == pytest.approx(sum(beta**i for i in range(count)))


@given(st.lists(st.integers(0, 50), min_size=1, max_size=12).filter(any))
def test_as_hard_to_guess_as_equal_classes(counts: list[int]) -> None:
    assert 1 <= equal_classes(counts) <= sum(n > 0 for n in counts) + 1e-6
    assert equal_classes([7] * len(counts)) == pytest.approx(len(counts))
    assert equal_classes([*counts, 0]) == equal_classes(counts)


@pytest.mark.parametrize("images", [1, 3, 17, 400])
def test_no_recall_is_known_less_than_at_one_half(images: int) -> None:
    def half(right: float) -> float:  # Wilson 1927
        z, share = 1.959963984540054, right / images
        return float(
            z
            / (1 + z * z / images)
            * (share * (1 - share) / images + z * z / (4 * images * images)) ** 0.5
        )

    worst = recall_known_to(images)
    assert worst == pytest.approx(half(images / 2))
    assert worst is not None
    assert all(half(right) <= worst + 1e-12 for right in range(images + 1))
    assert recall_known_to(0) is None


def test_the_interval_of_a_mean_of_recalls_agrees_with_repeated_samples() -> None:
    images = [300, 800, 4000]
    draws = torch.stack(
        [torch.distributions.Binomial(n, torch.tensor(0.5)).sample((100_000,)) / n for n in images]
    ).mean(0)
    assert mean_known_to([*images, 0]) == pytest.approx(1.96 * float(draws.std()), rel=0.02)
    assert mean_known_to([0, 0]) is None


def test_a_mean_over_few_images_is_known_as_well_as_its_classes_are() -> None:
    assert mean_known_to([1]) == pytest.approx(recall_known_to(1))
    widths = [recall_known_to(n) or 0.0 for n in (3, 8, 40)]
    assert mean_known_to([3, 8, 40]) == pytest.approx(math.hypot(*widths) / 3)


def test_unseen_classes_and_what_describes_them(tmp_path: Path) -> None:
    data = open_data(zero_shot_files.write(tmp_path))
    result = facts(data)
    assert result["unseen"] == {
        "classes": 4,
        "seen": 4,
        "val": 2,
        "test": 2,
        "vector": {"width": 6, "only_unseen": 0},
    }
    assert (result["smallest"], result["imbalance"]) == (9, 1.0)
    vectors = data.class_attributes["vector"].clone()
    vectors[data.counts > 0, 2] = 0
    lacking = facts(replace(data, class_attributes={"vector": vectors}))
    assert lacking["unseen"]["vector"]["only_unseen"] == 1
    assert facts(open_data("digits-lt"))["unseen"] is None


def test_images_by_domain_and_class(tmp_path: Path, make_folder: MakeFolder) -> None:
    make_folder(tmp_path, {"x/a": 6, "x/b": 2, "y/a": 5, "z/a": 1, "z/b": 3})
    result = facts(open_data(str(tmp_path), test_domain="x"))["domains"]
    assert result == {"names": ["x", "y", "z"], "test": "x", "counts": [[6, 2], [5, 0], [1, 3]]}
    assert facts(open_data("digits-lt"))["domains"] is None
