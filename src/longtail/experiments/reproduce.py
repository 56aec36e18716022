"""Run a published result again and check whether it is inside the expected band."""

from __future__ import annotations

import os
import statistics
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from longtail.deprecated import current_keywords
from longtail.errors import LongtailError
from longtail.experiments.jobs import (
    Job,
    Printed,
    Progress,
    check_flags,
    jobs_of,
    process_group,
    run_jobs,
)
from longtail.experiments.spec import Arm, Experiment
from longtail.experiments.sweeps import check_seeds
from longtail.naming import meant, unknown
from longtail.recipes.published import Published, Smoke, published, smokes, tables
from longtail.recipes.signatures import read
from longtail.recipes.together import attending, differences, divided, kept_together
from longtail.records.documents import read_document, write_document
from longtail.records.kinds import REPRODUCTION
from longtail.records.layout import RunFolder, SearchFolder


def reproduce(
    name: str,
    *,
    smoke: bool = False,
    seeds: Sequence[int] | None = None,
    settings: Mapping[str, Any] | None = None,
    batch: int | None = None,
    accumulate: int | None = None,
    out: str | Path | None = None,
    jobs: int = 1,
    progress: Progress | None = None,
    **flags: Any,
) -> dict[str, Any]:
    """Train a published row again and check whether the result is in the expected band.

    Args:
        name: A published row, as listed by `longtail reproduce`.
        smoke: Train the same recipe on long-tailed digits instead: minutes on a CPU.
        seeds: By default those of the row.
        settings: Keywords to change or to add, such as `{"weights": PATH}`. A row that begins
            with the run of another row trains or finds that first, unless it is given here.
        batch: How many images each process gets at once; a step keeps its number of images, unless
            `accumulate` is given. By default the batch of the row, shared by all processes.
        accumulate: Batches of a step, with `batch`.
        out: The folder of the runs; by default runs/reproduce/NAME.
        jobs: Number of parallel runs, each a process with one thread unless `threads` is given.
        progress: Receives messages; printed by default.
        flags: Run flags of `longtail.train`, and `root`.

    Returns:
        The content of reproduce.json: the verdict with the measured and expected values.
    """
    with process_group(flags.get("device")):
        return _reproduce(
            name,
            smoke=smoke,
            seeds=seeds,
            settings=dict(settings or {}),
            batch=batch,
            accumulate=accumulate,
            out=out,
            jobs=jobs,
            progress=progress or Printed(),
            flags=flags,
        )


def _reproduce(
    name: str,
    *,
    smoke: bool,
    seeds: Sequence[int] | None,
    settings: dict[str, Any],
    batch: int | None,
    accumulate: int | None,
    out: str | Path | None,
    jobs: int,
    progress: Progress,
    flags: Mapping[str, Any],
) -> dict[str, Any]:
    """The first process judges and writes what all have trained."""
    from longtail.processes import in_first, world_size

    row, small = row_of(name), smoke_of(name) if smoke else None
    folder = folder_of(name, smoke=smoke, out=out)
    for keyword, other in row.begins_with.items() if small is None else ():
        if settings.get(keyword) is None:
            progress.say(f"{name} begins with a run of {other}, which is {keyword}")
            first = reproduce(
                other,
                seeds=row_of(other).seeds[:1],
                out=None if out is None else Path(out).parent / other,
                jobs=jobs,
                progress=progress,
                **flags,
            )
            if not first["runs"]:
                raise LongtailError(f"{name} begins with {other}, which diverged: see its folder")
            settings[keyword] = first["runs"][0]
    planned = plan(
        row,
        folder,
        small,
        seeds=seeds,
        settings=settings,
        batch=batch,
        accumulate=accumulate,
        flags=check_flags(flags, jobs),
    )
    kind, _ = describe(row, planned[0], small, processes=world_size())
    progress.say(f"{name}: {kind}")
    diverged = run_jobs(planned, at_once=jobs, progress=progress)

    def evaluate_runs() -> dict[str, Any]:
        result = evaluate(row, small, planned, diverged=diverged)
        path = SearchFolder(folder).reproduction
        write_document(path, result)
        progress.say(f"written: {path}")
        return result

    return in_first(evaluate_runs)


def reproduce_table(table: str, *, out: str | Path | None = None, **options: Any) -> None:
    """Reproduce the rows of a published table one after the other; finished runs are kept.

    A row that needs something only the user has is skipped, with the reason.

    Args:
        table: Such as "livt-6"; `longtail reproduce` lists all.
        out: The folder of the rows; by default runs/reproduce.
        options: As of `reproduce`, for every row.
    """
    with process_group(options.get("device")):
        _reproduce_table(table, out=out, **options)


def _reproduce_table(table: str, *, out: str | Path | None, **options: Any) -> None:
    progress = options.get("progress") or Printed()
    for name in rows_of(table):
        row = row_of(name)
        given, needs = (
            current_keywords(row.recipe, options.get("settings") or {}),
            row.needs.items(),
        )
        needed = [f"{keyword} ({text})" for keyword, text in needs if keyword not in given]
        if needed and not options.get("smoke"):
            progress.warn(f"{name} is skipped, because it needs {' and '.join(needed)}")
            continue
        reproduce(name, out=None if out is None else Path(out) / name, **options)


def rows_of(table: str) -> tuple[str, ...]:
    """The names of the rows of a published table."""
    if table not in tables():
        raise unknown("published table", table, tables())
    return tables()[table]


def reproduction(
    name: str, *, smoke: bool = False, out: str | Path | None = None
) -> dict[str, Any] | None:
    """What `reproduce` wrote about a row in the folder `out`, or None if it has not finished."""
    path = SearchFolder(folder_of(name, smoke=smoke, out=out)).reproduction
    return read_document(path, REPRODUCTION) if path.exists() else None


def finished_runs(folder: Path) -> list[Path]:
    """The finished runs of a published row."""
    inside = RunFolder(folder).runs_inside() if folder.exists() else []
    return [run.path for run in inside if run.is_finished]


def dry_run(
    name: str,
    *,
    smoke: bool = False,
    seeds: Sequence[int] | None = None,
    settings: Mapping[str, Any] | None = None,
    batch: int | None = None,
    accumulate: int | None = None,
    **flags: Any,
) -> None:
    """Send a few batches of one seed through every stage and estimate the cost; write nothing.

    Args:
        name: A published row.
        smoke: Whether to estimate its smoke test instead.
        seeds: By default those of the row.
        settings: Keywords to change or to add.
        batch: How many images each process gets at once.
        accumulate: Batches of a step, with `batch`.
        flags: As of `reproduce`.
    """
    from longtail.runs import train

    row, small = row_of(name), smoke_of(name) if smoke else None
    folder = folder_of(name, smoke=smoke)
    with process_group(flags.get("device")):
        planned = plan(
            row,
            folder,
            small,
            seeds=seeds,
            settings=settings,
            batch=batch,
            accumulate=accumulate,
            flags=flags,
        )
        train(**planned[0].call(), dry_run=True)


def _columns(row: Published, runs: Sequence[Path]) -> dict[str, dict[str, float | None]]:
    """The published and the measured value of every further column, over the runs that have it."""
    measured = [measured_columns(row, run) for run in runs] if row.column_names else []
    columns: dict[str, dict[str, float | None]] = {}
    for name in row.column_names:
        values = [of[name] for of in measured if of[name] is not None]
        if name in row.test_domains:  # each run leaves out one, and its folder has the name
            pairs = zip(runs, measured, strict=True)
            values = [of[row.metric] for run, of in pairs if run.parent.name == name]
        columns[name] = {
            "published": row.columns.get(name),
            "measured": statistics.fmean(values) if values else None,  # type: ignore[arg-type]
        }
    return columns


def measured_columns(row: Published, run: Path) -> dict[str, float | None]:
    """The scores of a finished run that a published row has columns for, with its paper's groups.

    Groups of other sizes than the data's are cut by rank, from the classes with most training
    images to those with fewest.
    """
    from longtail.data.splits import rank_groups
    from longtail.metrics.accuracy import by_group, recall
    from longtail.records.predictions import read_predictions
    from longtail.records.row import read_row

    finished = read_row(run)
    summary = finished["test"]
    if summary is None:
        return dict.fromkeys((row.metric, *row.column_names))
    calibration = summary.get("calibration", {}).get(row.confidence)  # old runs have one confidence
    scores: dict[str, float | None] = {
        "top5": summary.get("top5"),
        **summary["scores"],
        "ece": summary["ece"] if calibration is None else calibration["ece"],
        "mce": summary["mce"] if calibration is None else calibration["mce"],
    }
    for head, values in summary.get("heads", {}).items():
        scores |= {f"{head}/{name}": value for name, value in values["scores"].items()}
    if row.group_sizes:
        predictions, _ = read_predictions(RunFolder(run).predictions("test"))
        counts = finished["data"]["counts_before"]
        many, medium, few = row.group_sizes
        groups = rank_groups(counts, (many, medium, few))
        for head, logits in predictions.logits.items():
            means = by_group(recall(logits, predictions.target, len(counts)), groups)
            prefix = "" if head == "logits" else f"{head}/"
            scores |= {f"{prefix}{name}": value for name, value in means.items()}
    return {name: scores.get(name) for name in (row.metric, *row.column_names)}


def row_of(name: str) -> Published:
    """A published row by its name."""
    if name not in published():
        guess = meant(name, published(), most=5)
        raise LongtailError(
            f"unknown published row {name!r}{f': {guess}' if guess else '.'} "
            "`longtail reproduce` lists all"
        )
    return published()[name]


def smoke_of(name: str) -> Smoke:
    """The smoke test of a published row."""
    row = row_of(name)
    if row.smoke is None:
        small = f", because it is small itself ({row.cost})" if row.data == "digits-lt" else ""
        raise LongtailError(f"{name} has no smoke test{small}: remove --smoke")
    return smokes()[row.smoke]


def folder_of(name: str, *, smoke: bool = False, out: str | Path | None = None) -> Path:
    """The folder of the runs of a published row."""
    return Path(out) if out else Path("runs") / "reproduce" / (f"{name}-smoke" if smoke else name)


def plan(
    row: Published,
    folder: Path,
    smoke: Smoke | None = None,
    *,
    seeds: Sequence[int] | None = None,
    settings: Mapping[str, Any] | None = None,
    batch: int | None = None,
    accumulate: int | None = None,
    flags: Mapping[str, Any] | None = None,
) -> list[Job]:
    """The runs of a published row or of its smoke test; all settings are checked.

    Args:
        row: The published row.
        folder: The folder of the runs.
        smoke: Run this smoke test instead of the row.
        seeds: By default those of the row, or 0 for a smoke test.
        settings: Keywords to change or to add.
        batch: How many images each process gets at once.
        accumulate: Batches of a step, with `batch`.
        flags: Data and run flags.
    """
    from longtail import processes

    recipe, changed = read(row.recipe), current_keywords(row.recipe, settings or {})
    for name in changed:
        if name not in row.needs:  # which may name a data flag
            recipe.parameter(name)  # raises for an unknown keyword
    given = {name for name, value in changed.items() if value is not None}
    missing = [name for name in (*row.needs, *row.begins_with) if name not in given and not smoke]
    if missing:
        raise LongtailError(
            f"{row.name} needs {missing[0]}: "
            f"{row.needs.get(missing[0]) or f'a run of {row.begins_with[missing[0]]}'}. "
            f"Pass --set {missing[0]}=PATH, or try --smoke"
        )
    others = dict(flags or {})
    if others.get("workers") is None:
        others["workers"] = 0 if smoke is not None else default_workers(row)
    root = {"root": others.pop("root")} if "root" in others else {}
    place = root.get("root")
    if row.is_folder and smoke is None and place is None:
        raise LongtailError(
            f"{row.name} needs the images of {row.data}: pass their folder with --root"
        )
    data, keywords, default_seeds, fixed = (
        ("digits-lt", smoke.keywords, (0,), {})
        if smoke is not None
        else (str(place), row.keywords, row.seeds, row.flags())
        if row.is_folder
        else (row.data, row.keywords, row.seeds, {**row.flags(), **root})
    )
    settings = {**keywords, **changed}
    if batch is not None:
        for name in ("batch", "accumulate"):
            if name in changed:
                raise LongtailError(f"{name} is given with --batch and with --set: remove one")
        settings |= divided(
            recipe,
            settings,
            batch=batch,
            accumulate=accumulate,
            processes=processes.world_size(),
        )
    elif accumulate is not None:
        raise LongtailError("--accumulate needs --batch: pass both, or --set accumulate=NUMBER")
    if not {"batch", "batchformer", "batchformer_scope"} & changed.keys():
        # What is not known yet, such as the path of a teacher, has no influence
        settings |= kept_together(
            recipe,
            {name: settings.get(name, known.default) for name, known in recipe.parameters.items()},
            together=_together(row, smoke),
            processes=processes.world_size(),
            name=row.name,
        )
    domains = () if smoke is not None else row.test_domains
    experiment = Experiment(
        data=data,
        arms=[
            Arm(
                recipe=row.recipe,
                settings={**settings, "test_domain": domain},
                folder=f"{domain}/seed={{seed}}",
            )
            for domain in domains
        ]
        or [Arm(recipe=row.recipe, settings=settings)],
        seeds=check_seeds(seeds) if seeds else default_seeds,
        flags={**fixed, **others},
    )
    return jobs_of(experiment, folder)


def default_workers(row: Published) -> int:
    """Processes that load images: up to eight of the cores of a process, if images are streamed."""
    if not row.is_streamed:
        return 0
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    return max(0, min(8, (cores or 1) // int(os.environ.get("LOCAL_WORLD_SIZE", "1")) - 1))


def _together(row: Published, smoke: Smoke | None) -> int:
    """How many images attend to each other in the row, or in its smoke test."""
    if smoke is None:
        return row.images_together
    return attending(read(row.recipe).keywords(smoke.keywords))


def describe(
    row: Published, job: Job, smoke: Smoke | None, *, processes: int = 1
) -> tuple[str, list[str]]:
    """The kind of runs in so many processes, and remarks about them.

    Runs with fewer epochs than published count as a smoke test.
    """
    recipe, together = read(row.recipe), _together(row, smoke)
    if smoke is not None:
        remarks = [
            "A smoke test on digits-lt, with the band of three reference seeds"
            f" (benchmarks/results/digits_lt_smokes/{smoke.arm}): it shows that the recipe runs"
            " and learns on this machine, and does not verify the published number."
        ]
        expected = recipe.keywords(smoke.keywords)
        changed = [
            *differences(recipe, expected, job.keywords, together=together, processes=processes)
        ]
        if changed:
            remarks.append(f"The settings are not those of the band: {'; '.join(changed)}.")
        return "smoke", remarks
    needed = {name: job.keywords[name] for name in row.needed_keywords}
    expected = row.all_keywords(needed)
    changed = [*differences(recipe, expected, job.keywords, together=together, processes=processes)]
    fewer = [
        name
        for name in expected
        if name.endswith("epochs") and (job.keywords[name] or 0) < (expected[name] or 0)
    ]
    kind = "smoke" if fewer else "with other settings" if changed else "reproduction"
    remarks = [f"This is not a reproduction: {'; '.join(changed)}."] if changed else []
    return kind, remarks + [f"{text[0].upper()}{text[1:]}." for text in row.differs]


def _shares(job: Job, hardware: Sequence[Mapping[str, Any]]) -> list[str]:
    """A remark about batch norm, which has the rows of one process only."""
    counts = {
        machine["processes"]
        for machine in hardware
        if machine.get("processes", 1) > 1 and not machine.get("sync_batchnorm")
    }
    if not counts or "batch" not in job.keywords or job.recipe.rows_are_separate(job.keywords):
        return []
    parts = [f"{job.keywords['batch'] // count} of each of {count} processes" for count in counts]
    return [
        f"Batch norm saw the images of one process: {', '.join(parts)}, of"
        f" {job.keywords['batch']}; --sync-batchnorm shows it all."
    ]


def evaluate(
    row: Published, smoke: Smoke | None, jobs: Sequence[Job], *, diverged: Sequence[Path] = ()
) -> dict[str, Any]:
    """The verdict on finished runs with all values: the content of reproduce.json."""
    from longtail.records.row import read_row

    finished = [job for job in jobs if job.folder not in diverged]
    rows = [read_row(job.folder) for job in finished]
    hardware = [run.get("hardware", {}) for run in rows]
    processes = max((machine.get("processes", 1) for machine in hardware), default=1)
    kind, remarks = describe(row, jobs[0], smoke, processes=processes)
    remarks += _shares(jobs[0], hardware)
    by_seed: dict[str, list[float]] = {}
    for run in rows:
        value = None if run["test"] is None else run["test"]["scores"].get(row.metric)
        if value is not None:  # nothing to measure
            by_seed.setdefault(str(run["seed"]), []).append(value)
    parts = 1 if smoke is not None else max(len(row.test_domains), 1)
    values = {seed: statistics.fmean(of) for seed, of in by_seed.items() if len(of) == parts}
    caveats = dict.fromkeys(caveat for run in rows for caveat in run["data"]["caveats"])
    remarks += [f"The data: {caveat}." for caveat in caveats]
    if smoke is None and len(values) < len(row.seeds):
        remarks.append(f"{len(values)} seed{'s' * (len(values) != 1)} of {len(row.seeds)}.")
    remarks += [f"{folder} diverged." for folder in diverged]
    mean = statistics.fmean(values.values()) if values else None
    band, source = row.band, row.source
    if smoke is not None:
        band = "three standard deviations around the mean of three reference seeds"
        source = f"our own: benchmarks/results/digits_lt_smokes/{smoke.arm}"
    target = smoke or row
    return {
        "name": row.name,
        "kind": kind,
        "recipe": row.recipe,
        "keywords": dict(jobs[0].keywords) if finished else {},
        "metric": row.metric,
        "expected": {
            "value": target.value,
            "low": target.low,
            "high": target.high,
            "band": band,
            "source": source,
        },
        "measured": {
            "mean": mean,
            "deviation": statistics.stdev(values.values()) if len(values) > 1 else None,
            "seeds": values,
        },
        "columns": {} if smoke is not None else _columns(row, [job.folder for job in finished]),
        "verdict": "diverged" if mean is None or diverged else row.verdict(mean, smoke),
        "remarks": remarks,
        "runs": [str(job.folder) for job in finished],
        "versions": rows[0]["versions"] if rows else {},
    }
