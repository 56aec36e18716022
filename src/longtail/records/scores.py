"""Named scores and their labels, as a row stores them: reports need no scorer."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Literal, TypedDict


class Label(TypedDict):
    """How a score is shown."""

    title: str  # short: the heading of its column
    description: str  # for sentences, such as "balanced accuracy"
    format: Literal["percent", "plain"]  # fractions times 100, or the number itself
    higher_is_better: bool


class Headline(TypedDict):
    """The score that ranks runs, and that the best epoch on validation is chosen by."""

    name: str
    higher_is_better: bool


def label(
    title: str,
    *,
    description: str | None = None,
    format: Literal["percent", "plain"] = "percent",
    higher_is_better: bool = True,
) -> Label:
    """Describe a score; where there is no description, the title stands in sentences, too.

    >>> label("NLL", format="plain", higher_is_better=False)
    {'title': 'NLL', 'description': 'NLL', 'format': 'plain', 'higher_is_better': False}
    """
    return {
        "title": title,
        "description": description or title,
        "format": format,
        "higher_is_better": higher_is_better,
    }


def format_score(value: float | None, shown: Label) -> str:
    """A score as text: percent with one digit, without the sign; a plain number with three.

    >>> format_score(0.8047, label("overall")), format_score(None, label("few"))
    ('80.5', '-')
    >>> format_score(0.25, label("NLL", format="plain"))
    '0.250'
    """
    if value is None:
        return "-"
    return f"{100 * value:.1f}" if shown["format"] == "percent" else f"{value:.3f}"


def with_unit(value: float | None, shown: Label) -> str:
    """The same with the sign of percent.

    >>> with_unit(0.8047, label("overall")), with_unit(0.25, label("NLL", format="plain"))
    ('80.5%', '0.250')
    """
    percent = value is not None and shown["format"] == "percent"
    return format_score(value, shown) + "%" * percent


def columns(labels: Mapping[str, Label], scores: Iterable[str]) -> list[str]:
    """The scores that tables show, in the order of their labels, without "domain/art" and the like.

    >>> columns({"nll": label("NLL"), "top1": label("overall")}, ["top1", "domain/art", "nll"])
    ['nll', 'top1']
    """
    available = set(scores)
    return [name for name in labels if name in available and "/" not in name]


def long_tail_labels(groups: Iterable[str]) -> dict[str, Label]:
    """The labels of the long-tailed scores: overall, balanced and each group of classes."""
    return {
        "top1": label("overall", description="overall accuracy"),
        "balanced": label("balanced", description="balanced accuracy"),
        **{name: label(name) for name in groups},
    }


def long_tail_scores(summary: Mapping[str, Any]) -> dict[str, float | None]:
    """The long-tailed scores of a split's summary."""
    return {"top1": summary["top1"], "balanced": summary["balanced"], **summary["groups"]}


def add_scores(row: dict[str, Any]) -> None:
    """Add the long-tailed scores, ranked by `balanced`, to a row without named scores."""
    adjustment = row.get("adjustment") or {}
    summaries = [
        parent[split]
        for parent in (row, adjustment)
        for split in ("val", "test")
        if parent.get(split)
    ]
    summaries += [head for summary in summaries for head in summary.get("heads", {}).values()]
    for summary in summaries:
        summary["scores"] = long_tail_scores(summary)
    row["headline"] = {"name": "balanced", "higher_is_better": True}
    row["labels"] = long_tail_labels(
        dict.fromkeys(name for summary in summaries for name in summary["groups"])
    )
    if best := row.get("best_validation"):
        row["best_validation"] = {"epoch": best["epoch"], "value": best["balanced"]}
