"""An assertion that stays when Python runs with -O."""

from __future__ import annotations


def require(condition: object, message: str) -> None:
    """Raise an AssertionError with the message unless the condition holds."""
    if not condition:
        raise AssertionError(message)
