"""A requirement that fails says why."""

import pytest

from longtail.testing.requiring import require


def test_what_is_required_is_the_message() -> None:
    require([1], "not shown")
    with pytest.raises(AssertionError, match="no rows"):
        require([], "no rows")
