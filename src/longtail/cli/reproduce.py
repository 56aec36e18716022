"""A published row, run again: inside its band or outside."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING, Annotated, Any

import typer

from longtail.cli import flags, tables
from longtail.errors import LongtailError
from longtail.naming import meant, unknown
from longtail.recipes.signatures import read
from longtail.records.layout import SearchFolder

if TYPE_CHECKING:
    from longtail.experiments.jobs import Job
    from longtail.experiments.published import Published, Smoke


def reproduce(
    name: Annotated[
        str | None, typer.Argument(help="A published row; without it, all are listed.")
    ] = None,
    smoke: Annotated[
        bool,
        typer.Option("--smoke", help="The same recipe on long-tailed digits: minutes on a CPU."),
    ] = False,
    seeds: Annotated[
        str | None, typer.Option(help="Seeds, separated by commas; those of the row unless given.")
    ] = None,
    set: Annotated[
        list[str] | None,
        typer.Option("--set", help="KEYWORD=VALUE, for what a row needs; may be repeated."),
    ] = None,
    jobs: Annotated[
        int,
        typer.Option(
            help="Runs at once, each a process with one thread unless --threads is given."
        ),
    ] = 1,
    root: flags.Root = None,
    out: Annotated[
        Path | None, typer.Option(help="The folder of its runs; runs/reproduce/NAME unless given.")
    ] = None,
    device: flags.Device = "auto",
    precision: flags.Precision = "auto",
    threads: flags.Threads = None,
    workers: flags.Workers = 0,
    save_every: flags.SaveEvery = 10.0,
    dry_run: flags.DryRun = False,
) -> None:
    """Run a published row again with its settings, and say whether the result is inside the published band."""
    from longtail.experiments.jobs import machine, perform
    from longtail.experiments.published import PUBLISHED

    if name is None:
        listed(PUBLISHED)
        tables.next_step(
            "longtail reproduce digits-lt-balanced-softmax",
            "longtail reproduce cifar100-lt-balanced-softmax-batchformer --smoke",
        )
        return
    if name not in PUBLISHED:
        guess = meant(name, PUBLISHED, most=5)
        raise LongtailError(
            f"unknown published row {name!r}{f': {guess}' if guess else '.'} `longtail reproduce` lists all"
        )
    row = PUBLISHED[name]
    on = machine(
        {
            "device": device,
            "precision": precision,
            "threads": threads,
            "workers": workers,
            "save_every": save_every,
        },
        jobs,
    )
    folder = out or Path("runs") / "reproduce" / (f"{name}-smoke" if smoke else name)
    asked, small = plan(
        row, folder, smoke=smoke, seeds=seeds, given=set or [], root=root, machine=on
    )
    if dry_run:
        from longtail.runs import train

        train(**asked[0].call(), dry_run=True)
        tables.say("Dry run of one seed: nothing was written.")
        tables.next_step("the same command without --dry-run")
        return
    kind, remarks = described(row, asked[0], small)
    tables.say(f"{name}: {kind}")
    diverged = perform(asked, at_once=jobs)
    found = judged(
        row,
        small,
        [job for job in asked if job.folder not in diverged],
        kind=kind,
        remarks=remarks,
        diverged=diverged,
    )
    _written(folder, found)
    _printed(found)
    compared = [] if len(asked) == 1 else [f"longtail compare {quote(str(folder))}"]
    tables.next_step(f"longtail report {quote(str(asked[0].folder))}", *compared)
    if found["verdict"] != "inside":
        raise typer.Exit(1)


def listed(rows: Mapping[str, Published]) -> None:
    """Print every row with its value, band, source and cost."""
    large = ("imagenet-lt", "places-lt", "inaturalist18")
    tables.say("Percent of test images, with the band in which a reproduction lies.\n")
    for source in dict.fromkeys(_where(own) for own in rows.values()):
        found = {}
        for own in rows.values():
            needs = [*own.needs, *(["images"] if own.data in large else [])]
            said = [f"{100 * own.value:.1f} ({100 * own.low:.1f} to {100 * own.high:.1f})"]
            said += [f"needs {' and '.join(needs)}"] * bool(needs) + [own.cost] * bool(own.cost)
            if _where(own) == source:
                found[own.name] = "; ".join(said)
        tables.pairs(source, found)
    tables.say(
        "Costs are what the authors state; --dry-run estimates yours. What a row needs is given with --set, images with --root."
    )
    tables.say(
        "--smoke runs the same recipe on long-tailed digits in minutes, to see that everything works."
    )


def _where(own: Published) -> str:
    return "our own results" if own.source.startswith("our own") else own.source


def plan(
    row: Published,
    folder: Path,
    *,
    smoke: bool,
    seeds: str | None,
    given: Sequence[str],
    root: Path | None,
    machine: Mapping[str, Any],
) -> tuple[list[Job], Smoke | None]:
    """The runs to do, checked before any of them runs, and the smoke if that is what they are."""
    from longtail.cli.sweep import integers, pairs
    from longtail.experiments.jobs import Job
    from longtail.experiments.published import SMOKES

    recipe, small = read(row.recipe), None
    if smoke:
        if row.smoke is None:
            why = (
                f"which is small itself ({row.cost})"
                if row.data == "digits-lt"
                else "which has none: its recipe learns too slowly for one"
            )
            raise LongtailError(
                f"expected --smoke with a row that has one, got {row.name}, {why}: leave it out"
            )
        small = SMOKES[row.smoke]
    changed: dict[str, Any] = {}
    for name, text in pairs(given, "--set KEYWORD=VALUE").items():
        if name not in recipe.parameters:
            raise unknown(f"keyword of {recipe.name}", name, recipe.parameters)
        changed[name] = recipe.parameters[name].parse(text)
    missing = [name for name in row.needs if changed.get(name) is None and not smoke]
    if missing:
        raise LongtailError(
            f"{row.name} needs {missing[0]}: {row.needs[missing[0]]}. Pass --set {missing[0]}=PATH, or try --smoke"
        )
    keywords = recipe.keywords({**(row.keywords if small is None else small.keywords), **changed})
    data, own = (row.data, {**row.flags(), "root": root}) if small is None else ("digits-lt", {})
    chosen = integers(seeds) if seeds else list(row.seeds if small is None else (0,))
    return [
        Job(recipe, data, seed, folder / f"seed={seed}", keywords, {**own, **machine})
        for seed in chosen
    ], small


def described(row: Published, job: Job, small: Smoke | None) -> tuple[str, list[str]]:
    """What these runs are, and what has to be said about them. Fewer epochs than published are a smoke, whoever asked for them."""
    if small is not None:
        text = f"on digits-lt, with the band of our own three seeds (benchmarks/results/digits_lt_smokes/{small.arm})"
        remarks = [
            f"A smoke {text}: it shows that the recipe runs here and learns, and says nothing about the published number."
        ]
        changed = _changed(read(row.recipe).keywords(small.keywords), job)
        return "smoke", remarks + [
            f"This is not the smoke that the band is of: {'; '.join(changed)}."
        ] * bool(changed)
    published = read(row.recipe).keywords(
        {**row.keywords, **{name: job.keywords[name] for name in row.needs}}
    )
    changed = _changed(published, job)
    fewer = [
        name
        for name in published
        if name.endswith("epochs") and (job.keywords[name] or 0) < (published[name] or 0)
    ]
    kind = "smoke" if fewer else "with other settings" if changed else "reproduction"
    remarks = [f"This is no reproduction: {'; '.join(changed)}."] if changed else []
    return kind, remarks + [f"{text[0].upper()}{text[1:]}." for text in row.differs]


def _changed(planned: Mapping[str, Any], job: Job) -> list[str]:
    return [
        f"{name} is {job.keywords[name]} instead of {value}"
        for name, value in planned.items()
        if job.keywords[name] != value
    ]


def judged(
    row: Published,
    small: Smoke | None,
    jobs: Sequence[Job],
    *,
    kind: str,
    remarks: Sequence[str],
    diverged: Sequence[Path],
) -> dict[str, Any]:
    """The verdict, and all it rests on: the content of reproduce.json."""
    from longtail.records.row import read_row

    rows = [read_row(job.folder) for job in jobs]
    values: dict[str, float] = {
        str(own["seed"]): own["test"][row.metric] for own in rows if own["test"] is not None
    }
    said = list(remarks)
    said += [
        f"The data: {mark}."
        for mark in dict.fromkeys(mark for own in rows for mark in own["data"]["marks"])
    ]
    if small is None and len(values) < len(row.seeds):
        said.append(f"{len(values)} seed{'s' * (len(values) != 1)} of {len(row.seeds)}.")
    said += [f"{folder} diverged." for folder in diverged]
    mean = statistics.fmean(values.values()) if values else None
    verdict = "diverged" if mean is None or diverged else row.verdict(mean, small)
    target = {
        "value": row.value,
        "low": row.low,
        "high": row.high,
        "band": row.band,
        "source": row.source,
    }
    if small is not None:
        about = "three deviations of a seed around our mean over three seeds"
        target = {"value": small.value, "low": small.low, "high": small.high, "band": about}
        target["source"] = f"our own: benchmarks/results/digits_lt_smokes/{small.arm}"
    return {
        "format": 1,
        "name": row.name,
        "kind": kind,
        "recipe": row.recipe,
        "keywords": dict(jobs[0].keywords) if jobs else {},
        "metric": row.metric,
        "expected": target,
        "measured": {
            "mean": mean,
            "deviation": statistics.stdev(values.values()) if len(values) > 1 else None,
            "seeds": values,
        },
        "verdict": verdict,
        "remarks": said,
        "runs": [str(job.folder) for job in jobs],
        "versions": rows[0]["versions"] if rows else {},
    }


def _written(folder: Path, found: Mapping[str, Any]) -> None:
    from longtail.records.files import write_json

    path = SearchFolder(folder).reproduction
    write_json(path, found)
    tables.say(f"written: {path}")


def _printed(found: Mapping[str, Any]) -> None:
    expected, measured = found["expected"], found["measured"]
    deviation = "" if measured["deviation"] is None else f" ± {100 * measured['deviation']:.1f}"
    mean = "-" if measured["mean"] is None else f"{100 * measured['mean']:.1f}{deviation}"
    cells = [
        found["name"],
        found["kind"],
        mean,
        ", ".join(measured["seeds"]),
        f"{100 * expected['value']:.1f}",
        f"{100 * expected['low']:.1f} to {100 * expected['high']:.1f}",
        found["verdict"],
    ]
    tables.grid(
        ["row", "what", "measured", "seeds", "expected", "band", "verdict"], [cells], left=2
    )
    tables.say(
        f"{found['metric']} in percent; expected: {expected['source']}; band: {expected['band']}"
    )
    for remark in found["remarks"]:
        tables.say(f"note: {remark}")
