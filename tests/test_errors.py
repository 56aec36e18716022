"""Which errors are explained in a sentence, and which keep their traceback."""

from __future__ import annotations

from longtail.core import NonFinite
from longtail.engine.stopping import Stopped
from longtail.errors import LongtailError, MissingExtra, explained


def test_what_a_person_can_mend_is_explained() -> None:
    assert explained(Stopped("stopped; continue with x")) == ("stopped; continue with x", 130)
    assert explained(LongtailError("x")) == ("error: x", 2)
    assert explained(MissingExtra("pip install x")) == ("error: pip install x", 2)
    assert explained(NonFinite("x")) == ("error: x", 2)
    assert explained(OSError("no space")) == ("error: no space", 2)


def test_other_errors_are_not() -> None:
    for error in (KeyError("x"), ValueError("x"), RuntimeError("x")):
        assert explained(error) is None
