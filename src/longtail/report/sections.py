"""The sections of a report about a finished run, as values for the HTML template."""

from __future__ import annotations

import shlex
from typing import Any

from longtail.metrics.intervals import balanced
from longtail.recipes.published import match
from longtail.records.row import OperatingPoint, Summary
from longtail.records.scores import columns, label, with_unit
from longtail.report import charts, curves, figures
from longtail.report.calibration_sections import calibration, conformal, reliability
from longtail.report.cells import Cell, number_cell, percent
from longtail.report.class_sections import class_table, maps, markers, worst, worst_title
from longtail.report.folders import Finished
from longtail.report.svg import Bar, bar_chart


def section(run: Finished) -> dict[str, Any]:
    """All values of the section about a run."""
    shown, unknown = figures.analysis_figures(run.analyses)
    values: dict[str, Any] = {
        "title": f"{run.row['recipe']} on {run.row['data']['name']}",
        "folder": str(run.folder),
        "lede": _lede(run),
        "published": _published(run),
        "curves": [(name, curves.training_curves(run, name)) for name in run.journals],
        "figures": shown,
        "unknown": unknown,
        "reproduce": _reproduce(run),
        "evaluations": _evaluations(run),
        "missing": run.missing,
        "caveats": run.row["data"]["caveats"],
    }
    if run.summary is None:
        return values | {"summary": None}
    return values | {
        "summary": run.summary,
        "images": "test images" if run.split == "test" else "validation images",
        "headline": _headline(run, run.summary),
        "ranked_by": run.row["labels"][run.row["headline"]["name"]]["title"],
        "score_parts": _score_parts(run, run.summary),
        "sentences": _sentences(run, run.summary),
        "classes": charts.class_chart(
            markers(run, run.summary), title="Recall and training images per class"
        ),
        "has_tail": {"many", "few"} <= {*run.summary["groups"]},
        "class_table": class_table(run, run.summary),
        "worst": worst(run, run.summary),
        "worst_title": worst_title(run.summary),
        "maps": maps(run),
        "reliability": reliability(run.summary),
        "calibration": calibration(run.summary),
        "confusions": _between_groups(run.summary),
        "priors": _priors(run.summary),
        "conformal": conformal(run, run.summary),
        "more": _more(run, run.summary),
    }


# ------------------------------------------------------------------------------------- the headline


def _lede(run: Finished) -> str:
    row = run.row
    counts = row["data"]["counts_after"]
    epochs = (
        " + ".join(f"{count} ({name})" for name, count in row["epochs"].items())
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
    """The name, the value and a note for every main score."""
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
    """A table per score with parts, such as "domains" for "domains/art" and "domains/photo".

    Parts may be of one split only: training domains have validation images, the test domain has
    test images. Where both splits have parts, each is a column.
    """
    splits = {"validation": run.row["val"], "test": run.row["test"]}
    scores = {name: split["scores"] for name, split in splits.items() if split is not None}
    if not any("/" in name for name in scores.get("validation", ())):
        scores = {run.split: summary["scores"]}
    parts: dict[str, dict[str, dict[str, float | None]]] = {}
    for split, values in scores.items():
        for name, value in values.items():
            score, _, part = name.partition("/")
            if part:
                parts.setdefault(score, {}).setdefault(part, {})[split] = value
    tables = []
    for score, by_part in parts.items():
        shown = run.row["labels"].get(score) or label(score)
        rows = [
            [part, *((with_unit(of.get(split), shown), of.get(split)) for split in scores)]
            for part, of in sorted(by_part.items())
        ]
        columns = [*scores] if len(scores) > 1 else [shown["title"]]
        tables.append(
            {
                "title": shown["description"],
                "columns": ["", *columns],
                "rows": rows,
                "numbers": [*range(1, len(columns) + 1)],
            }
        )
    return tables


def _interval(run: Finished) -> str:
    if run.predictions is None:
        return ""
    target = run.predictions.target
    interval = balanced(run.predictions.predicted == target, target)
    return f"95% interval {100 * interval.low:.1f} to {100 * interval.high:.1f}"


def _operating_point(run: Finished, point: OperatingPoint) -> str:
    """What is added to the logits of unseen classes, who chose it, and the accuracy without."""
    if point["chosen_on"] == "nothing":
        return "Nothing is added to the logits of unseen classes."
    who = "on validation" if point["chosen_on"] == "validation" else "by the recipe"
    words = f"{point['bias']:+.2f} is added to the logits of unseen classes, chosen {who}"
    before = point.get("test") if run.split == "test" else point.get("val")
    known = before["groups"] if before is not None else {}
    parts = [
        f"{percent(known[name])} on {name} classes"
        for name in ("seen", "unseen")
        if known.get(name) is not None
    ]
    if not parts:
        return f"{words}."
    return f"{words}; without, the accuracy is {' and '.join(parts)}."


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
        f"The balanced accuracy, the mean recall over classes, is {percent(summary['balanced'])} on"
        f" {summary['images']:,} {of} images."
        + (f" The interval covers the choice of {of} images." if run.predictions else "")
    ]
    known = {name: value for name, value in summary["groups"].items() if value is not None}
    if {"many", "few"} <= known.keys() and run.members:
        gap = 100 * (known["many"] - known["few"])
        words.append(
            f"The accuracy on the {len(run.members['few'])} rarest classes (few) is"
            f" {percent(known['few'])}, on the {len(run.members['many'])} most frequent (many)"
            f" {percent(known['many'])}: "
            + (
                f"the tail is {gap:.1f} points lower."
                if gap > 0
                else f"the tail is {-gap:.1f} points higher."
            )
        )
    adjusted = run.row.get("adjustment")
    before = adjusted and adjusted["test" if run.split == "test" else "val"]
    if adjusted and before:
        words.append(
            "After training, the logits were adjusted on validation images (strength"
            f" {adjusted['tau']:g}, temperature {adjusted['temperature']:g}); without adjustment,"
            " the"
            f" balanced accuracy is {percent(before['balanced'])}."
        )
    if point := run.row.get("operating_point"):
        words.append(_operating_point(run, point))
    if run.split == "val":
        words.append(
            "There are no test images: these scores are on validation images, which may have been"
            " used to select the weights."
        )
    without = summary["classes_without_images"]["count"]
    if without:
        words.append(
            f"{without} of {run.row['data']['classes']} classes have no {of} images and are not"
            " evaluated."
        )
    if (zero := summary.get("zero_recall", 0)) > 0:
        words.append(f"{zero} class{' has' if zero == 1 else 'es have'} a recall of 0.")
    return words


def _published(run: Finished) -> dict[str, Any] | None:
    published = match(run.row)
    if published is None or run.row["test"] is None:
        return None
    value, low, high = published.value, published.low, published.high
    if value is None or low is None or high is None:  # it matches no run
        return None
    measured = run.row["test"]["scores"].get(published.metric)
    if measured is None:
        return None
    verdict = published.verdict(measured)
    kind = run.row["labels"][published.metric]["description"]
    return {
        "words": (
            f"This run has {percent(measured)} {kind}; the published number is"
            f" {percent(value)} ({published.source}). The run is {verdict} the band,"
            f" {percent(low)} to {percent(high)} ({published.band})."
        ),
        "name": published.name,
        "differs": published.differs,
        "heading": (
            "Comparison with our benchmark"
            if published.source.startswith("our own")
            else "Comparison with the published number"
        ),
        "drawing": charts.band_plot(
            100 * measured,
            100 * value,
            low=100 * low,
            high=100 * high,
            title=kind,
        ),
    }


# ---------------------------------------------------------------------------- confusions and priors


def _between_groups(summary: Summary) -> dict[str, Any] | None:
    confusions = summary.get("confusions")
    if confusions is None:
        return None
    names, rows = confusions["groups"], []
    correct = confusions["correct"]
    for name, counts, right in zip(names, confusions["matrix"], correct, strict=True):
        total = sum(counts)
        if total:
            shares: list[Cell] = [(f"{100 * count / total:.1f}", count / total) for count in counts]
            rows.append([name, (f"{total:,}", total), number_cell(right / total), *shares])
    columns = ["images of", "number", "correct, %", *(f"predicted {name}, %" for name in names)]
    return {"columns": columns, "rows": rows, "numbers": list(range(1, len(columns)))}


def _priors(summary: Summary) -> Any:
    priors = summary.get("priors")
    if not priors:
        return None
    styles = {
        "forward": ("head × ", "s0"),
        "uniform": ("even ", "s6"),
        "backward": ("tail × ", "s1"),
    }
    bars = []
    for prior in priors:
        name, style = styles[prior["direction"]]
        text = f"{100 * prior['accuracy']:.1f} ({100 * prior['known_prior']:.1f})"
        bars.append(
            Bar(
                f"{name}{prior['k']}" if prior["k"] > 1 else name.strip(),
                100 * prior["accuracy"],
                text,
                style=style,
            )
        )
    return bar_chart(bars, title="Accuracy under other class priors, %", unit="percent")


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
    for head, scores_of_head in summary.get("heads", {}).items():
        names = [
            run.row["headline"]["name"],
            *(["few"] if "few" in scores_of_head["scores"] else []),
        ]
        values = [
            f"{run.row['labels'][name]['title']}"
            f" {with_unit(scores_of_head['scores'].get(name), run.row['labels'][name])}"
            for name in names
        ]
        pairs.append((f"head {head} alone", ", ".join(values)))
    return pairs


def _evaluations(run: Finished) -> list[list[str]]:
    """Data, images, test-time averaging and headline score of other evaluations of this run."""
    rows = []
    for evaluation in run.evaluations:
        name = evaluation["headline"]["name"]
        shown = evaluation["labels"][name]
        for split, summary in (("val", evaluation["val"]), ("test", evaluation["test"])):
            if summary is not None:
                score = with_unit(summary["scores"].get(name), shown)
                images = f"{summary['images']:,} ({split})"
                cells = [evaluation["data"], images, evaluation["tta"], shown["description"], score]
                rows.append(cells)
    return rows


def _reproduce(run: Finished) -> dict[str, Any]:
    row = run.row
    best = row["best_validation"]
    backbone = row["data"].get("backbone")
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
                f"{row['seed']} (weights, mixing, masks), {row['view_seed']} (order and"
                " augmentation"
                " of images)"
            ),
        ),
        (
            "evaluated weights",
            row["selection"]
            + (
                f"; best on validation: epoch {best['epoch']},"
                f" {with_unit(best['value'], row['labels'][row['headline']['name']])}"
                if best
                else ""
            ),
        ),
        ("test-time augmentation", row["tta"]),
        ("image size", f"{row['size']} pixels"),
        ("pretraining data", row["pretraining"] or "none"),
        *([("features of", backbone["name"])] if backbone else []),
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
    if "epoch_plan" in row and "--epoch-plan" not in command:  # planned while it was trained
        command += f" --epoch-plan {row['epoch_plan']}"
    return {"command": command, "pairs": pairs, "keywords": keywords}
