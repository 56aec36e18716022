"""Sections of a report about probabilities: reliability, calibration and prediction sets."""

from __future__ import annotations

from typing import Any

from longtail.records.row import Summary
from longtail.report import charts
from longtail.report.cells import Cell, number_cell, percent
from longtail.report.folders import Finished


def reliability(summary: Summary) -> list[Any]:
    """A reliability diagram for all images, and for those of each group."""
    return [
        charts.reliability_diagram(
            group["confidence"],
            group["accuracy"],
            group["images"],
            title=f"{name} ({sum(group['images']):,} images)",
        )
        for name, group in summary.get("reliability", {}).items()
        if group is not None
    ]


def calibration(summary: Summary) -> dict[str, Any] | None:
    """A table of the calibration errors of all images, and of those of each group."""
    bins, classwise = summary.get("reliability", {}), summary.get("classwise_ece")
    rows: list[list[Cell]] = []
    for name, group in bins.items():
        if group is not None:
            by_class = (
                None
                if classwise is None
                else classwise["mean"]
                if name == "all"
                else classwise["groups"].get(name)
            )
            rows.append(
                [
                    name,
                    number_cell(group["ece"]),
                    number_cell(group["mce"]),
                    ("-", None) if by_class is None else (f"{100 * by_class:.2f}", by_class),
                ]
            )
    columns = ["images of", "ECE, points", "MCE, points", "class-wise ECE, points"]
    return {"columns": columns, "rows": rows, "numbers": [1, 2, 3]} if rows else None


def conformal(run: Finished, summary: Summary) -> list[tuple[str, str]] | None:
    """What the prediction sets of the test images are worth, as pairs of a name and a sentence."""
    sets = summary.get("conformal")
    if sets is None:
        return None
    groups = ", ".join(
        f"{name} {percent(value)}" for name, value in sets["groups"].items() if value is not None
    )
    sizes = ", ".join(
        f"{name} {value:.1f}" for name, value in sets["size_groups"].items() if value is not None
    )
    worst = sets["worst"]
    return [
        (
            "nominal coverage",
            (
                "the set contains the true class with a probability of at least"
                f" {percent(sets['level'], 0)}"
            ),
        ),
        (
            "measured coverage",
            (
                f"{percent(sets['coverage'])} of the images; mean over classes"
                f" {percent(sets['balanced'])} ({groups})"
            ),
        ),
        ("classes in a set", f"{sets['size']:.2f} on average ({sizes})"),
        (
            "abstain",
            (
                f"{percent(sets['multiple'])} of the images have more than one class in their set,"
                f" {percent(sets['empty'])} none"
            ),
        ),
        (
            "worst class",
            (
                f"{run.classes[worst['index']]}: {percent(worst['coverage'])} of"
                f" {worst['images']:,} images"
            ),
        ),
    ]
