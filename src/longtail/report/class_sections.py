"""The parts of a report about single classes: chart, table, and the worst classes of the tail."""

from __future__ import annotations

from typing import Any

import numpy as np

from longtail.records.row import Summary
from longtail.report import images
from longtail.report.cells import Cell, number_cell, percent
from longtail.report.charts import ClassScore
from longtail.report.folders import Finished

WORST, CONFUSIONS = 5, 3
MARKERS, ROWS = 300, 500
"""Most markers in the chart and most rows in the table of classes, to keep the page small."""


def markers(run: Finished, summary: Summary) -> list[ClassScore]:
    """A marker per class from frequent to rare, or per group of neighbours if there are many."""
    counts, recalls = run.row["data"]["counts_after"], summary["recall"]
    unknown: list[float | None] = [None] * len(counts)
    low, high = summary.get("recall_low", unknown), summary.get("recall_high", unknown)
    order = sorted(range(len(counts)), key=lambda index: (-counts[index], index))
    if len(order) <= MARKERS:
        return [
            ClassScore(
                run.classes[index],
                run.group(index),
                counts[index],
                recalls[index],
                low[index],
                high[index],
            )
            for index in order
        ]
    markers = []
    for part in np.array_split(np.array(order), MARKERS):
        known = [value for index in part if (value := recalls[index]) is not None]
        name = f"mean of {len(part)} classes, {run.classes[part[0]]} to {run.classes[part[-1]]}"
        images = round(float(np.mean([counts[index] for index in part])))
        markers.append(
            ClassScore(
                name,
                run.group(int(part[len(part) // 2])),
                images,
                float(np.mean(known)) if known else None,
                None,
                None,
            )
        )
    return markers


def class_table(run: Finished, summary: Summary) -> dict[str, Any]:
    """The table of classes, from frequent to rare; of many, those with the lowest recall."""
    counts, recalls, tested = (
        run.row["data"]["counts_after"],
        summary["recall"],
        summary.get("images_per_class"),
    )
    confused_with = summary.get("confused_with")
    confused_share = summary.get("confused_share")
    low, high = summary.get("recall_low"), summary.get("recall_high")
    columns = ["class", "group", "training images", "recall, %"]
    columns += ["95% interval"] * (low is not None) + [f"{run.split} images"] * (tested is not None)
    numbers = list(range(2, len(columns)))
    columns += ["most confused with"] * (confused_with is not None)
    worst = sorted(
        range(len(counts)), key=lambda index: (recalls[index] is None, recalls[index], index)
    )[:ROWS]
    rows = []
    for index in sorted(worst, key=lambda index: (-counts[index], index)):
        row: list[Cell] = [
            run.classes[index],
            run.group(index),
            (f"{counts[index]:,}", counts[index]),
            number_cell(recalls[index]),
        ]
        if low is not None and high is not None:
            first, last = low[index], high[index]
            row.append(
                ("-", None)
                if first is None or last is None
                else (f"{100 * first:.0f} to {100 * last:.0f}", last - first)
            )
        if tested is not None:
            row.append((f"{tested[index]:,}", tested[index]))
        if confused_with is not None and confused_share is not None:
            other, share = confused_with[index], confused_share[index]
            row.append("-" if other is None else f"{run.classes[other]} ({percent(share, 0)})")
        rows.append(row)
    which = (
        "All classes"
        if len(rows) == len(counts)
        else f"The {len(rows)} classes with the lowest recall of {len(counts):,}"
    )
    return {"columns": columns, "rows": rows, "numbers": numbers, "which": which}


def worst(run: Finished, summary: Summary) -> list[dict[str, Any]]:
    """The classes with the lowest recall in the rarest group that has images."""
    recalls = summary["recall"]
    tails = [
        [index for index in members if recalls[index] is not None]
        for members in run.members.values()
    ]
    tail = next((group for group in reversed(tails) if group), [])
    worst = []
    for index in sorted(tail, key=lambda index: (recalls[index], index))[:WORST]:
        tested, low, high = (
            summary.get("images_per_class"),
            summary.get("recall_low"),
            summary.get("recall_high"),
        )
        bounds = (
            ""
            if not low or not high
            else f" (95% interval {percent(low[index], 0)} to {percent(high[index], 0)})"
        )
        evaluated = (
            ""
            if not tested
            else f", on {tested[index]:,} {run.split} image{'' if tested[index] == 1 else 's'}"
        )
        worst.append(
            {
                "name": run.classes[index],
                "words": (
                    f"Recall {percent(recalls[index])}{bounds}{evaluated};"
                    f" {run.row['data']['counts_after'][index]:,} training images."
                ),
                "confusions": _confusions(run, index),
                "examples": _examples(run, index),
            }
        )
    return worst


def worst_title(summary: Summary) -> str:
    """What the worst classes are: of a tail, of unseen pairs or classes, or of all."""
    if "few" in summary["groups"]:
        return "The worst classes of the tail"
    kind = "pairs" if "best_unseen" in summary["scores"] else "classes"
    return f"The worst {'unseen ' if 'unseen' in summary['groups'] else ''}{kind}"


def _confusions(run: Finished, index: int) -> str:
    if run.predictions is None:
        return ""
    predicted = run.predictions.predicted[run.predictions.target == index]
    wrong = np.bincount(predicted[predicted != index], minlength=len(run.classes))
    others = [
        int(other) for other in np.argsort(-wrong, kind="stable")[:CONFUSIONS] if wrong[other]
    ]
    several = len(run.members) > 1
    shown = [
        f"{run.classes[other]} ({wrong[other]:,} of {len(predicted):,}"
        + (f"; {run.group(other)})" if several else ")")
        for other in others
    ]
    rest = int(wrong.sum() - wrong[others].sum())
    return ", ".join(shown) + (f", others ({rest})" if rest else "")


def _examples(run: Finished, index: int) -> list[dict[str, str]]:
    if run.examples is None:
        return []
    examples, arrays = [], run.examples
    for number in np.flatnonzero(arrays["target"] == index):
        predicted, confidence = (
            run.classes[int(arrays["answer"][number])],
            percent(float(arrays["confidence"][number]), 0),
        )
        pixels = arrays["image"][number]
        example = {
            "image": images.data_uri(pixels),
            "alt": f"{run.split} image {arrays['id'][number]} of class {run.classes[index]}",
            "words": f"predicted {predicted}, confidence {confidence}",
            "map": "",
        }
        if "map" in arrays:
            example["map"] = images.data_uri(images.spotlight(pixels, arrays["map"][number]))
            example["map_alt"] = f"saliency map ({arrays['kind']})"
        examples.append(example)
    return examples


def maps(run: Finished) -> str:
    """How the saliency maps of the examples were made, or why there are none."""
    if run.examples is None:
        return ""
    if "map" not in run.examples:
        return f"There are no saliency maps ({run.examples['kind']})."
    meaning = (
        "the regions that support the prediction"
        if str(run.examples["kind"]) == "Grad-CAM"
        else "the patches whose information reaches the classification tokens"
    )
    return (
        "The most confident errors per class. The darkened copy is a saliency map"
        f" ({run.examples['kind']}): bright are {meaning}."
    )
