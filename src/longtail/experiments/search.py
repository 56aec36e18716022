"""Search on validation: keywords drawn by Optuna, every trial a run. The test images choose
nothing.

In the folder of a search, `search.json` is the request, `search.jsonl` Optuna's journal, `trials`
has a run for each trial and `final` the runs of the table at the end, but for the winner with the
first seed, which is its trial."""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from longtail.data.request import DataRequest, data_flags
from longtail.errors import LongtailError, MissingExtra
from longtail.experiments.jobs import (
    Job,
    Printed,
    Progress,
    check_flags,
    default_folder,
    is_first_process,
    run_all,
    run_job,
    run_jobs,
)
from longtail.experiments.spaces import Choices, Range, Space, parse_space
from longtail.experiments.sweeps import check_seeds
from longtail.recipes.signatures import Recipe, read
from longtail.records.layout import RunFolder, SearchFolder
from longtail.records.scores import format_score

if TYPE_CHECKING:
    from optuna import Study
    from optuna.trial import FrozenTrial

    from longtail.records.row import Row
    from longtail.records.scores import Label
    from longtail.report.columns import ColumnTable
    from longtail.report.comparison import Comparison

TRIALS = 20
SHOWN = 10  # trials in the table


@dataclass(frozen=True)
class SearchResult:
    """The winner of a search, and its comparison with the settings that the search started from."""

    folder: Path
    best: Path  # the run of the winner with the first seed
    keywords: Mapping[str, Any]  # that the search chose
    value: float  # of the winner on validation
    runs: tuple[Path, ...]  # that are compared
    diverged: tuple[Path, ...]
    table: Comparison | ColumnTable
    across: tuple[str, ...]  # the fields of the comparison that differ
    command: str  # that trains the winner


@dataclass(frozen=True)
class Search:
    """What is searched, by what, and where."""

    recipe: Recipe
    data: str
    folder: Path
    keywords: Mapping[str, Any]  # before the search changes some
    space: Space
    texts: Mapping[str, str]  # the space as it was typed
    metric: str  # "val/" and the name of a score
    label: Label  # how that score is shown, and its direction
    trials: int
    seeds: Sequence[int]
    flags: Mapping[str, Any]
    jobs: int
    progress: Progress

    def job(self, folder: Path, keywords: Mapping[str, Any], seed: int) -> Job:
        """A run of this search."""
        return Job(
            self.recipe,
            self.data,
            seed,
            folder,
            self.recipe.keywords({**self.keywords, **keywords}),
            self.flags,
        )

    def drawn(self, trial: FrozenTrial) -> dict[str, Any]:
        """The keywords of a trial."""
        return {name: own.value(trial.params[name]) for name, own in self.space.items()}

    def trial_job(self, trial: FrozenTrial) -> Job:
        """The run of a trial."""
        return self.job(
            SearchFolder(self.folder).trial(trial.number + 1).path, self.drawn(trial), self.seeds[0]
        )

    def score(self, row: Row) -> float:
        """What is maximised: a score of which less is better has its sign changed. Reads validation
        and nothing else.
        """
        summary, name = row["val"], self.metric.partition("/")[2]
        if summary is None:
            raise LongtailError(
                f"expected validation images to search on, got none in {self.data}: "
                "it is too small, or has no room for any"
            )
        value = summary["scores"].get(name)
        if value is None:
            raise LongtailError(
                f"expected validation images for {self.metric}, got none that it could be measured"
                " on: use another --metric"
            )
        return self.sign * value

    @property
    def sign(self) -> int:
        """1 where the score is maximised, -1 where it is minimised."""
        return 1 if self.label["higher_is_better"] else -1

    def text(self, value: float) -> str:
        """A value of `score` as people read it."""
        return format_score(self.sign * value, self.label)


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
    """Search keywords on validation, train the winner with every seed, compare it with the
    defaults.

    Args:
        recipe: Its name, or package.module:function.
        data: A known name, or a path.
        space: Keyword -> "LOW..HIGH", "log:LOW..HIGH" or "VALUE,VALUE".
        trials: How many settings are tried; those of earlier calls count.
        metric: "val/" and the name of a score, which chooses; the headline of the data unless given.
        seeds: Trials have the first; the runs at the end have all.
        settings: Keywords that are fixed.
        out: The folder of the runs; runs/search-RECIPE-DATA unless given.
        jobs: Runs at once, each a process with one thread unless `threads` is given.
        progress: Where to tell what is done; printed unless given.
        flags: Data and run flags of `longtail.train`, for every run.
    """
    wanted = plan(
        recipe,
        data,
        space,
        trials=trials,
        metric=metric,
        seeds=seeds,
        settings=settings,
        out=out,
        jobs=jobs,
        progress=progress,
        **flags,
    )
    study = open_study(wanted)
    best = _run_trials(wanted, study)
    _show_trials(wanted, study, best)
    return _compare(wanted, best)


def plan(
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
) -> Search:
    """What the arguments of `search` ask for; everything is checked before anything runs."""
    from longtail.data.open import open_data
    from longtail.runs.identity import check_outside
    from longtail.scoring.scorer import scorer_for

    if flags.get("protocol") == "paper":
        raise LongtailError(
            "expected --protocol holdout to search, got paper, which has no validation images: "
            "what would choose is the test set. "
            "Search with holdout, then train what it finds with paper"
        )
    if trials < 1:
        raise LongtailError(f"expected --trials of at least 1, got {trials}")
    known, fixed = read(recipe), {}
    for name, value in (settings or {}).items():
        parameter = known.parameter(name)
        if name in space:
            raise LongtailError(
                f"expected {name} in --set or in --search, got it in both: leave one out"
            )
        if isinstance(value, str) and not parameter.many and "," in value:
            raise LongtailError(
                f"expected one value in --set {name}={value} beside --search, got several: "
                f"write --search {name}={value}"
            )
        fixed[name] = parameter.parse(value) if isinstance(value, str) else value
    spaces = {name: parse_space(known, name, text) for name, text in space.items()}
    folder = Path(out) if out else default_folder(f"search-{known.name.rpartition(':')[2]}", data)
    check_outside(folder, str(data))
    scorer = scorer_for(open_data(data, **DataRequest.from_flags(data, flags).flags()))
    scores = {f"val/{name}": shown for name, shown in scorer.labels.items()}
    metric = metric or f"val/{scorer.headline}"
    if metric not in scores:
        raise LongtailError(
            f"expected --metric {', '.join(scores)}, got {metric!r}"
            + ": the test set must not choose" * ("test" in metric)
        )
    return Search(
        known,
        str(data),
        folder,
        known.keywords(fixed),
        spaces,
        dict(space),
        metric,
        scores[metric],
        trials,
        check_seeds(seeds),
        check_flags(flags, jobs),
        jobs,
        progress or Printed(),
    )


def open_study(search: Search) -> Study:
    """The study in the folder of a search, new or continued; a folder with another search is
    refused.
    """
    try:
        import optuna
    except ModuleNotFoundError:
        raise MissingExtra(
            "--search needs the package optuna: pip install 'longtail[sweep]'"
        ) from None
    from optuna.storages import JournalStorage
    from optuna.storages.journal import JournalFileBackend

    from longtail.records.documents import read_document, write_document
    from longtail.records.kinds import SEARCH

    # What tells one search from another; the machine may change.
    usual = {name: field.default for name, field in data_flags().items()}
    usual |= {"tta": "none", "adjust": "none"}
    flags = {name: search.flags.get(name, default) for name, default in usual.items()}
    texts = {name: None if value is None else str(value) for name, value in flags.items()}
    record = {
        "recipe": search.recipe.name,
        "data": search.data,
        "metric": search.metric,
        "seed": search.seeds[0],
    }
    record |= {"search": dict(search.texts), "keywords": dict(search.keywords), "flags": texts}
    files = SearchFolder(search.folder)
    path = files.request
    if path.exists():
        there = read_document(path, SEARCH)
        there["flags"] = {**dict.fromkeys(usual), **there["flags"]}  # newer flags had no value
        changed = [
            f"{name}: {there.get(name)} in the folder, {value} requested"
            for name, value in record.items()
            if there.get(name) != value
        ]
        if changed:
            raise LongtailError(
                f"expected the search that {search.folder} holds, got another:\n  "
                + "\n  ".join(changed)
                + "\nchoose another --out"
            )
    elif is_first_process():
        search.folder.mkdir(parents=True, exist_ok=True)
        write_document(path, record)
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    storage = JournalStorage(JournalFileBackend(str(files.journal)))
    return optuna.create_study(
        storage=storage, study_name="search", direction="maximize", load_if_exists=True
    )


def _run_trials(search: Search, study: Study) -> FrozenTrial:
    """Do what is missing of the trials; the best of all."""
    from optuna.trial import TrialState

    from longtail.records.row import read_row

    lock, refused = threading.Lock(), list[LongtailError]()
    before = study.get_trials(deepcopy=False)
    for trial in before:  # killed between two draws: there is no run to continue
        if trial.state == TrialState.RUNNING and set(trial.params) != set(search.space):
            study.tell(trial.number, state=TrialState.FAIL)
    running = [
        trial
        for trial in before
        if trial.state == TrialState.RUNNING and set(trial.params) == set(search.space)
    ]
    done = [trial for trial in before if trial.state in (TrialState.COMPLETE, TrialState.PRUNED)]
    if done or running:
        search.progress.say(
            f"{search.folder}: {len(done)} of {search.trials} trials were done before"
            + f", {len(running)} more had begun" * bool(running)
        )
    missing: list[FrozenTrial | None] = [
        *running,
        *[None] * (search.trials - len(done) - len(running)),
    ]

    def one(begun: FrozenTrial | None) -> None:
        with lock:
            trial = _new_trial(search, study) if begun is None else begun
            twin = _twin(search, study, trial)
        job = search.trial_job(trial)
        again = f" (as trial {twin.number + 1})" if twin else ""
        search.progress.say(
            f"trial {trial.number + 1} of {search.trials}: {_words(search.drawn(trial))}{again}"
        )
        try:
            reason = None if twin else run_job(job, apart=search.jobs > 1)
        except LongtailError as error:
            if RunFolder(job.folder).has_started():
                raise  # it has learnt something: an image that cannot be read any more, say
            with lock:  # keywords that do not go together: another trial may do better
                search.progress.warn(f"{job.folder}: {error}")
                study.tell(trial.number, state=TrialState.FAIL)
            refused.append(error)
            return
        with lock:
            if reason is not None:
                search.progress.warn(f"{job.folder}: {reason}")
                study.tell(trial.number, state=TrialState.PRUNED)  # for the sampler: worse than any
                return
            value = _value(twin) if twin else search.score(read_row(job.folder))
            study.tell(trial.number, value)
            best = winner(study)
            own = f"trial {trial.number + 1}: {search.metric} {search.text(value)}"
            search.progress.say(
                f"{own}; best so far {search.text(_value(best))} (trial {best.number + 1})"
            )

    for _ in run_all(one, missing, at_once=search.jobs):
        pass
    if not study.get_trials(deepcopy=False, states=(TrialState.COMPLETE,)):
        if refused:
            raise refused[-1]
        raise LongtailError(
            f"expected a trial that learns, got {search.trials} that diverged: search lower rates"
        )
    return winner(study)


def _new_trial(search: Search, study: Study) -> FrozenTrial:
    """A new trial. Its draws depend on the trials before and on its number, so a search that was
    interrupted goes on as if it was not.
    """
    import numpy as np
    from optuna.distributions import CategoricalDistribution, FloatDistribution, IntDistribution
    from optuna.samplers import TPESampler

    # Hashed, because the first draws of numpy's old generator are alike for some small seeds: 0 and
    # 3 agree to two digits, twice.
    study.sampler = TPESampler(
        seed=int(np.random.SeedSequence(len(study.get_trials(deepcopy=False))).generate_state(1)[0])
    )
    drawn: dict[str, Any] = {}
    for name, own in search.space.items():
        if isinstance(own, Choices):
            drawn[name] = CategoricalDistribution(own.texts)
        elif own.integer:
            drawn[name] = IntDistribution(int(own.low), int(own.high), log=own.log)
        else:
            drawn[name] = FloatDistribution(own.low, own.high, log=own.log)
    number = study.ask(drawn).number
    return study.get_trials(deepcopy=False)[number]


def _twin(search: Search, study: Study, trial: FrozenTrial) -> FrozenTrial | None:
    """An earlier trial with the same keywords: its value is known."""
    from optuna.trial import TrialState

    wanted = search.drawn(trial)
    known = study.get_trials(deepcopy=False, states=(TrialState.COMPLETE,))
    return next(
        (own for own in known if own.number < trial.number and search.drawn(own) == wanted), None
    )


def winner(study: Study) -> FrozenTrial:
    """The best trial, and of equal ones the first."""
    from optuna.trial import TrialState

    return max(
        study.get_trials(deepcopy=False, states=(TrialState.COMPLETE,)),
        key=lambda own: (_value(own), -own.number),
    )


def _show_trials(search: Search, study: Study, best: FrozenTrial) -> None:
    """Print the best trials, and draw all."""
    from optuna.trial import TrialState

    from longtail.records.files import write_text
    from longtail.records.row import read_row
    from longtail.report.figures import Panel, search_plot
    from longtail.report.svg import standalone

    trials = study.get_trials(deepcopy=False, states=(TrialState.COMPLETE, TrialState.PRUNED))
    done = sorted(
        (own for own in trials if own.value is not None), key=lambda own: (-_value(own), own.number)
    )
    rows = [
        [str(own.number + 1), _words(search.drawn(own)), search.text(_value(own))]
        for own in done[:SHOWN]
    ]
    more = f"; {len(trials) - len(done)} diverged" if len(done) < len(trials) else ""
    search.progress.grid(
        ["trial", "keywords", search.metric],
        rows,
        left=2,
        title=f"the best {len(rows)} of {len(trials)} trials{more}",
    )
    images = (read_row(search.trial_job(best).folder)["val"] or {"images": 0})["images"]
    search.progress.say(
        f"Chosen on {images:,} validation images of seed {search.seeds[0]}; the test images chose"
        " nothing."
    )
    percent = search.label["format"] == "percent"
    scale = search.sign * (100 if percent else 1)
    panels = [
        Panel(
            name,
            [(search.drawn(own)[name], scale * _value(own)) for own in done],
            log=isinstance(own_space, Range) and own_space.log,
        )
        for name, own_space in search.space.items()
    ]
    figure = SearchFolder(search.folder).figure
    y = f"{search.metric}{', %' if percent else ''}"
    higher = search.label["higher_is_better"]
    write_text(figure, standalone(search_plot(panels, y=y, higher_is_better=higher)))
    search.progress.say(f"plot: {figure}")


def _compare(search: Search, best: FrozenTrial) -> SearchResult:
    """The winner and the settings that the search started from, each with every seed, in one table."""
    from longtail.records.kinds import read_recipe
    from longtail.records.row import read_row
    from longtail.report.comparison import unlike
    from longtail.report.public import compare

    found, final = search.trial_job(best), SearchFolder(search.folder).final
    winners = [
        search.job(final / f"trial-{found.folder.name}-seed={seed}", search.drawn(best), seed)
        for seed in search.seeds[1:]
    ]
    defaults = [search.job(final / f"defaults-seed={seed}", {}, seed) for seed in search.seeds]
    if defaults[0].keywords == found.keywords:
        search.progress.say(
            "The winner has the settings that the search started from: "
            "there is nothing to compare it with."
        )
        defaults = []
    diverged = run_jobs([*defaults, *winners], at_once=search.jobs, progress=search.progress)
    folders = [job.folder for job in (*defaults, found, *winners) if job.folder not in diverged]
    rows = [read_row(folder) for folder in folders]
    across = unlike(rows)
    if defaults and defaults[0].folder not in diverged:
        before = search.score(rows[0])
        verdict = "as good or better: keep them" if before >= _value(best) else "worse"
        search.progress.say(
            f"On validation (seed {search.seeds[0]}) the settings that the search started from have"
            f" {search.text(before)}, which is {verdict}."
        )
    return SearchResult(
        search.folder,
        found.folder,
        search.drawn(best),
        search.sign * _value(best),
        tuple(folders),
        tuple(diverged),
        compare(folders, across=across),
        tuple(across),
        str(read_recipe(found.folder)["command"]),
    )


def _value(trial: FrozenTrial) -> float:
    assert trial.value is not None
    return trial.value


def _words(keywords: Mapping[str, Any]) -> str:
    return " ".join(
        f"{name}={','.join(map(str, value)) if isinstance(value, list) else value}"
        for name, value in keywords.items()
    )
