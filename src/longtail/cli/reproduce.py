"""`longtail reproduce`: run a published result again."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from shlex import quote
from typing import Annotated, Any

import typer

from longtail.cli import flags, tables


def reproduce(
    name: Annotated[
        str | None, typer.Argument(help="A published row; lists all if omitted.")
    ] = None,
    smoke: Annotated[
        bool,
        typer.Option(
            "--smoke", help="Train the same recipe on long-tailed digits: minutes on a CPU."
        ),
    ] = False,
    seeds: Annotated[
        str | None, typer.Option(help="Seeds, separated by commas; by default those of the row.")
    ] = None,
    set: Annotated[
        list[str] | None,
        typer.Option(
            "--set", help="KEYWORD=VALUE, such as a file that the row needs; may be repeated."
        ),
    ] = None,
    jobs: flags.Jobs = 1,
    root: flags.Root = None,
    out: Annotated[
        Path | None, typer.Option(help="The folder of the runs; by default runs/reproduce/NAME.")
    ] = None,
    device: flags.Device = "auto",
    precision: flags.Precision = "auto",
    threads: flags.Threads = None,
    workers: flags.Workers = 0,
    save_every: flags.SaveEvery = 10.0,
    dry_run: flags.DryRun = False,
) -> None:
    """Train a published row again and check whether the result is in the published range."""
    from longtail.experiments import reproduce as experiment

    if name is None:
        _print_rows()
        tables.next_step(
            "longtail reproduce digits-lt-balanced-softmax",
            "longtail reproduce cifar100-lt-balanced-softmax-batchformer --smoke",
        )
        return
    options: dict[str, Any] = {
        "seeds": flags.integers(seeds) if seeds else None,
        "settings": flags.pairs(set or [], "--set KEYWORD=VALUE"),
        "root": root,
        "device": device,
        "precision": precision,
        "threads": threads,
        "workers": workers,
        "save_every": save_every,
    }
    if dry_run:
        experiment.dry_run(name, smoke=smoke, **options)
        tables.say("Dry run of one seed: nothing was written.")
        tables.next_step("the same command without --dry-run")
        return
    result = experiment.reproduce(name, smoke=smoke, out=out, jobs=jobs, progress=tables, **options)
    _print_verdict(result)
    runs, folder = result["runs"], experiment.folder_of(name, smoke=smoke, out=out)
    steps = [f"longtail report {quote(runs[0])}"] if runs else []
    tables.next_step(*steps, *[f"longtail compare {quote(str(folder))}"] * (len(runs) > 1))
    if result["verdict"] != "inside":
        raise typer.Exit(1)


def _print_rows() -> None:
    from longtail.recipes.published import listed

    tables.say("Accuracy on test images in percent, with the range expected of a reproduction.\n")
    for source, rows in listed().items():
        tables.pairs(source, rows)
    tables.say(
        "Costs are those stated by the authors; --dry-run estimates the cost on this machine. Pass"
        " files that a row needs with --set, and images with --root. --smoke trains the same recipe"
        " on long-tailed digits in minutes."
    )


def _print_verdict(result: Mapping[str, Any]) -> None:
    expected, measured = result["expected"], result["measured"]
    deviation = "" if measured["deviation"] is None else f" ± {100 * measured['deviation']:.1f}"
    mean = "-" if measured["mean"] is None else f"{100 * measured['mean']:.1f}{deviation}"
    value, low, high = (f"{100 * expected[name]:.1f}" for name in ("value", "low", "high"))
    seeds, band = ", ".join(measured["seeds"]), f"{low} to {high}"
    cells = [result["name"], result["kind"], mean, seeds, value, band, result["verdict"]]
    columns = ["row", "what", "measured", "seeds", "expected", "band", "verdict"]
    tables.grid(columns, [cells], left=2)
    tables.say(
        f"{result['metric']} in percent; expected: {expected['source']}; band: {expected['band']}"
    )
    for remark in result["remarks"]:
        tables.say(f"note: {remark}")
