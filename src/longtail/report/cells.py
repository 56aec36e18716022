"""Cells of the tables in a report: text, or a number that can be sorted by."""

from __future__ import annotations

Cell = str | tuple[str, float | None]


def percent(value: float | None, digits: int = 1) -> str:
    """A fraction in percent.

    >>> percent(0.8047), percent(None)
    ('80.5%', '-')
    """
    return "-" if value is None else f"{100 * value:.{digits}f}%"


def number_cell(value: float | None) -> tuple[str, float | None]:
    """A fraction in percent, without the sign, and the number that it is sorted by."""
    return ("-", None) if value is None else (f"{100 * value:.1f}", round(value, 6))
