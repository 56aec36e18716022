"""A finished run in words, tables and drawings: the values that the page's template shows."""

from __future__ import annotations

import shlex
from typing import Any

import numpy as np

from longtail.metrics.intervals import balanced
from longtail.recipes.published import match
from longtail.records.row import Summary
from longtail.records.scores import columns, label, with_unit
from longtail.report import charts, figures, images
from longtail.report.charts import ClassScore
from longtail.report.folders import Finished
from longtail.report.svg import Bar, bar_chart

WORST, CONFUSIONS = 5, 3
MARKS, ROWS = 300, 500
"""Of the drawing and the table of classes at most: thousands of classes would make a page that no
phone opens.
"""
Cell = str | tuple[str, float | None]


def section(run: Finished) -> dict[str, Any]:
    """Everything to show about a run."""
    shown, unknown = figures.analysis_figures(run.analyses)
    found: dict[str, Any] = {
        "title": f"{run.row['recipe']} on {run.row['data']['name']}",
        "folder": str(run.folder),
        "lede": _lede(run),
        "published": _published(run),
        "curves": [(name, figures.training_curves(run, name)) for name in run.journals],
        "figures": shown,
        "unknown": unknown,
        "reproduce": _reproduce(run),
        "missing": run.missing,
        "caveats": run.row["data"]["caveats"],
    }
    if run.summary is None:
        return found | {"summary": None}
    return found | {
        "summary": run.summary,
        "images": "test images" if run.split == "test" else "validation images",
        "headline": _headline(run, run.summary),
        "ranked_by": run.row["labels"][run.row["headline"]["name"]]["title"],
        "score_parts": _score_parts(run, run.summary),
        "sentences": _sentences(run, run.summary),
        "classes": charts.class_chart(
            _spots(run, run.summary), title="Recall and training images of each class"
        ),
        "has_tail": {"many", "few"} <= {*run.summary["groups"]},
        "class_table": _class_table(run, run.summary),
        "worst": _worst(run, run.summary),
        "maps": _maps(run),
        "reliability": _reliability(run.summary),
        "calibration": _calibration(run.summary),
        "confusions": _between_groups(run.summary),
        "priors": _priors(run.summary),
        "conformal": _conformal(run, run.summary),
        "more": _more(run, run.summary),
    }


# ------------------------------------------------------------------------------------- the headline


def percent(value: float | None, digits: int = 1) -> str:
    """A fraction as people read it.

    >>> percent(0.8047), percent(None)
    ('80.5%', '-')
    """
    return "-" if value is None else f"{100 * value:.{digits}f}%"


def _lede(run: Finished) -> str:
    row = run.row
    counts = row["data"]["counts_after"]
    epochs = (
        " + ".join(f"{own} ({name})" for name, own in row["epochs"].items())
        if len(row["epochs"]) > 1
        else ""
    )
    epochs = epochs or f"{sum(row['epochs'].values())}"
    before = (
        f" after {_duration(row['minutes_before'])} of other runs"
        if row.get("minutes_before")
        else ""
    )
    return (
        f"{row['data']['classes']} classes, {row['data']['train_images']:,} training images:"
        f" {max(counts):,} of the most frequent class, {min(counts):,} of the rarest. {epochs}"
        f" epochs, {_duration(row['minutes'])}{before}, {row['parameters']:,} parameters, seed"
        f" {row['seed']}."
    )


def _duration(minutes: float) -> str:
    return (
        f"{60 * minutes:.0f} seconds"
        if minutes < 2
        else f"{minutes:.0f} minutes"
        if minutes < 120
        else f"{minutes / 60:.1f} hours"
    )


def _headline(run: Finished, summary: Summary) -> list[tuple[str, str, str]]:
    """The name, the number and what stands small beside it."""
    labels, scores = run.row["labels"], summary["scores"]
    numbers = []
    for name in dict.fromkeys([run.row["headline"]["name"], *columns(labels, scores)]):
        title = labels[name]["description"]
        if name in summary["groups"] and run.members:
            size = len(run.members.get(name, ()))
            title = f"{title} ({size} class{'' if size == 1 else 'es'})"
        known = name == "balanced" and scores[name] == summary["balanced"]
        value = with_unit(scores.get(name), labels[name])
        numbers.append((title, value, _interval(run) if known else ""))
    return [
        *numbers,
        (
            "calibration error (ECE), points",
            f"{100 * summary['ece']:.1f}",
            f"by {summary['confidence']}",
        ),
    ]


def _score_parts(run: Finished, summary: Summary) -> list[dict[str, Any]]:
    """A table for each score that has parts, such as "domain/art" and "domain/photo"."""
    parts: dict[str, dict[str, float | None]] = {}
    for name, value in summary["scores"].items():
        whole, _, part = name.partition("/")
        if part:
            parts.setdefault(whole, {})[part] = value
    tables = []
    for whole, values in parts.items():
        shown = run.row["labels"].get(whole) or label(whole)
        rows = [[part, (with_unit(value, shown), value)] for part, value in values.items()]
        tables.append(
            {
                "title": shown["description"],
                "columns": ["", shown["title"]],
                "rows": rows,
                "numbers": [1],
            }
        )
    return tables


def _interval(run: Finished) -> str:
    if run.predictions is None:
        return ""
    found = balanced(run.predictions.predicted == run.predictions.target, run.predictions.target)
    return f"95% interval {100 * found.low:.1f} to {100 * found.high:.1f}"


def _sentences(run: Finished, summary: Summary) -> list[str]:
    of = "test" if run.split == "test" else "validation"
    headline = run.row["headline"]
    shown = run.row["labels"][headline["name"]]
    words = []
    if headline["name"] != "balanced":
        better = "higher" if headline["higher_is_better"] else "lower"
        value = with_unit(summary["scores"].get(headline["name"]), shown)
        words.append(
            f"Runs on this data are ranked by {shown['description']}: {value} ({better} is better)."
        )
    words += [
        f"When every class counts the same, it recognises {percent(summary['balanced'])} of the"
        f" {summary['images']:,} {of} images: that is the balanced accuracy, the mean over classes"
        " of the share that is recognised."
        + (
            f" The interval is over other {of} images of the same classes."
            if run.predictions
            else ""
        )
    ]
    known = {name: value for name, value in summary["groups"].items() if value is not None}
    if {"many", "few"} <= known.keys() and run.members:
        gap = 100 * (known["many"] - known["few"])
        words.append(
            f"Of the {len(run.members['few'])} rarest classes (few) it recognises"
            f" {percent(known['few'])}, of the {len(run.members['many'])} most frequent (many)"
            f" {percent(known['many'])}: "
            + (
                f"the tail is {gap:.1f} points behind."
                if gap > 0
                else f"the tail is not behind, but {-gap:.1f} points ahead."
            )
        )
    adjusted = run.row.get("adjustment")
    before = adjusted and adjusted["test" if run.split == "test" else "val"]
    if adjusted and before:
        words.append(
            "After training, its answers were adjusted on validation images (strength"
            f" {adjusted['tau']:g}, temperature {adjusted['temperature']:g}); without that, the"
            f" balanced accuracy is {percent(before['balanced'])}."
        )
    if run.split == "val":
        words.append(
            "There are no test images: these numbers are of the validation images, which may have"
            " chosen the weights."
        )
    without = summary["classes_without_images"]["count"]
    if without:
        words.append(
            f"{without} of {run.row['data']['classes']} classes have no {of} images; no number here"
            " speaks of them."
        )
    if (zero := summary.get("zero_recall", 0)) > 0:
        words.append(f"{zero} class{' is' if zero == 1 else 'es are'} never recognised.")
    return words


def _published(run: Finished) -> dict[str, Any] | None:
    found = match(run.row)
    if found is None or run.row["test"] is None:
        return None
    measured = run.row["test"][found.metric]
    where = {"inside": "inside the band", "below": "below the band", "above": "above the band"}[
        found.verdict(measured)
    ]
    kind = "overall accuracy" if found.metric == "top1" else "balanced accuracy"
    return {
        "words": (
            f"This run has {percent(measured)} {kind}; the number to reproduce is"
            f" {percent(found.value)} ({found.source}). That is {where}, {percent(found.low)} to"
            f" {percent(found.high)} ({found.band})."
        ),
        "name": found.name,
        "differs": found.differs,
        "heading": (
            "Against our own benchmark"
            if found.source.startswith("our own")
            else "Against the published number"
        ),
        "drawing": charts.band_plot(
            100 * measured,
            100 * found.value,
            low=100 * found.low,
            high=100 * found.high,
            title=kind,
        ),
    }


# ------------------------------------------------------------------------------------- classes


def _spots(run: Finished, summary: Summary) -> list[ClassScore]:
    """A mark for each class from frequent to rare or, where there are too many, for neighbours
    together.
    """
    counts, recalls = run.row["data"]["counts_after"], summary["recall"]
    nothing: list[float | None] = [None] * len(counts)
    low, high = summary.get("recall_low", nothing), summary.get("recall_high", nothing)
    order = sorted(range(len(counts)), key=lambda own: (-counts[own], own))
    if len(order) <= MARKS:
        return [
            ClassScore(
                run.classes[own], run.group(own), counts[own], recalls[own], low[own], high[own]
            )
            for own in order
        ]
    spots = []
    for part in np.array_split(np.array(order), MARKS):
        known = [value for own in part if (value := recalls[own]) is not None]
        name = f"mean of {len(part)} classes, {run.classes[part[0]]} to {run.classes[part[-1]]}"
        images = round(float(np.mean([counts[own] for own in part])))
        spots.append(
            ClassScore(
                name,
                run.group(int(part[len(part) // 2])),
                images,
                float(np.mean(known)) if known else None,
                None,
                None,
            )
        )
    return spots


def _class_table(run: Finished, summary: Summary) -> dict[str, Any]:
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
    columns += ["most often taken for"] * (confused_with is not None)
    worst = sorted(range(len(counts)), key=lambda own: (recalls[own] is None, recalls[own], own))[
        :ROWS
    ]
    rows = []
    for own in sorted(worst, key=lambda own: (-counts[own], own)):
        row: list[Cell] = [
            run.classes[own],
            run.group(own),
            (f"{counts[own]:,}", counts[own]),
            _number(recalls[own]),
        ]
        if low is not None and high is not None:
            first, last = low[own], high[own]
            row.append(
                ("-", None)
                if first is None or last is None
                else (f"{100 * first:.0f} to {100 * last:.0f}", last - first)
            )
        if tested is not None:
            row.append((f"{tested[own]:,}", tested[own]))
        if confused_with is not None and confused_share is not None:
            taker, share = confused_with[own], confused_share[own]
            row.append("-" if taker is None else f"{run.classes[taker]} ({percent(share, 0)})")
        rows.append(row)
    which = (
        "All classes"
        if len(rows) == len(counts)
        else f"The {len(rows)} classes with the lowest recall of {len(counts):,}"
    )
    return {"columns": columns, "rows": rows, "numbers": numbers, "which": which}


def _number(value: float | None) -> tuple[str, float | None]:
    return ("-", None) if value is None else (f"{100 * value:.1f}", round(value, 6))


def _worst(run: Finished, summary: Summary) -> list[dict[str, Any]]:
    """The classes of the tail that are recognised worst: the group of the rarest classes that has
    images to judge by.
    """
    recalls = summary["recall"]
    tails = [
        [own for own in members if recalls[own] is not None] for members in run.members.values()
    ]
    tail = next((own for own in reversed(tails) if own), [])
    found = []
    for own in sorted(tail, key=lambda own: (recalls[own], own))[:WORST]:
        tested, low, high = (
            summary.get("images_per_class"),
            summary.get("recall_low"),
            summary.get("recall_high"),
        )
        bounds = (
            ""
            if not low or not high
            else f" (95% interval {percent(low[own], 0)} to {percent(high[own], 0)})"
        )
        judged = (
            ""
            if not tested
            else f", judged by {tested[own]:,} {run.split} image{'' if tested[own] == 1 else 's'}"
        )
        found.append(
            {
                "name": run.classes[own],
                "words": (
                    f"Recognised: {percent(recalls[own])}{bounds}{judged}; learnt from"
                    f" {run.row['data']['counts_after'][own]:,}."
                ),
                "confusions": _confusions(run, own),
                "examples": _examples(run, own),
            }
        )
    return found


def _confusions(run: Finished, own: int) -> str:
    if run.predictions is None:
        return ""
    answers = run.predictions.predicted[run.predictions.target == own]
    wrong = np.bincount(answers[answers != own], minlength=len(run.classes))
    takers = [
        int(taker) for taker in np.argsort(-wrong, kind="stable")[:CONFUSIONS] if wrong[taker]
    ]
    shown = [
        f"{run.classes[taker]} ({wrong[taker]:,} of {len(answers):,}; {run.group(taker)})"
        for taker in takers
    ]
    rest = int(wrong.sum() - wrong[takers].sum())
    return ", ".join(shown) + (f", others ({rest})" if rest else "")


def _examples(run: Finished, own: int) -> list[dict[str, str]]:
    if run.examples is None:
        return []
    found, arrays = [], run.examples
    for number in np.flatnonzero(arrays["target"] == own):
        answer, sure = (
            run.classes[int(arrays["answer"][number])],
            percent(float(arrays["confidence"][number]), 0),
        )
        pixels = arrays["image"][number]
        example = {
            "image": images.data_uri(pixels),
            "alt": f"{run.split} image {arrays['id'][number]} of class {run.classes[own]}",
            "words": f"taken for {answer}, {sure} sure",
            "map": "",
        }
        if "map" in arrays:
            example["map"] = images.data_uri(images.spotlight(pixels, arrays["map"][number]))
            example["map_alt"] = f"where the network looks in it ({arrays['kind']})"
        found.append(example)
    return found


def _maps(run: Finished) -> str:
    if run.examples is None:
        return ""
    if "map" not in run.examples:
        return f"There are no pictures of where the network looks ({run.examples['kind']})."
    meant = (
        "what speaks for its answer"
        if str(run.examples["kind"]) == "Grad-CAM"
        else "what reaches the tokens that answer"
    )
    return (
        "The surest mistakes of each class. The darkened copy shows where the network looks,"
        f" {meant}: {run.examples['kind']}."
    )


# ------------------------------------------------------------------------------------- calibration
# and the rest


def _reliability(summary: Summary) -> list[Any]:
    return [
        charts.reliability_diagram(
            own["confidence"],
            own["accuracy"],
            own["images"],
            title=f"{name} ({sum(own['images']):,} images)",
        )
        for name, own in summary.get("reliability", {}).items()
        if own is not None
    ]


def _calibration(summary: Summary) -> dict[str, Any] | None:
    bins, classwise = summary.get("reliability", {}), summary.get("classwise_ece")
    rows: list[list[Cell]] = []
    for name, own in bins.items():
        if own is not None:
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
                    _number(own["ece"]),
                    _number(own["mce"]),
                    ("-", None) if by_class is None else (f"{100 * by_class:.2f}", by_class),
                ]
            )
    columns = ["images of", "ECE, points", "MCE, points", "class-wise ECE, points"]
    return {"columns": columns, "rows": rows, "numbers": [1, 2, 3]} if rows else None


def _between_groups(summary: Summary) -> dict[str, Any] | None:
    found = summary.get("confusions")
    if found is None:
        return None
    names, rows = found["groups"], []
    for name, counts, right in zip(names, found["matrix"], found["correct"], strict=True):
        total = sum(counts)
        if total:
            shares: list[Cell] = [(f"{100 * count / total:.1f}", count / total) for count in counts]
            rows.append([name, (f"{total:,}", total), _number(right / total), *shares])
    columns = ["images of", "number", "right, %", *(f"answered {name}, %" for name in names)]
    return {"columns": columns, "rows": rows, "numbers": list(range(1, len(columns)))}


def _priors(summary: Summary) -> Any:
    found = summary.get("priors")
    if not found:
        return None
    looks = {
        "forward": ("head × ", "s0"),
        "uniform": ("even ", "s6"),
        "backward": ("tail × ", "s1"),
    }
    bars = []
    for own in found:
        name, style = looks[own["direction"]]
        text = f"{100 * own['accuracy']:.1f} ({100 * own['known_prior']:.1f})"
        bars.append(
            Bar(
                f"{name}{own['k']}" if own["k"] > 1 else name.strip(),
                100 * own["accuracy"],
                text,
                style=style,
            )
        )
    return bar_chart(
        bars, title="Accuracy, %, where classes are frequent otherwise", unit="percent"
    )


def _conformal(run: Finished, summary: Summary) -> list[tuple[str, str]] | None:
    found = summary.get("conformal")
    if found is None:
        return None
    groups = ", ".join(
        f"{name} {percent(value)}" for name, value in found["groups"].items() if value is not None
    )
    sizes = ", ".join(
        f"{name} {value:.1f}" for name, value in found["size_groups"].items() if value is not None
    )
    worst = found["worst"]
    return [
        (
            "asked for",
            (
                "the true class is in the set with a probability of at least"
                f" {percent(found['level'], 0)}"
            ),
        ),
        (
            "found",
            (
                f"{percent(found['coverage'])} of the images; mean over classes"
                f" {percent(found['balanced'])} ({groups})"
            ),
        ),
        ("classes in a set", f"{found['size']:.2f} on average ({sizes})"),
        (
            "abstain",
            (
                f"{percent(found['multiple'])} of the images have more than one class in their set,"
                f" {percent(found['empty'])} none"
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


def _more(run: Finished, summary: Summary) -> list[tuple[str, str]]:
    top5 = summary["top5"]
    pairs = [("top-5 accuracy", percent(top5))] if top5 is not None else []
    for key, name in (
        ("macro_f1", "macro F1"),
        ("g_mean", "geometric mean of the recalls"),
        ("h_mean", "harmonic mean of the recalls"),
    ):
        if key in summary:
            pairs.append((name, percent(summary[key])))  # type: ignore[literal-required]
    for head, own in summary.get("heads", {}).items():
        names = [run.row["headline"]["name"], *(["few"] if "few" in own["scores"] else [])]
        values = [
            f"{run.row['labels'][name]['title']}"
            f" {with_unit(own['scores'].get(name), run.row['labels'][name])}"
            for name in names
        ]
        pairs.append((f"head {head} alone", ", ".join(values)))
    return pairs


def _reproduce(run: Finished) -> dict[str, Any]:
    row = run.row
    best = row["best_validation"]
    pairs = [
        (
            "data",
            (
                f"{row['data']['name']}, split {row['data']['hash']}, split seed"
                f" {row['split_seed']}, protocol {row['data']['protocol']}"
            ),
        ),
        (
            "seeds",
            (
                f"{row['seed']} (weights, mixing, masks), {row['view_seed']} (order and views of"
                " the images)"
            ),
        ),
        (
            "weights tested",
            row["selection"]
            + (
                f"; best on validation: epoch {best['epoch']},"
                f" {with_unit(best['value'], row['labels'][row['headline']['name']])}"
                if best
                else ""
            ),
        ),
        ("test-time averaging", row["tta"]),
        ("image size", f"{row['size']} pixels"),
        ("other data seen before", row["pretraining"] or "none"),
        ("groups", run.summary["group_rule"] if run.summary else "-"),
        ("versions", ", ".join(f"{name} {value}" for name, value in row["versions"].items())),
        (
            "hardware",
            ", ".join(
                name if value is True else f"{name} {value}"
                for name, value in row["hardware"].items()
                if value is not False
            ),
        ),
    ]
    keywords = [
        [name, "none" if value is None else str(value)] for name, value in row["keywords"].items()
    ]
    command = run.request.get(
        "command", f"longtail train {row['recipe']} --out {shlex.quote(str(run.folder))}"
    )
    return {"command": command, "pairs": pairs, "keywords": keywords}
