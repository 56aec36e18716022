"""Search on validation: keywords drawn by Optuna, every trial a run of its own. The test images choose nothing.

In the folder of a search, `search.json` says what was asked, `search.jsonl` is Optuna's journal, `trials` has a run for each trial and
`final` the runs of the table at the end, apart from that of the winner with the first seed, which is its trial.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from shlex import join
from typing import TYPE_CHECKING, Any

import typer

from longtail.cli import tables
from longtail.cli.flags import usual_out
from longtail.cli.sweep import integers, pairs, shared_flags
from longtail.errors import LongtailError, MissingExtra
from longtail.experiments.jobs import Job, do, run_all
from longtail.experiments.jobs import perform as train_all
from longtail.experiments.spaces import Choices, Range, Space, space
from longtail.naming import unknown
from longtail.recipes.signatures import Recipe, read
from longtail.records.layout import RunFolder, SearchFolder

if TYPE_CHECKING:
    from optuna import Study
    from optuna.trial import FrozenTrial

    from longtail.records.row import Row

METRICS = ("val/balanced", "val/top1", "val/many", "val/medium", "val/few")
TRIALS = 20
SHOWN = 10  # trials in the table
MACHINE = (
    "device",
    "precision",
    "threads",
    "workers",
    "save_every",
    "compile",
    "sync_batchnorm",
    "tensorboard",
)  # may change


@dataclass(frozen=True)
class Search:
    """What is searched, by what, and where."""

    recipe: Recipe
    data: str
    folder: Path
    keywords: Mapping[str, Any]  # before the search changes some
    space: Space
    asked: Mapping[str, str]  # the space as it was typed
    metric: str
    trials: int
    seeds: Sequence[int]
    flags: Mapping[str, Any]
    jobs: int

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
        """What is maximised. Reads validation and nothing else."""
        summary, name = row["val"], self.metric.partition("/")[2]
        if summary is None:
            raise LongtailError(
                f"expected validation images to search on, got none in {self.data}: it is too small, or has no room for any"
            )
        value = {"top1": summary["top1"], "balanced": summary["balanced"], **summary["groups"]}.get(
            name
        )
        if value is None:
            raise LongtailError(
                f"expected validation images for {self.metric}, got none in that group: take val/balanced"
            )
        return value


def perform(values: Mapping[str, Any]) -> None:
    """Search, train the winner with every seed, and compare it with the recipe's own settings."""
    search = plan(values)
    study = opened(search)
    best = _searched(search, study)
    _shown(search, study, best)
    _compared(search, best)


def plan(values: Mapping[str, Any]) -> Search:
    """What the flags ask for; everything is checked before anything runs."""
    from longtail.runs.identity import check_outside

    names = (values["recipes"] or "").split(",")
    if values["name"] is not None or len(names) != 1 or not names[0] or not values["data"]:
        raise LongtailError(
            "expected one recipe and its data to search, got others: write `longtail sweep RECIPE --data DATA --search ...`"
        )
    if values["protocol"] == "paper":
        raise LongtailError(
            "expected --protocol holdout to search, got paper, which has no validation images: what would choose is the test set. "
            "Search with holdout, then train what it finds with paper"
        )
    metric = values["metric"] or METRICS[0]
    if metric not in METRICS:
        raise LongtailError(
            f"expected --metric {', '.join(METRICS)}, got {metric!r}"
            + ": the test set must not choose" * ("test" in metric)
        )
    trials = TRIALS if values["trials"] is None else values["trials"]
    if trials < 1:
        raise LongtailError(f"expected --trials of at least 1, got {trials}")
    recipe = read(names[0])
    fixed = {}
    for name, text in pairs(values["set"] or [], "--set KEYWORD=VALUE").items():
        if name not in recipe.parameters:
            raise unknown(f"keyword of {recipe.name}", name, recipe.parameters)
        parameter = recipe.parameters[name]
        if not parameter.many and "," in text:
            raise LongtailError(
                f"expected one value in --set {name}={text} beside --search, got several: write --search {name}={text}"
            )
        fixed[name] = parameter.parse(text)
    asked = pairs(values["search"], "--search KEYWORD=LOW..HIGH or KEYWORD=VALUE,VALUE")
    for name in asked:
        if name in fixed:
            raise LongtailError(
                f"expected {name} in --set or in --search, got it in both: leave one out"
            )
    out = values["out"] or usual_out(f"search-{recipe.name.rpartition(':')[2]}", values["data"])
    check_outside(out, values["data"])
    return Search(
        recipe,
        values["data"],
        out,
        recipe.keywords(fixed),
        {name: space(recipe, name, text) for name, text in asked.items()},
        asked,
        metric,
        trials,
        integers(values["seeds"] or "0"),
        shared_flags(values),
        values["jobs"],
    )


def opened(search: Search) -> Study:
    """The study in the folder of a search, new or continued; a folder with another search is refused, and the difference named."""
    try:
        import optuna
    except ModuleNotFoundError:
        raise MissingExtra(
            "--search needs the package optuna: pip install 'longtail[sweep]'"
        ) from None
    from optuna.storages import JournalStorage
    from optuna.storages.journal import JournalFileBackend

    from longtail.records.files import FORMAT, read_json, write_json

    seen = {
        name: None if search.flags[name] is None else str(search.flags[name])
        for name in search.flags
        if name not in MACHINE
    }
    record = {
        "format": FORMAT,
        "recipe": search.recipe.name,
        "data": search.data,
        "metric": search.metric,
        "seed": search.seeds[0],
    }
    record |= {"search": dict(search.asked), "keywords": dict(search.keywords), "flags": seen}
    files = SearchFolder(search.folder)
    path = files.request
    if path.exists():
        there = read_json(path)
        changed = [
            f"{name}: {there.get(name)} in the folder, {value} asked"
            for name, value in record.items()
            if there.get(name) != value
        ]
        if changed:
            raise LongtailError(
                f"expected the search that {search.folder} holds, got another:\n  "
                + "\n  ".join(changed)
                + "\nchoose another --out"
            )
    else:
        search.folder.mkdir(parents=True, exist_ok=True)
        write_json(path, record)
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    storage = JournalStorage(JournalFileBackend(str(files.journal)))
    return optuna.create_study(
        storage=storage, study_name="search", direction="maximize", load_if_exists=True
    )


def _searched(search: Search, study: Study) -> FrozenTrial:
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
        tables.say(
            f"{search.folder}: {len(done)} of {search.trials} trials were done before"
            + f", {len(running)} more had begun" * bool(running)
        )
    missing: list[FrozenTrial | None] = [
        *running,
        *[None] * (search.trials - len(done) - len(running)),
    ]

    def one(begun: FrozenTrial | None) -> None:
        with lock:
            trial = _asked(search, study) if begun is None else begun
            twin = _twin(search, study, trial)
        job = search.trial_job(trial)
        again = f" (as trial {twin.number + 1})" if twin else ""
        tables.say(
            f"trial {trial.number + 1} of {search.trials}: {_said(search.drawn(trial))}{again}"
        )
        try:
            reason = None if twin else do(job, apart=search.jobs > 1)
        except LongtailError as error:
            if RunFolder(job.folder).has_started():
                raise  # it has learnt something: an image that cannot be read any more, say
            with lock:  # keywords that do not go together: another trial may do better
                tables.warn(f"{job.folder}: {error}")
                study.tell(trial.number, state=TrialState.FAIL)
            refused.append(error)
            return
        with lock:
            if reason is not None:
                tables.warn(f"{job.folder}: {reason}")
                study.tell(trial.number, state=TrialState.PRUNED)  # for the sampler: worse than any
                return
            value = _value(twin) if twin else search.score(read_row(job.folder))
            study.tell(trial.number, value)
            best = winner(study)
            own = f"trial {trial.number + 1}: {search.metric} {100 * value:.1f}"
            tables.say(f"{own}; best so far {100 * _value(best):.1f} (trial {best.number + 1})")

    for _ in run_all(one, missing, at_once=search.jobs):
        pass
    if not study.get_trials(deepcopy=False, states=(TrialState.COMPLETE,)):
        if refused:
            raise refused[-1]
        raise LongtailError(
            f"expected a trial that learns, got {search.trials} that diverged: search lower rates"
        )
    return winner(study)


def _asked(search: Search, study: Study) -> FrozenTrial:
    """A new trial. Its draws depend on the trials before and on its number, so a search that was interrupted goes on as if it was not."""
    import numpy as np
    from optuna.distributions import CategoricalDistribution, FloatDistribution, IntDistribution
    from optuna.samplers import TPESampler

    # Hashed, because the first draws of numpy's old generator are alike for some small seeds: 0 and 3 agree to two digits, twice.
    study.sampler = TPESampler(
        seed=int(np.random.SeedSequence(len(study.get_trials(deepcopy=False))).generate_state(1)[0])
    )
    drawn: dict[str, Any] = {}
    for name, own in search.space.items():
        if isinstance(own, Choices):
            drawn[name] = CategoricalDistribution(own.texts)
        elif own.whole:
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


def _shown(search: Search, study: Study, best: FrozenTrial) -> None:
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
        [str(own.number + 1), _said(search.drawn(own)), f"{100 * _value(own):.1f}"]
        for own in done[:SHOWN]
    ]
    more = f"; {len(trials) - len(done)} diverged" if len(done) < len(trials) else ""
    tables.grid(
        ["trial", "keywords", search.metric],
        rows,
        left=2,
        title=f"the best {len(rows)} of {len(trials)} trials{more}",
    )
    images = (read_row(search.trial_job(best).folder)["val"] or {"images": 0})["images"]
    tables.say(
        f"Chosen on {images:,} validation images of seed {search.seeds[0]}; the test images chose nothing."
    )
    panels = [
        Panel(
            name,
            [(search.drawn(own)[name], 100 * _value(own)) for own in done],
            log=isinstance(own_space, Range) and own_space.log,
        )
        for name, own_space in search.space.items()
    ]
    picture = SearchFolder(search.folder).figure
    write_text(picture, standalone(search_plot(panels, y=f"{search.metric}, %")))
    tables.say(f"plot: {picture}")


def _compared(search: Search, best: FrozenTrial) -> None:
    """The winner and the recipe's own settings, each with every seed, in one table."""
    from longtail.records.row import read_row
    from longtail.report.comparison import unlike

    found, files = search.trial_job(best), SearchFolder(search.folder)
    named = found.folder.name
    winners = [
        search.job(files.final / f"trial-{named}-seed={seed}", search.drawn(best), seed)
        for seed in search.seeds[1:]
    ]
    usual = [search.job(files.final / f"defaults-seed={seed}", {}, seed) for seed in search.seeds]
    if usual[0].keywords == found.keywords:
        tables.say(
            "The winner has the settings that the search began with: there is nothing to compare it with."
        )
        usual = []
    diverged = train_all([*usual, *winners], at_once=search.jobs)
    folders = [job.folder for job in (*usual, found, *winners) if job.folder not in diverged]
    rows = [read_row(folder) for folder in folders]
    across = unlike(rows)
    tables.compared(folders, across=across, format="table", out=None)
    if usual and usual[0].folder not in diverged:
        before = search.score(rows[0])
        verdict = "as good or better: keep them" if before >= _value(best) else "worse"
        tables.say(
            f"On validation (seed {search.seeds[0]}) the settings that the search began with have {100 * before:.1f}, which is {verdict}."
        )
    tables.say(f"the winner: {_command(found.folder)}")
    if diverged:
        tables.warn(
            f"{len(diverged)} of {len(usual) + len(winners)} runs diverged: {', '.join(map(str, diverged))}"
        )
        raise typer.Exit(1)
    places = [str(files.final)] * bool(usual or winners) + [str(found.folder)]
    words = [
        "longtail",
        "compare",
        *places,
        *(word for name in across for word in ("--across", name)),
    ]
    tables.next_step(join(words), join(["longtail", "report", str(found.folder)]))


def _command(folder: Path) -> str:
    return str(json.loads(RunFolder(folder).recipe.read_text(encoding="utf-8"))["command"])


def _value(trial: FrozenTrial) -> float:
    assert trial.value is not None
    return trial.value


def _said(keywords: Mapping[str, Any]) -> str:
    return " ".join(
        f"{name}={','.join(map(str, value)) if isinstance(value, list) else value}"
        for name, value in keywords.items()
    )
