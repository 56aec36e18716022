"""The trials of a search: sampled, run and recorded with Optuna, and scored on validation."""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from longtail.data.request import data_flags
from longtail.errors import LongtailError, MissingExtra
from longtail.experiments.jobs import Job, Progress, run_all, run_job
from longtail.experiments.spaces import Choices, Range, Space
from longtail.recipes.signatures import Recipe
from longtail.records.layout import RunFolder, SearchFolder
from longtail.records.scores import format_score

if TYPE_CHECKING:
    from optuna import Study
    from optuna.trial import FrozenTrial

    from longtail.records.row import Row
    from longtail.records.scores import Label

SHOWN = 10  # trials in the table


@dataclass(frozen=True)
class Search:
    """A search: recipe, data, search space, metric and folder."""

    recipe: Recipe
    data: str
    folder: Path
    keywords: Mapping[str, Any]  # the initial ones
    space: Space
    texts: Mapping[str, str]  # the space as text
    metric: str  # "val/" and the name of a score
    label: Label  # format and direction of that score
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

    def sampled(self, trial: FrozenTrial) -> dict[str, Any]:
        """The keywords of a trial."""
        return {name: space.value(trial.params[name]) for name, space in self.space.items()}

    def trial_job(self, trial: FrozenTrial) -> Job:
        """The run of a trial."""
        return self.job(
            SearchFolder(self.folder).trial(trial.number + 1).path,
            self.sampled(trial),
            self.seeds[0],
        )

    def score(self, row: Row) -> float:
        """The value to maximise, from validation only; negated if a lower score is better."""
        summary, name = row["val"], self.metric.partition("/")[2]
        if summary is None:
            raise LongtailError(
                f"a search needs validation images, and {self.data} has none: use more images"
            )
        value = summary["scores"].get(name)
        if value is None:
            raise LongtailError(
                f"{self.metric} cannot be measured on the validation images: pass another --metric"
            )
        return self.sign * value

    @property
    def sign(self) -> int:
        """1 where the score is maximised, -1 where it is minimised."""
        return 1 if self.label["higher_is_better"] else -1

    def text(self, value: float) -> str:
        """Format a value of `score`."""
        return format_score(self.sign * value, self.label)


def open_study(search: Search) -> Study:
    """Create or resume the study in the folder of a search; raises if it has another search."""
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

    # The identity of a search; flags of the machine may change.
    defaults = {name: field.default for name, field in data_flags().items()}
    defaults |= {"tta": "none", "adjust": "none"}
    flags = {name: search.flags.get(name, default) for name, default in defaults.items()}
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
        stored = read_document(path, SEARCH)
        stored["flags"] = {
            **dict.fromkeys(defaults),
            **stored["flags"],
        }  # flags added later have no value
        changed = [
            f"{name}: {stored.get(name)} in the folder, {value} requested"
            for name, value in record.items()
            if stored.get(name) != value
        ]
        if changed:
            raise LongtailError(
                f"{search.folder} contains another search:\n  "
                + "\n  ".join(changed)
                + "\npass another --out"
            )
    else:
        search.folder.mkdir(parents=True, exist_ok=True)
        write_document(path, record)
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    storage = JournalStorage(JournalFileBackend(str(files.journal)))
    return optuna.create_study(
        storage=storage, study_name="search", direction="maximize", load_if_exists=True
    )


def run_trials(search: Search) -> FrozenTrial:
    """Run the missing trials, show them, and return the best of all.

    Only the first process opens the study: it samples each trial for all, and records its value.
    """
    from longtail.processes import in_first

    opened: list[Study] = []  # empty in other processes

    def start() -> list[FrozenTrial | None]:
        opened.append(open_study(search))
        return _missing(search, opened[0])

    lock, refused = threading.Lock(), list[LongtailError]()

    def run_trial(started: FrozenTrial | None) -> None:
        def begin() -> tuple[FrozenTrial, FrozenTrial | None]:
            with lock:
                trial = _new_trial(search, opened[0]) if started is None else started
                return trial, _duplicate(search, opened[0], trial)

        trial, duplicate = in_first(begin)
        job = search.trial_job(trial)
        note = f" (same as trial {duplicate.number + 1})" if duplicate else ""
        search.progress.say(
            f"trial {trial.number + 1} of {search.trials}: {_to_text(search.sampled(trial))}{note}"
        )
        reason: str | LongtailError | None
        try:
            reason = None if duplicate else run_job(job, apart=search.jobs > 1)
        except LongtailError as error:
            if in_first(RunFolder(job.folder).has_started):
                raise  # training had started, so the keywords are valid
            refused.append(error)
            reason = error

        def record() -> None:
            with lock:
                _record(search, opened[0], trial, duplicate, reason)

        in_first(record)

    for _ in run_all(run_trial, in_first(start), at_once=search.jobs):
        pass

    def finish() -> FrozenTrial:
        from optuna.trial import TrialState

        if not opened[0].get_trials(deepcopy=False, states=(TrialState.COMPLETE,)):
            if refused:
                raise refused[-1]
            raise LongtailError(
                f"all {search.trials} trials diverged: search smaller learning rates"
            )
        best = winner(opened[0])
        _show_trials(search, opened[0], best)
        return best

    return in_first(finish)


def _missing(search: Search, study: Study) -> list[FrozenTrial | None]:
    """The trials to run: those that were interrupted, and None for each that is new."""
    from optuna.trial import TrialState

    before = study.get_trials(deepcopy=False)
    for trial in before:  # killed while it was sampled: there is no run to resume
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
            + f", {len(running)} more were started" * bool(running)
        )
    return [*running, *[None] * (search.trials - len(done) - len(running))]


def _record(
    search: Search,
    study: Study,
    trial: FrozenTrial,
    duplicate: FrozenTrial | None,
    reason: str | LongtailError | None,
) -> None:
    """Tell the study how a trial ended: with a score, diverged, or with keywords that are refused.

    `reason` is why it has no score.
    """
    from optuna.trial import TrialState

    from longtail.records.row import read_row

    folder = search.trial_job(trial).folder
    if reason is not None:
        search.progress.warn(f"{folder}: {reason}")
        # An invalid combination of keywords: try others. The sampler treats one that diverged as
        # worse than all others.
        invalid = isinstance(reason, LongtailError)
        study.tell(trial.number, state=TrialState.FAIL if invalid else TrialState.PRUNED)
        return
    value = value_of(duplicate) if duplicate else search.score(read_row(folder))
    study.tell(trial.number, value)
    best = winner(study)
    search.progress.say(
        f"trial {trial.number + 1}: {search.metric} {search.text(value)}; "
        f"best so far {search.text(value_of(best))} (trial {best.number + 1})"
    )


def _new_trial(search: Search, study: Study) -> FrozenTrial:
    """Sample a new trial.

    The sample depends only on the earlier trials and on its number, so a resumed search continues
    exactly like one that was not interrupted.
    """
    import numpy as np
    from optuna.distributions import CategoricalDistribution, FloatDistribution, IntDistribution
    from optuna.samplers import TPESampler

    # Hashed, because the first samples of numpy's legacy generator are similar for some small
    # seeds: those of 0 and 3 agree to two digits, twice.
    study.sampler = TPESampler(
        seed=int(np.random.SeedSequence(len(study.get_trials(deepcopy=False))).generate_state(1)[0])
    )
    distributions: dict[str, Any] = {}
    for name, space in search.space.items():
        if isinstance(space, Choices):
            distributions[name] = CategoricalDistribution(space.texts)
        elif space.integer:
            distributions[name] = IntDistribution(int(space.low), int(space.high), log=space.log)
        else:
            distributions[name] = FloatDistribution(space.low, space.high, log=space.log)
    number = study.ask(distributions).number
    return study.get_trials(deepcopy=False)[number]


def _duplicate(search: Search, study: Study, trial: FrozenTrial) -> FrozenTrial | None:
    """An earlier finished trial with the same keywords."""
    from optuna.trial import TrialState

    keywords = search.sampled(trial)
    finished = study.get_trials(deepcopy=False, states=(TrialState.COMPLETE,))
    return next(
        (
            other
            for other in finished
            if other.number < trial.number and search.sampled(other) == keywords
        ),
        None,
    )


def winner(study: Study) -> FrozenTrial:
    """The best trial; the first of equal ones."""
    from optuna.trial import TrialState

    return max(
        study.get_trials(deepcopy=False, states=(TrialState.COMPLETE,)),
        key=lambda trial: (value_of(trial), -trial.number),
    )


def _show_trials(search: Search, study: Study, best: FrozenTrial) -> None:
    """Print the best trials, and plot all."""
    from optuna.trial import TrialState

    from longtail.records.files import write_text
    from longtail.records.row import read_row
    from longtail.report.svg import standalone
    from longtail.report.sweep_figures import Panel, search_plot

    trials = study.get_trials(deepcopy=False, states=(TrialState.COMPLETE, TrialState.PRUNED))
    done = sorted(
        (trial for trial in trials if trial.value is not None),
        key=lambda trial: (-value_of(trial), trial.number),
    )
    rows = [
        [str(trial.number + 1), _to_text(search.sampled(trial)), search.text(value_of(trial))]
        for trial in done[:SHOWN]
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
        f"Chosen on {images:,} validation images with seed {search.seeds[0]}; test images were not"
        " used."
    )
    percent = search.label["format"] == "percent"
    scale = search.sign * (100 if percent else 1)
    panels = [
        Panel(
            name,
            [(search.sampled(trial)[name], scale * value_of(trial)) for trial in done],
            log=isinstance(space, Range) and space.log,
        )
        for name, space in search.space.items()
    ]
    figure = SearchFolder(search.folder).figure
    y = f"{search.metric}{', %' if percent else ''}"
    higher = search.label["higher_is_better"]
    write_text(figure, standalone(search_plot(panels, y=y, higher_is_better=higher)))
    search.progress.say(f"plot: {figure}")


def value_of(trial: FrozenTrial) -> float:
    """The value of a finished trial."""
    assert trial.value is not None
    return trial.value


def _to_text(keywords: Mapping[str, Any]) -> str:
    return " ".join(
        f"{name}={','.join(map(str, value)) if isinstance(value, list) else value}"
        for name, value in keywords.items()
    )
