import json
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from longtail.data.facts import facts, gini
from longtail.data.opening import open_data

MakeFolder = Callable[..., Path]


def test_facts_of_a_folder(tmp_path: Path, make_folder: MakeFolder) -> None:
    found = facts(open_data(str(make_folder(tmp_path, {"a": 30, "b": 10, "c": 3}))))
    assert json.loads(json.dumps(found)) == found
    assert found["images"] == {"train": 32, "val": 3, "test": 8}
    assert (found["largest"], found["smallest"], found["imbalance"]) == (30, 3, 10.0)
    assert found["classes"][1] == {"name": "b", "source": 10, "train": 7, "val": 1, "test": 2, "group": "medium"}
    assert found["groups"]["rule"] == "ranks: 1/1/1"
    assert found["groups"]["members"]["few"] == {"classes": 1, "images": 3}
    assert (found["not_tested"], found["not_validated"]) == (["c"], ["c"])


@given(st.lists(st.integers(0, 500), min_size=1, max_size=20).filter(any))
def test_gini_is_half_the_mean_difference_over_the_mean(counts: list[int]) -> None:
    differences = sum(abs(a - b) for a in counts for b in counts) / len(counts) ** 2
    assert gini(torch.tensor(counts)) == pytest.approx(differences / (2 * sum(counts) / len(counts)))
