from typing import Any

import numpy as np
import pytest

from longtail.data.columns import check_columns, read_columns
from longtail.errors import LongtailError


def test_words_become_categories_and_numbers_stay_numbers() -> None:
    columns, categories = read_columns(
        {
            "train": {"domain": ["b", "a", ""], "age": ["1", "2.5", ""], "year": [1, None, 3]},
            "test": {"domain": ["c"], "age": ["-1e3"], "year": [4]},
        }
    )
    assert categories == {"domain": ("", "a", "b", "c")}
    assert columns["train"]["domain"].tolist() == [2, 1, 0]
    assert columns["test"]["domain"].tolist() == [3]
    assert columns["train"]["age"].dtype == columns["train"]["year"].dtype == np.float32
    np.testing.assert_array_equal(columns["train"]["age"], np.array([1, 2.5, np.nan], np.float32))
    assert columns["test"]["age"].tolist() == [-1000.0]


def test_mixed_columns_are_text_and_columns_missing_from_a_split_are_dropped() -> None:
    columns, categories = read_columns(
        {"train": {"a": ["1", "x"], "b": ["1", "2"]}, "test": {"a": ["inf"]}}
    )
    assert categories == {"a": ("1", "inf", "x")}
    assert [*columns["train"]] == [*columns["test"]] == ["a"]
    assert read_columns({"train": {"empty": ["", ""]}})[1] == {"empty": ("",)}


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        ({"target": [1, 2]}, "column 'target' has the name of another key"),
        ({"domain": [1]}, "column 'domain' must have a value for each of 2 rows"),
    ],
)
def test_columns_that_do_not_fit_are_refused(columns: dict[str, Any], message: str) -> None:
    with pytest.raises(LongtailError, match=message):
        check_columns(columns, 2)
