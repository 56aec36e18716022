"""Sweeps: recipes x settings x seeds, compared in one table."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from longtail.errors import LongtailError
from longtail.experiments.jobs import (
    Job,
    Progress,
    check_flags,
    default_folder,
    jobs_of,
    process_group,
    run_jobs,
)
from longtail.experiments.spec import Sweep, expand, named_sweeps
from longtail.naming import unknown

if TYPE_CHECKING:
    from longtail.report.columns import ColumnTable
    from longtail.report.comparison import Comparison


@dataclass(frozen=True)
class SweepResult:
    """The runs of a sweep, and their comparison."""

    folder: Path
    runs: tuple[Path, ...]  # the finished ones, in the order of the sweep
    diverged: tuple[Path, ...]
    table: Comparison | ColumnTable | None  # None: no run has finished
    across: tuple[str, ...]  # the fields of the comparison that differ
    by: tuple[str, ...]  # the data flags that were swept
    plots: tuple[Path, ...]


def sweep(
    recipes: str | Sequence[str] | None = None,
    data: str | Path | None = None,
    *,
    name: str | None = None,
    seeds: Sequence[int] | None = None,
    grid: Mapping[str, Any] | None = None,
    out: str | Path | None = None,
    jobs: int = 1,
    progress: Progress | None = None,
    **flags: Any,
) -> SweepResult:
    """Train every combination of recipes, settings and seeds, and compare them; resumable.

    Args:
        recipes: Names, as a sequence or separated by commas.
        data: A known name, or a path.
        name: A named sweep, instead of recipes; other arguments override it.
        seeds: Seeds of every combination; by default 0.
        grid: Keyword of the recipes or data flag -> values, in every combination, such as
            `{"tau": [0.5, 1.0], "imbalance": [10, 100]}`. Text is parsed as on the command line.
            `{"test_domain": "all"}` leaves each domain of the data out once.
        out: The folder of the runs; by default runs/NAME or runs/sweep-DATA.
        jobs: Number of parallel runs, each a process with one thread unless `threads` is given.
        progress: Receives messages; printed by default.
        flags: Data and run flags of `longtail.train`, for every run.

    Example:
        >>> import longtail
        >>> result = longtail.sweep(
        ...     "cross_entropy,balanced_softmax", "digits-lt", grid={"imbalance": [10, 50]}
        ... )  # doctest: +SKIP
        >>> result.table.cells()  # doctest: +SKIP
    """
    from longtail.processes import in_first

    plan = describe(recipes, data, name=name, seeds=seeds, grid=grid, **flags)
    folder = Path(out) if out else default_folder(name or "sweep", "" if name else plan.data)
    planned = plan_jobs(plan, folder, at_once=jobs)
    with process_group(flags.get("device")):
        diverged = run_jobs(planned, at_once=jobs, progress=progress)
        return in_first(lambda: _compare(plan, name, folder, planned, diverged))


def _compare(
    plan: Sweep, name: str | None, folder: Path, planned: Sequence[Job], diverged: Sequence[Path]
) -> SweepResult:
    """Compare the runs that have finished, and plot them."""
    from longtail.records.row import read_row
    from longtail.report.comparison import differing_fields
    from longtail.report.public import compare

    finished = [job.folder for job in planned if job.compared and job.folder not in diverged]
    across = sorted({*plan.across, *differing_fields([read_row(run) for run in finished])})
    plots = _plot(plan.plot, planned, finished, folder / str(name)) if finished else []
    return SweepResult(
        folder,
        tuple(finished),
        tuple(diverged),
        compare(finished, across=across, by=plan.swept_flags) if finished else None,
        tuple(across),
        tuple(plan.swept_flags),
        tuple(plots),
    )


def _plot(
    plot: Mapping[str, str], planned: Sequence[Job], finished: Sequence[Path], path: Path
) -> list[Path]:
    """Draw the figure of a named sweep; an analysis is written into the folders of its runs."""
    from longtail.report.side_by_side import write_side_by_side
    from longtail.report.sweep_figures import write_sweep_figures
    from longtail.runs.analysing import ANALYSES, analyse_run

    if "analysis" not in plot:
        return write_sweep_figures(plot, finished, path) if plot else []
    if plot["analysis"] in ANALYSES:
        roots = {job.folder: job.flags.get("root") for job in planned}
        for run in finished:
            analyse_run(run, plot["analysis"], root=roots[run])
    others = [job.folder for job in planned if not job.compared and job.finished]
    return write_side_by_side([*finished, *others], path)


def describe(
    recipes: str | Sequence[str] | None = None,
    data: str | Path | None = None,
    *,
    name: str | None = None,
    seeds: Sequence[int] | None = None,
    grid: Mapping[str, Any] | None = None,
    **flags: Any,
) -> Sweep:
    """Build a `Sweep` from the arguments of `sweep`.

    Args:
        recipes: Names, as a sequence or separated by commas.
        data: A known name, or a path.
        name: A named sweep.
        seeds: Seeds of every combination.
        grid: Keyword or data flag -> values.
        flags: Data and run flags, for every run.
    """
    plan = Sweep()
    if name is not None:
        if name not in named_sweeps():
            raise unknown("sweep", name, named_sweeps())
        plan = named_sweeps()[name]
    if recipes:
        plan = replace(
            plan, recipes=tuple(recipes.split(",") if isinstance(recipes, str) else recipes)
        )
    if data:
        plan = replace(plan, data=str(data))
    if not plan.recipes or not plan.data:
        missing = "data" if plan.recipes else "recipes"
        raise LongtailError(
            f"a sweep needs {missing}: write `longtail sweep RECIPE,RECIPE --data DATA`"
        )
    for flag in flags:
        if flag in (grid or {}):
            raise LongtailError(f"{flag} is given as a flag and in --set: remove one of them")
    plan = replace(
        plan,
        seeds=check_seeds(seeds) if seeds else plan.seeds,
        grid={**plan.grid, **(grid or {})},
        flags={**plan.flags, **flags},
    )
    if plan.grid.get("test_domain") in ("all", ["all"], ("all",)):
        return replace(plan, grid={**plan.grid, "test_domain": _test_domains(plan)})
    return plan


def _test_domains(plan: Sweep) -> list[str]:
    """All domains of the data, each of which is left out once; not those that are trained on."""
    from longtail.data.open import domain_names
    from longtail.data.request import DataRequest

    fixed = {"root": plan.grid.get("root"), **plan.flags, "test_domain": "all"}
    request = DataRequest.from_flags(plan.data, fixed)
    return [name for name in domain_names(request) if name not in request.train_domains]


def plan_jobs(plan: Sweep, folder: Path, *, at_once: int = 1) -> list[Job]:
    """The runs of a sweep; all settings are checked."""
    from longtail.runs.identity import check_outside

    check_outside(folder, plan.data)
    return jobs_of(expand(replace(plan, flags=check_flags(plan.flags, at_once))), folder)


def check_seeds(seeds: Sequence[int]) -> tuple[int, ...]:
    """Raise if a seed is given twice."""
    if len(set(seeds)) < len(seeds):
        raise LongtailError(f"seeds must be different, got {','.join(map(str, seeds))}")
    return tuple(seeds)
