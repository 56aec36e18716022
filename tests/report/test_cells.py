"""Text and numbers in the cells of tables."""

import numpy as np

from longtail.report.cells import number_cell, percent


def test_percent_of_nothing_is_a_dash() -> None:
    assert [percent(value) for value in (None, 0.0, np.float64(1.0))] == [
        "-",
        "0.0%",
        "100.0%",
    ]


def test_a_number_is_sorted_by_its_value() -> None:
    assert number_cell(0.125) == ("12.5", 0.125)
    assert number_cell(None) == ("-", None)
