"""Search keywords on validation images with Optuna; test images are never used to choose.

In the folder of a search, `search.json` is the request and `search.jsonl` Optuna's journal.
`trials` has one run per trial. `final` has the runs of the final table, except the best settings
with the first seed, which are a trial.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from longtail.data.request import DataRequest
from longtail.errors import LongtailError
from longtail.experiments.jobs import (
    Job,
    Printed,
    Progress,
    check_flags,
    default_folder,
    process_group,
    run_jobs,
)
from longtail.experiments.spaces import parse_space
from longtail.experiments.sweeps import check_seeds
from longtail.experiments.trials import Search, run_trials, value_of
from longtail.recipes.signatures import Recipe, read
from longtail.records.layout import SearchFolder

if TYPE_CHECKING:
    from optuna.trial import FrozenTrial

    from longtail.records.scores import Label
    from longtail.report.columns import ColumnTable
    from longtail.report.comparison import Comparison

TRIALS = 20
MOST = 10_000  # trials of a search, which are all planned before the first


@dataclass(frozen=True)
class SearchResult:
    """The best settings of a search, and their comparison with the initial settings."""

    folder: Path
    best: Path  # the run with the best settings and the first seed
    keywords: Mapping[str, Any]  # chosen by the search
    value: float  # the validation score of the best run
    runs: tuple[Path, ...]  # in the comparison
    diverged: tuple[Path, ...]
    table: Comparison | ColumnTable
    across: tuple[str, ...]  # the fields of the comparison that differ
    command: str  # trains the best settings


def search(
    recipe: str,
    data: str | Path,
    space: Mapping[str, str],
    *,
    trials: int = TRIALS,
    metric: str | None = None,
    seeds: Sequence[int] = (0,),
    settings: Mapping[str, Any] | None = None,
    out: str | Path | None = None,
    jobs: int = 1,
    progress: Progress | None = None,
    **flags: Any,
) -> SearchResult:
    """Search keywords on validation, train the best with every seed, compare with the defaults.

    Args:
        recipe: A name, or package.module:function.
        data: A known name, or a path.
        space: Keyword -> "LOW..HIGH", "log:LOW..HIGH" or "VALUE,VALUE".
        trials: Number of trials, including those of earlier calls.
        metric: The score to optimize, "val/NAME"; by default the headline of the data.
        seeds: Trials use the first; the final runs use all.
        settings: Fixed keywords.
        out: The folder of the runs; by default runs/search-RECIPE-DATA.
        jobs: Number of parallel runs, each a process with one thread unless `threads` is given.
        progress: Receives messages; printed by default.
        flags: Data and run flags of `longtail.train`, for every run.
    """
    from longtail.runs.identity import check_outside

    with process_group(flags.get("device")):
        if flags.get("protocol") == "paper":
            raise LongtailError(
                "a search needs validation images, and --protocol paper has none: "
                "search with --protocol holdout, then train the best settings with paper"
            )
        if not 1 <= trials <= MOST:
            raise LongtailError(f"--trials must be 1 to {MOST:,}, got {trials:,}")
        known = read(recipe)
        fixed = _fixed_keywords(known, settings or {}, space)
        spaces = {name: parse_space(known, name, text) for name, text in space.items()}
        name = f"search-{known.name.rpartition(':')[2]}"
        folder = Path(out) if out else default_folder(name, data)
        check_outside(folder, str(data))
        metric, label = _metric(data, flags, metric)
        requested = Search(
            known,
            str(data),
            folder,
            fixed,
            spaces,
            dict(space),
            metric,
            label,
            trials,
            check_seeds(seeds),
            check_flags(flags, jobs),
            jobs,
            progress or Printed(),
        )
        return _compare(requested, run_trials(requested))


def _fixed_keywords(
    recipe: Recipe, settings: Mapping[str, Any], space: Mapping[str, str]
) -> dict[str, Any]:
    """All keywords of the recipe with these settings, of which none may be searched too."""
    fixed = {}
    for name, value in settings.items():
        parameter = recipe.parameter(name)
        if name in space:
            raise LongtailError(f"{name} is in both --set and --search: remove one of them")
        if isinstance(value, str) and not parameter.many and "," in value:
            raise LongtailError(
                f"--set {name}={value} has several values, but a search takes one: "
                f"write --search {name}={value}"
            )
        fixed[name] = parameter.parse(value) if isinstance(value, str) else value
    return recipe.keywords(fixed)


def _metric(data: str | Path, flags: Mapping[str, Any], metric: str | None) -> tuple[str, Label]:
    """The metric of a search, by default the headline of the data, with its format."""
    from longtail.data.open import open_data
    from longtail.processes import in_first
    from longtail.scoring.scorer import scorer_for

    def score_names() -> tuple[str, dict[str, Label]]:  # data is downloaded once
        scorer = scorer_for(open_data(data, **DataRequest.from_flags(data, flags).flags()))
        return scorer.headline, dict(scorer.labels)

    headline, labels = in_first(score_names)
    scores = {f"val/{name}": shown for name, shown in labels.items()}
    metric = metric or f"val/{headline}"
    if metric not in scores:
        raise LongtailError(
            f"--metric must be one of {', '.join(scores)}, got {metric!r}"
            + ": a search must not use test images" * ("test" in metric)
        )
    return metric, scores[metric]


def _compare(search: Search, best: FrozenTrial) -> SearchResult:
    """Compare the best settings with the initial ones, both with every seed."""
    from longtail.processes import in_first

    winner_job, final = search.trial_job(best), SearchFolder(search.folder).final
    winners = [
        search.job(
            final / f"trial-{winner_job.folder.name}-seed={seed}", search.sampled(best), seed
        )
        for seed in search.seeds[1:]
    ]
    defaults = [search.job(final / f"defaults-seed={seed}", {}, seed) for seed in search.seeds]
    if defaults[0].keywords == winner_job.keywords:
        search.progress.say("The best settings are the initial ones: there is nothing to compare.")
        defaults = []
    diverged = run_jobs([*defaults, *winners], at_once=search.jobs, progress=search.progress)
    return in_first(lambda: _result(search, best, defaults, winners, diverged))


def _result(
    search: Search,
    best: FrozenTrial,
    defaults: Sequence[Job],
    winners: Sequence[Job],
    diverged: Sequence[Path],
) -> SearchResult:
    """The result of a search whose runs have ended."""
    from longtail.records.kinds import read_recipe
    from longtail.records.row import read_row
    from longtail.report.comparison import differing_fields
    from longtail.report.public import compare

    winner_job = search.trial_job(best)
    folders = [
        job.folder for job in (*defaults, winner_job, *winners) if job.folder not in diverged
    ]
    rows = [read_row(folder) for folder in folders]
    across = differing_fields(rows)
    if defaults and defaults[0].folder not in diverged:
        before = search.score(rows[0])
        verdict = "as good or better: keep those" if before >= value_of(best) else "worse"
        search.progress.say(
            f"On validation (seed {search.seeds[0]}) the initial settings reach"
            f" {search.text(before)}, which is {verdict}."
        )
    return SearchResult(
        search.folder,
        winner_job.folder,
        search.sampled(best),
        search.sign * value_of(best),
        tuple(folders),
        tuple(diverged),
        compare(folders, across=across),
        tuple(across),
        str(read_recipe(winner_job.folder)["command"]),
    )
