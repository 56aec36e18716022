"""Names that nobody knows: what there is instead, and what was probably meant."""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches

from longtail.errors import LongtailError


def meant(name: str, known: Iterable[str], *, most: int = 1) -> str:
    """A guess at what was meant, as a question, or nothing.

    >>> meant("weka", ["weak", "cutout"]), meant("weka", ["cutout"])
    ('did you mean weak?', '')
    """
    close = get_close_matches(name, list(known), n=most, cutoff=0.5)
    return f"did you mean {' or '.join(close)}?" if close else ""


def unknown(kind: str, name: str, known: Iterable[str], *, more: str = "") -> LongtailError:
    """The error for a name nobody knows.

    >>> str(unknown("recipe", "balanced", ["cross_entropy", "balanced_softmax"]))
    "unknown recipe 'balanced': did you mean balanced_softmax? Known: balanced_softmax, cross_entropy"
    """
    names = sorted(known)
    guess = meant(name, names, most=3)
    return LongtailError(
        f"unknown {kind} {name!r}{f': {guess}' if guess else '.'} Known: {', '.join(names) or 'none'}{more}"
    )
