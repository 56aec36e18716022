"""One run: open the data, check the folder, call the recipe, evaluate once, write the row last."""

from __future__ import annotations

import importlib
import os
import tempfile
import warnings
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any, Literal

from longtail import processes
from longtail.analysis.writing import warn_on_error
from longtail.core import Method
from longtail.data.dataset import Dataset
from longtail.data.open import open_dataset
from longtail.data.request import DataRequest, Geometry, OnBadImage, Pairs, Profile, Protocol
from longtail.engine.distributed import started
from longtail.engine.machine import Machine, choose
from longtail.engine.plan import EpochPlan
from longtail.engine.run import Run
from longtail.errors import LongtailError, warn
from longtail.recipes.signatures import Recipe, read
from longtail.records.documents import write_document
from longtail.records.files import append_line, write_text
from longtail.records.kinds import read_recipe, upgrade_folder
from longtail.records.layout import RunFolder
from longtail.records.lock import locked
from longtail.records.row import Row, read_row
from longtail.report.page import write as write_report
from longtail.runs.evaluating import warn_of_mirroring
from longtail.runs.identity import (
    Adjust,
    RunConfig,
    Tta,
    check_identity,
    check_outside,
    hardware,
    lacks_geometry,
    versions,
    with_geometry,
)
from longtail.runs.inputs import check_inputs, with_small_images
from longtail.runs.model import check_rebuilt, deployed
from longtail.runs.resources import check_needs, checked_sizes
from longtail.runs.results import evaluate_and_save
from longtail.scoring.scorer import (
    check_scorer,
)


@dataclass(frozen=True)
class Result:
    """A run's folder and its row; a dry run has none."""

    folder: Path
    row: Row | None
    fresh: bool = True  # False: it was finished before, and nothing was computed


def train(
    recipe: str | Callable[..., Method[Any]],
    data: str | Path,
    out: str | Path,
    *,
    root: str | Path | None = None,
    imbalance: float | None = None,
    profile: Profile = "exp",
    protocol: Protocol = "holdout",
    split_seed: int = 0,
    on_bad_image: OnBadImage = "refuse",
    mirror: bool | None = None,
    geometry: Geometry | None = None,
    scoring: str | None = None,
    test_domain: str | None = None,
    train_domain: str | None = None,
    word_vectors: str | Path | None = None,
    pairs: Pairs = "closed",
    seed: int = 0,
    view_seed: int | None = None,
    tta: Tta = "none",
    adjust: Adjust = "none",
    epoch_plan: str = "",
    minutes: float | None = None,
    device: str = "auto",
    precision: Literal["auto", "fp32", "bf16"] = "auto",
    threads: int | None = None,
    workers: int = 0,
    save_every: float = 10.0,
    compile: bool = False,
    sync_batchnorm: bool = False,
    tensorboard: bool = False,
    trust: bool = False,
    dry_run: bool = False,
    **keywords: Any,
) -> Result:
    """Train a recipe on data into the folder `out`, evaluate it, and return its row.

    The same call again resumes the run, or returns it if it is finished; a call that means another
    run is refused, with the differences. Data, recipe, keywords, seeds, `tta` and `adjust` identify
    a run; everything about the machine may change. `longtail train` is this function.

    Args:
        recipe: A name of `longtail list`, "package.module:function", or an importable function.
        data: A name or a path, as `longtail.data.open.open_data` takes it.
        out: The run folder.
        root: Where the images of a known dataset or of a list are.
        imbalance: Images of the largest class / of the smallest, of the sets called -lt.
        profile: How class sizes fall from the largest to the smallest.
        protocol: Whether validation images are held out of training.
        split_seed: Which images are held out.
        on_bad_image: What to do about images that cannot be read.
        mirror: Whether a mirrored image still is of its class; as the data has it, unless given.
        geometry: How images become squares; as the data has it, unless given.
        scoring: The score that ranks; the usual one of the data, unless given.
        test_domain: All images of this domain are the test set; the other domains are trained on.
        train_domain: The domains to train on, separated by commas; all others, unless given.
        word_vectors: Word vectors of attributes and objects, a text file or an .npz.
        pairs: Whether the pairs of the data can be predicted, or all of an attribute and an object.
        seed: Of weights, batches and views.
        view_seed: Of batches and views alone; `seed`, unless given.
        tta: Test-time averaging of the evaluation.
        adjust: With "validation", the logits are shifted and scaled by the predictions for the
            validation images (`longtail.posthoc.adjusting`); the row also has the scores without.
        epoch_plan: Changes of the number of epochs on the way, such as "3:37,8:35": after 3 epochs
            there are 37 in total, after 8, 35.
        minutes: After each epoch, plan again how many epochs of those requested training has time
            for; the plan is on the row, and as `epoch_plan` it gives the same run.
        device: Where to compute.
        precision: In what to compute.
        threads: Threads that compute.
        workers: Processes that decode images.
        save_every: Minutes between two checkpoints.
        compile: Whether to compile the network.
        sync_batchnorm: Whether processes share the statistics of batch norm.
        tensorboard: Whether to write event files.
        trust: Whether to import a custom network of another run, such as a teacher; that of this
            run is named by the caller and always imported.
        dry_run: Only build everything and estimate time and memory.
        **keywords: Keywords of the recipe.
    """
    if not isinstance(data, str | Path):
        raise LongtailError(
            f"expected the name or the path of data, got a {type(data).__name__}: "
            "pass what `open_data` was given"
        )
    known, out = (
        read(recipe if isinstance(recipe, str) else f"{recipe.__module__}:{recipe.__qualname__}"),
        Path(out),
    )
    for old, new in known.old_names.items():
        if old in keywords:
            message = f"{old} is now {new}; the old name will be removed in the next release"
            warnings.warn(message, DeprecationWarning, stacklevel=2)
    check_outside(out, str(data))
    config = RunConfig(
        recipe=known,
        keywords=known.keywords(keywords),
        data=DataRequest(
            str(data),
            root=None if root is None else str(root),
            imbalance=imbalance,
            profile=profile,
            protocol=protocol,
            split_seed=split_seed,
            on_bad_image=on_bad_image,
            mirror=mirror,
            geometry=geometry,
            scoring=scoring,
            test_domain=test_domain,
            train_domain=train_domain,
            word_vectors=None if word_vectors is None else str(word_vectors),
            pairs=pairs,
        ),
        seed=seed,
        view_seed=seed if view_seed is None else view_seed,
        tta=tta,
        adjust=adjust,
        epoch_plan=str(EpochPlan.parse(epoch_plan)),
    )
    if minutes is not None and (epoch_plan or not minutes > 0):
        raise LongtailError(
            f"expected minutes above 0, and no epoch_plan beside them, got {minutes} and"
            f" {epoch_plan!r}"
        )
    if minutes is not None and int(os.environ.get("WORLD_SIZE", "1")) > 1:
        raise LongtailError(
            "several processes would plan different epochs: leave minutes out, or pass the epoch"
            " plan of a run in one process"
        )
    config = with_small_images(config, out)
    machine = choose(
        device=device,
        precision=precision,
        threads=threads,
        workers=workers,
        compile=compile,
        sync_batchnorm=sync_batchnorm,
    )
    with started(machine), ExitStack() as alone:
        # Images are stored at the size of the recipe, if it has one: resizing twice loses detail.
        former = lacks_geometry(out)
        dataset = open_dataset(
            config.data, device=machine.device, size=config.keywords.get("size"), legacy=former
        )
        check_scorer(dataset)
        check_inputs(config, dataset)
        warn_of_mirroring(tta, dataset.name, mirror=dataset.mirror)
        start = partial(
            Run,
            seed=seed,
            view_seed=config.view_seed,
            machine=machine,
            trust=trust,
            save_minutes=save_every,
        )
        rehearsed = partial(
            start,
            check=lambda stage: str(check_needs(stage, device=machine.device, folder=out)),
        )
        if dry_run:
            with tempfile.TemporaryDirectory() as folder, checked_sizes():
                run = rehearsed(Path(folder), dry="estimate")
                deployed(call_recipe(config, dataset, run), dataset)
            return Result(out, None)
        record, first = config.record(dataset, machine, out), processes.rank() == 0
        check_identity(out, record, geometry=dataset.geometry)
        files = RunFolder(out)
        if first and files.has_checkpoint():
            _warn_of_edits(out, known)
        if files.is_finished:
            row = read_row(out)
            if first and not files.report.exists():  # killed between the row and the report
                _write_report(out)
            return Result(out, row, fresh=False)
        if not files.has_checkpoint():
            rehearsal = rehearsed(out, dry="rehearse", plan=_epoch_plan(config, minutes))
            with checked_sizes():
                check_rebuilt(deployed(call_recipe(config, dataset, rehearsal), dataset))
        if first:
            alone.enter_context(locked(out))
            # Again: another command may have started here since.
            check_identity(out, record, geometry=dataset.geometry)
            upgrade_folder(out)
        if first and not files.has_checkpoint():
            write_text(files.recipe_source, known.module_source)
            write_document(files.recipe, record)
        if first and former:
            write_document(files.recipe, with_geometry(read_recipe(out), dataset.geometry))
        run = start(
            out,
            tensorboard=tensorboard,
            command=config.command(out),
            plan=_epoch_plan(config, minutes),
        )
        if first:
            _note_session(out, machine)
        row = evaluate_and_save(config, dataset, machine, call_recipe(config, dataset, run), run)
        if first and not files.recipe.exists():
            raise LongtailError(
                f"{files.recipe} was deleted while {out} was trained: delete what is left of the"
                " folder and run the same command again"
            )
        if first:
            write_document(files.row, row)
            _write_report(out)
        return Result(out, row | {"folder": str(out)})


def _epoch_plan(config: RunConfig, minutes: float | None) -> EpochPlan | None:
    """How the epochs change on the way, if they do."""
    if minutes is None:
        return EpochPlan.parse(config.epoch_plan) if config.epoch_plan else None
    return EpochPlan(seconds=60 * minutes)


def _write_report(out: Path) -> None:
    with warn_on_error("no report was written", f"longtail report {out}"):
        write_report([out], RunFolder(out).report)


def call_recipe(config: RunConfig, dataset: Dataset, run: Run) -> Method[Any]:
    """Call the recipe."""
    defaults = {name: parameter.default for name, parameter in config.recipe.parameters.items()}
    run.changed = {
        name: value for name, value in config.keywords.items() if value != defaults[name]
    }
    module, _, function = config.recipe.target.partition(":")
    keywords = {
        name: _as_path(value) if config.recipe.parameters[name].scalar == "Path" else value
        for name, value in config.keywords.items()
    }
    method = getattr(importlib.import_module(module), function)(run, dataset, **keywords)
    if not isinstance(method, Method):
        raise LongtailError(
            f"expected {config.recipe.name} to return its trained method, "
            f"got {type(method).__name__}: return what `run.fit` gave"
        )
    return method


def _warn_of_edits(out: Path, recipe: Recipe) -> None:
    """Warn where a custom recipe was edited since the run started: its keywords may be the same."""
    source = RunFolder(out).recipe_source
    if (
        ":" in recipe.name
        and source.exists()
        and source.read_text(encoding="utf-8") != recipe.module_source
    ):
        warn(
            f"the source of {recipe.name} is not that with which {out} was started "
            f"({source}): choose another --out to train it again"
        )


def _as_path(value: Any) -> Any:
    return (
        None
        if value is None
        else [Path(item) for item in value]
        if isinstance(value, list)
        else Path(value)
    )


def _note_session(out: Path, machine: Machine) -> None:
    """Add time and machine to sessions.jsonl: a run may be resumed on another machine."""
    line = {
        "time": datetime.now(UTC).isoformat(timespec="seconds"),
        "hardware": hardware(machine),
        "versions": versions(),
    }
    append_line(RunFolder(out).sessions, line)
