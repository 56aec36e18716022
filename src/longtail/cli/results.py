"""Terminal output of results: the scores of a run, their details, and comparisons."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from rich.measure import Measurement

from longtail.cli.tables import build_table, say, terminal

if TYPE_CHECKING:
    from longtail.records.row import Evaluation, Row, Summary
    from longtail.records.scores import Label
    from longtail.report.columns import ColumnTable
    from longtail.report.comparison import Comparison


def _percent(value: float | None) -> str:
    return "-" if value is None else f"{100 * value:.1f}"


def scores(
    summaries: Mapping[str, Summary | None],
    labels: Mapping[str, Label],
    *,
    headline: str,
    title: str | None = None,
) -> None:
    """Print the scores of several summaries, such as overall, balanced and per group."""
    from longtail.records.scores import columns, format_score

    present = {name: summary for name, summary in summaries.items() if summary is not None}
    if not present:
        say("There are no images for evaluation.")
        return
    shown = columns(labels, [score for one in present.values() for score in one["scores"]])
    rows = [
        [name, *(format_score(summary["scores"].get(score), labels[score]) for score in shown)]
        for name, summary in present.items()
    ]
    titles = [labels[score]["title"] for score in shown]
    console = terminal()
    console.print()
    console.print(build_table(["", *titles], rows, title=title, bold=labels[headline]["title"]))
    console.print()


def summaries(evaluation: Evaluation | Row) -> None:
    """Print the scores on validation and test, also per head if there are several, with notes."""
    splits = {"val": evaluation["val"], "test": evaluation["test"]}
    lines: dict[str, Summary | None] = {}
    for name, summary in splits.items():
        lines[name] = summary
        lines |= {
            f"{name}, {head} alone": part
            for head, part in (summary.get("heads", {}) if summary else {}).items()
        }
    scores(
        lines,
        evaluation["labels"],
        headline=evaluation["headline"]["name"],
        title="accuracy in percent",
    )
    for name, summary in splits.items():
        if summary is None:
            say(f"{name}: no images")
            continue
        without = summary["classes_without_images"]["count"]
        top5 = "" if summary["top5"] is None else f", top-5 {_percent(summary['top5'])}"
        missing = (
            f", {without} classes without images are excluded from `balanced`" if without else ""
        )
        means = ""
        if "h_mean" in summary:  # absent in rows of earlier versions
            never = (
                f" ({summary['zero_recall']} classes have recall 0)"
                if summary["zero_recall"]
                else ""
            )
            means = (
                f", macro F1 {_percent(summary['macro_f1'])}, G-mean {_percent(summary['g_mean'])},"
                " H-mean"
                f" {_percent(summary['h_mean'])}{never}"
            )
        say(
            f"{name}: {summary['images']:,} images, groups by {summary['group_rule']}{top5}{means},"
            " ECE"
            f" {summary['ece']:.3f}, MCE {summary['mce']:.3f} ({summary['confidence']},"
            f" {summary['bins']}"
            f" bins){missing}"
        )


def details(summary: Summary, names: Sequence[str]) -> None:
    """Print the worst classes, confusion by group, calibration, other priors and prediction sets.

    `names` are the class names.
    """
    if "worst" not in summary:
        say("The run has only the main scores: it was written by an earlier version.")
        return
    console = terminal()
    worst = [
        [
            names[one["index"]],
            one["group"],
            f"{one['train_images']:,}",
            f"{one['images']:,}",
            _percent(one["recall"]),
            f"{_percent(one['low'])} to {_percent(one['high'])}",
            (
                f"{names[one['confused_with']]} ({one['confused_with_group']}):"
                f" {_percent(one['confused_share'])}"
            ),
        ]
        for one in summary["worst"]
        if one["confused_with"] is not None
    ]
    columns = [
        "class",
        "group",
        "train",
        "test",
        "recall",
        "95% interval",
        "most confused with",
    ]
    console.print()
    if worst:
        console.print(
            build_table(
                columns,
                worst,
                left=2,
                title=f"the {len(worst)} worst classes, in percent of their images",
            )
        )
        console.print()
    console.print(
        build_table(
            *_by_group(summary),
            title="by group: predicted group in percent of images, and calibration",
        )
    )
    console.print()
    priors = summary["priors"]
    ratios = {"forward": "{}:1", "uniform": "even", "backward": "1:{}"}
    headings = [ratios[prior["direction"]].format(prior["k"]) for prior in priors]
    lines = [
        ["accuracy", *(_percent(prior["accuracy"]) for prior in priors)],
        ["known prior", *(_percent(prior["known_prior"]) for prior in priors)],
    ]
    most = max(prior["k"] for prior in priors)
    title = (
        f"accuracy in percent under test priors from {most}:1 (most frequent training class :"
        " rarest)"
        f" to 1:{most}"
    )
    console.print(build_table(["", *headings], lines, title=title))
    console.print()
    _conformal(summary, names)


def _by_group(summary: Summary) -> tuple[list[str], list[list[str]]]:
    """Columns and rows: correct, errors by predicted group, confidence, calibration errors."""
    confusions, rows = summary["confusions"], []
    for position, name in enumerate(confusions["groups"]):
        taken, right, bins = (
            confusions["matrix"][position],
            confusions["correct"][position],
            summary["reliability"][name],
        )
        images = sum(taken)
        if not images or bins is None:
            continue
        lost = [number - right * (to == position) for to, number in enumerate(taken)]
        sure = (
            sum(
                (mean or 0.0) * number
                for mean, number in zip(bins["confidence"], bins["images"], strict=True)
            )
            / images
        )
        by_class = summary["classwise_ece"]["groups"][name]
        errors = [f"{bins['ece']:.3f}", "-" if by_class is None else f"{by_class:.4f}"]
        rows.append(
            [
                name,
                *(_percent(number / images) for number in (right, *lost)),
                _percent(sure),
                *errors,
            ]
        )
    return [
        "",
        "correct",
        *(f"to {name}" for name in confusions["groups"]),
        "confidence",
        "ECE",
        "class-wise",
    ], rows


def _conformal(summary: Summary, names: Sequence[str]) -> None:
    if "conformal" not in summary:
        say("No prediction sets: there are no validation images to calibrate them on.")
        return
    sets = summary["conformal"]
    groups = ", ".join(
        f"{name} {_percent(value)}" for name, value in sets["groups"].items() if value is not None
    )
    sizes = ", ".join(
        f"{name} {value:.1f}" for name, value in sets["size_groups"].items() if value is not None
    )
    sources = {"class": "class", "group": "group", "all": "all", "nothing": "no"}
    calibrated = [
        f"{number:,} classes by {sources[name]} images"
        for name, number in sets["calibrated_on"].items()
        if number
    ]
    say(
        f"Prediction sets: nominal coverage {_percent(sets['level'])}%, measured"
        f" {_percent(sets['coverage'])}% of the images ({groups}; worst class"
        f" {names[sets['worst']['index']]} {_percent(sets['worst']['coverage'])}), calibrated on"
        f" {sets['images']:,} validation images ({', '.join(calibrated)})."
    )
    single = (
        f"; sets of one class are correct in {_percent(sets['single_correct'])}%"
        if sets["single_correct"] is not None
        else ""
    )
    say(
        f"They contain {sets['size']:.1f} classes on average ({sizes}):"
        f" {_percent(sets['multiple'])}% of the sets have more than one,"
        f" {_percent(sets['empty'])}% are empty, where the network should abstain{single}."
    )


def row(finished: Row) -> None:
    """Print the results of a finished run."""
    from longtail.records.scores import format_score

    summaries(finished)
    best, shown = finished["best_validation"], finished["labels"][finished["headline"]["name"]]
    beside = (
        f"; best on validation: epoch {best['epoch']} with {shown['title']}"
        f" {format_score(best['value'], shown)}"
        if best
        else ""
    )
    before = (
        f" after {finished['minutes_before']:.1f} of other runs"
        if finished.get("minutes_before")
        else ""
    )
    caveats = f"; {'; '.join(finished['data']['caveats'])}" if finished["data"]["caveats"] else ""
    say(
        f"weights: {finished['selection']}{beside}; test-time augmentation: {finished['tta']};"
        f" {finished['parameters']:,} parameters; {finished['minutes']:.1f} minutes{before}; split"
        f" {finished['data']['hash'][:12]}{caveats}"
    )


def print_comparison(comparison: Comparison | ColumnTable) -> None:
    """Print a comparison, as two tables if the terminal is too narrow for one."""
    console, columns, cells = terminal(), comparison.columns(), comparison.cells()
    left = 1 + len(comparison.lines[0].across)
    ranked = comparison.labels[comparison.headline["name"]]["title"]
    table = build_table(columns, cells, left=left, bold=ranked)
    console.print()
    width = Measurement.get(console, console.options.update(max_width=10_000), table).maximum
    if width <= console.width:
        console.print(table)
    else:  # the scores, then the rest
        cut = left + len(comparison.labels)
        scores = [line[:cut] for line in cells]
        console.print(build_table(columns[:cut], scores, left=left, bold=ranked))
        console.print()
        rest = [[line[0], *line[cut:]] for line in cells]
        console.print(build_table([columns[0], *columns[cut:]], rest))
    console.print()
    say("percent; mean ± sample standard deviation over seeds")
    say(
        "equal in all runs: "
        + "; ".join(f"{name}: {value}" for name, value in comparison.agreed.items())
    )
    for note in comparison.notes:
        say(f"note: {note}")
