"""`longtail reproduce`: run a published result again."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from shlex import quote
from typing import Annotated, Any

import typer

from longtail.cli import flags, tables
from longtail.errors import LongtailError


def reproduce(
    name: Annotated[
        str | None, typer.Argument(help="A published row; lists all if omitted.")
    ] = None,
    table: Annotated[
        str | None,
        typer.Option(
            help="A published table, such as livt-6: shows its rows and what is finished."
        ),
    ] = None,
    run: Annotated[
        bool, typer.Option("--run", help="With --table: run its rows, or finish them.")
    ] = False,
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
    batch: Annotated[
        int | None,
        typer.Option(
            min=1,
            help="Images per batch and process; by default the row's batch, divided among the"
            " processes. Without --accumulate, a step keeps its number of images.",
        ),
    ] = None,
    accumulate: Annotated[
        int | None, typer.Option(min=1, help="With --batch: batches per step.")
    ] = None,
    jobs: flags.Jobs = 1,
    root: flags.Root = None,
    out: Annotated[
        Path | None, typer.Option(help="The folder of the runs; by default runs/reproduce/NAME.")
    ] = None,
    device: flags.Device = "auto",
    precision: flags.Precision = "auto",
    threads: flags.Threads = None,
    workers: Annotated[
        int | None,
        typer.Option(
            help="Processes that load images; by default up to 8 for images that are read from"
            " disk, as cores allow, and none for others."
        ),
    ] = None,
    save_every: flags.SaveEvery = 10.0,
    compile: flags.Compile = False,
    sync_batchnorm: flags.SyncBatchnorm = False,
    dry_run: flags.DryRun = False,
) -> None:
    """Train a published row again and check whether the result is in the published range."""
    from longtail.experiments import reproduce as experiment
    from longtail.experiments.jobs import is_first_process

    if run and table is None:
        raise LongtailError("--run needs --table: to run one row, pass its name instead")
    if table is not None and (name is not None or dry_run):
        raise LongtailError("--table takes neither the name of a row nor --dry-run: remove one")
    if name is None and table is None:
        _print_rows()
        tables.next_step(
            "longtail reproduce digits-lt-balanced-softmax",
            "longtail reproduce cifar100-lt-balanced-softmax-batchformer --smoke",
            "longtail reproduce --table batchformer-1",
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
        "compile": compile,
        "sync_batchnorm": sync_batchnorm,
        "batch": batch,
        "accumulate": accumulate,
    }
    if table is not None:
        if run:
            experiment.reproduce_table(
                table, smoke=smoke, out=out, jobs=jobs, progress=tables, **options
            )
        if is_first_process():
            _print_table(table, smoke=smoke, out=out)
        return
    assert name is not None
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
    if result["verdict"] not in ("inside", "finished") and is_first_process():
        raise typer.Exit(1)


def _print_rows() -> None:
    from longtail.recipes.published import listed
    from longtail.recipes.published import tables as names

    tables.say("Accuracy on test images in percent, with the range expected of a reproduction.\n")
    for source, rows in listed().items():
        tables.pairs(source, rows)
    tables.say(
        "Costs are those stated by the authors; --dry-run estimates the cost on this machine. Pass"
        " files that a row needs with --set, and images with --root. --smoke trains the same recipe"
        " on long-tailed digits in minutes."
    )
    tables.say(f"\nTables, for --table: {', '.join(names())}.")


def _print_table(table: str, *, smoke: bool, out: Path | None) -> None:
    """Print the rows of a published table: what was published, what we measured, what it costs."""
    from longtail.experiments import reproduce as experiment
    from longtail.recipes.costs import hours, total_hours

    rows = [experiment.row_of(name) for name in experiment.rows_of(table)]
    further = list(dict.fromkeys(column for row in rows for column in row.column_names))
    lines, costs, results = [], {}, 0
    runs: list[Path] = []
    for row in rows:
        folder = None if out is None else out / row.name
        trained = experiment.finished_runs(experiment.folder_of(row.name, smoke=smoke, out=folder))
        done = experiment.reproduction(row.name, smoke=smoke, out=folder)
        mean = None if done is None else done["measured"]["mean"]
        numbers = row.numbers(table)
        cells = [f"{_percent(numbers.get(row.metric))} / {_percent(mean)}"]
        for column in further:
            measured = {} if done is None else done.get("columns", {}).get(column, {})
            cells.append(
                f"{_percent(numbers[column])} / {_percent(measured.get('measured'))}"
                if column in numbers
                else ""
            )
        # That of a smoke test is its own
        ends = {"low": row.low, "high": row.high} | ({} if done is None else done["expected"])
        low, high = ends["low"], ends["high"]
        band = "" if low is None else f"{_percent(low)} to {_percent(high)}"
        needs = [f"quoted from {row.quoted}"] * bool(row.quoted)
        needs += [f"needs {name}" for name in row.needs]
        needs += [f"begins with {other}" for other in row.begins_with.values()]
        seeds = 0 if done is None else len(done["measured"].get("seeds", ()))
        some = 0 < seeds < len(row.seeds) and not smoke
        results, runs = results + (done is not None and not some), runs + trained
        state = "not finished" + f", finished runs: {len(trained)}" * bool(trained)
        if done is not None:
            fewer = f", {seeds} of {len(row.seeds)} seeds" * some
            state = f"{done['kind']}: {done['verdict']}{fewer}"
        lines.append([row.name, state, *cells, band])
        if (estimate := hours(row)) is not None:
            needs.append(f"about {max(estimate, 0.1):.1f} hours a seed on one A100 (estimated)")
        if needs or row.cost:
            costs[row.name] = "; ".join([*needs, *[row.cost] * bool(row.cost)])
    metric = rows[0].metric
    tables.say(f"{table} in percent: published / measured.\n")
    if smoke:
        tables.say("Measured on digits-lt, with bands of their own: no number is comparable.\n")
    tables.wide_grid(["row", "state", metric, *further, "band"], lines, left=2)
    if costs:
        tables.say("")
        tables.pairs("needs and cost", costs)
    if (total := total_hours(rows)) is not None:
        tables.say(
            f"all rows with all their seeds: about {total:,.1f} hours on one A100 (estimated),"
            " without rows of other tables that they begin with"
        )
    _print_quotes(table)
    smaller, place = " --smoke" * smoke, "" if out is None else f" --out {quote(str(out))}"
    more = [f"longtail reproduce --table {table} --run{smaller}{place}"] * (results < len(rows))
    tables.next_step(*more, *[f"longtail report {quote(str(run))}" for run in runs[:1]])


def _print_quotes(table: str) -> None:
    """Print the lines of a published table that its paper copied from others."""
    from longtail.recipes.published import quotes

    copied = quotes().get(table, ())
    if not copied:
        return
    names = list(dict.fromkeys(name for line in copied for name in line.values))
    cells = [
        [line.method, line.origin, line.row, *(f"{line.values.get(name, '')}" for name in names)]
        for line in copied
    ]
    tables.say("\nLines that the paper quotes; no recipe here is theirs unless a row is named.\n")
    tables.wide_grid(["method", "quoted from", "row", *names], cells, left=3)


def _percent(value: float | None) -> str:
    return "-" if value is None else f"{100 * value:.1f}"


def _print_verdict(result: Mapping[str, Any]) -> None:
    expected, measured = result["expected"], result["measured"]
    deviation = "" if measured["deviation"] is None else f" ± {100 * measured['deviation']:.1f}"
    mean = "-" if measured["mean"] is None else f"{100 * measured['mean']:.1f}{deviation}"
    value, low, high = (_percent(expected[name]) for name in ("value", "low", "high"))
    seeds, band = ", ".join(measured["seeds"]), "-" if low == "-" else f"{low} to {high}"
    cells = [result["name"], result["kind"], mean, seeds, value, band, result["verdict"]]
    columns = ["row", "what", "measured", "seeds", "expected", "band", "verdict"]
    tables.grid(columns, [cells], left=2)
    tables.say(
        f"{result['metric']} in percent; expected: {expected['source']}; band: {expected['band']}"
    )
    for column, values in result["columns"].items():
        tables.say(
            f"{column}: {_percent(values['measured'])} measured, {_percent(values['published'])}"
            " published"
        )
    for remark in result["remarks"]:
        tables.say(f"note: {remark}")
