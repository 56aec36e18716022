"""One run: open the data, check the folder, call the recipe, evaluate once, write the row last."""

from __future__ import annotations

import importlib
import os
import tempfile
import warnings
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal

import torch

from longtail import processes
from longtail.analysis.writing import warn_on_error
from longtail.core import Method
from longtail.data.dataset import Dataset
from longtail.data.images.reading import natural_size
from longtail.data.open import find, open_dataset
from longtail.data.request import DataRequest, Geometry, OnBadImage, Pairs, Profile, Protocol
from longtail.engine.distributed import started
from longtail.engine.machine import Machine, choose
from longtail.engine.plan import EpochPlan
from longtail.engine.run import Run
from longtail.errors import LongtailError, warn
from longtail.nn import Adjusted, Classifier
from longtail.nn.networks import size_of
from longtail.posthoc import Adjustment, adjustment
from longtail.recipes.signatures import Recipe, read
from longtail.records.documents import FORMAT, write_document
from longtail.records.files import append_line, read_journal, write_text
from longtail.records.kinds import read_recipe, upgrade_folder
from longtail.records.layout import RunFolder
from longtail.records.lock import locked
from longtail.records.predictions import SplitPredictions, write_predictions
from longtail.records.row import Adjustment as AdjustmentRecord
from longtail.records.row import Best, Row, read_row
from longtail.records.scores import Headline
from longtail.report.page import write as write_report
from longtail.runs.evaluating import calibrated, confidence_of, warn_of_mirroring, write_sets
from longtail.runs.examples import write_examples
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
from longtail.runs.inference import predict_split
from longtail.runs.model import check_rebuilt, deployed, write_model
from longtail.runs.operating_point import bias_of, choose_bias, shift_predictions, with_bias
from longtail.runs.resources import check_needs, checked_sizes
from longtail.scoring.scorer import (
    check_scorer,
    headline_of,
    scorer_for,
    summarise_splits,
    task_scorer,
)

FAST_CNN_SIZE = 64
"""The side in pixels of the largest images that fast_cnn is given by default."""


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
        if adjust == "validation" and not len(dataset.val):
            raise LongtailError(
                "expected validation images to adjust on, "
                f"got none of {dataset.name} (protocol {protocol}): use --protocol holdout "
                "where classes have five images or more, or --adjust none"
            )
        if adjust == "validation" and not bool((dataset.counts > 0).all()):
            raise LongtailError(
                "--adjust validation needs training images of every class, "
                f"and {dataset.name} has classes without: use --adjust none"
            )
        check_scorer(dataset)
        check_inputs(config, dataset)
        warn_of_mirroring(tta, dataset.name, mirror=dataset.mirror)
        if dry_run:
            with tempfile.TemporaryDirectory() as folder:
                run = Run(
                    Path(folder),
                    seed=seed,
                    view_seed=config.view_seed,
                    machine=machine,
                    dry="estimate",
                    trust=trust,
                    check=lambda stage: str(check_needs(stage, device=machine.device, folder=out)),
                )
                with checked_sizes():
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
            rehearsal = Run(
                out,
                seed=seed,
                view_seed=config.view_seed,
                machine=machine,
                dry="rehearse",
                trust=trust,
                check=lambda stage: str(check_needs(stage, device=machine.device, folder=out)),
                plan=_epoch_plan(config, minutes),
            )
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
        run = Run(
            out,
            seed=seed,
            view_seed=config.view_seed,
            machine=machine,
            save_minutes=save_every,
            tensorboard=tensorboard,
            trust=trust,
            command=config.command(out),
            plan=_epoch_plan(config, minutes),
        )
        if first:
            _note_session(out, machine)
        row = _evaluate_and_save(config, dataset, machine, call_recipe(config, dataset, run), run)
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


def with_small_images(config: RunConfig, out: Path) -> RunConfig:
    """Images of 64 pixels for fast_cnn, also as a teacher, unless a size is given.

    Larger ones take it days. A run that was started with larger images keeps them. Known datasets
    have published sizes.
    """
    sizes = [name for name in ("size", "teacher_size") if _is_of_fast_cnn(config.keywords, name)]
    if not sizes or not Path(config.data.source).exists():
        return config
    started = read_recipe(out)["keywords"] if RunFolder(out).recipe.exists() else None
    source = find(config.data)
    if source.splits["train"].inputs.vectors() is not None:
        return config
    native = source.size or natural_size(source)
    if native <= FAST_CNN_SIZE:
        return config
    small = {}
    for size in sizes:
        if started is not None and started.get(size) is None:
            continue
        small[size] = FAST_CNN_SIZE
        if processes.rank() == 0:
            of, flag = "of the teacher " * (size != "size"), size.replace("_", "-")
            warn(
                f"images {of}are resized to {FAST_CNN_SIZE} pixels, for which fast_cnn is made:"
                f" pass --{flag} {native} for larger ones, which take"
                f" {(native / FAST_CNN_SIZE) ** 2:.0f} times as long"
            )
    return replace(config, keywords={**config.keywords, **small})


def _is_of_fast_cnn(keywords: Mapping[str, Any], size: str) -> bool:
    """Whether fast_cnn is trained, and the keyword of its size is left at None."""
    if size == "teacher_size" and keywords.get("teacher") is not None:
        return False
    network = size.replace("size", "network")
    return keywords.get(network) == "fast_cnn" and keywords.get(size, 0) is None


def check_inputs(config: RunConfig, dataset: Dataset) -> None:
    """Refuse a network for images on feature vectors, and the other way round, before training."""
    network = config.keywords.get("network")
    if dataset.has_vectors and network != "vectors":
        advice = (
            f"this recipe trains {network}: pass --network vectors"
            if "network" in config.keywords
            else "this recipe needs images: choose one that has the keyword network"
        )
        raise LongtailError(f"{dataset.name} has feature vectors instead of images, and {advice}")
    if network == "vectors" and not dataset.has_vectors:
        if config.recipe.parameters["network"].default == "vectors":
            raise LongtailError(
                f"{config.recipe.name} trains on feature vectors, and {dataset.name} has images:"
                " compute features with `longtail embed` first"
            )
        raise LongtailError(
            f"--network vectors is for feature vectors, and {dataset.name} has images: "
            "choose another network"
        )
    if dataset.has_vectors and config.tta == "flip":
        raise LongtailError(
            f"--tta flip mirrors images, and {dataset.name} has feature vectors: remove it"
        )


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


def _evaluate_and_save(
    config: RunConfig, dataset: Dataset, machine: Machine, method: Method[Any], run: Run
) -> Row:
    """Evaluate, write predictions and model, and make the row. Only here are test images used."""
    first, network = processes.rank() == 0, deployed(method, dataset)
    out, history = run.folder, run.history
    size = size_of(network.spec)
    splits = {
        name: split for name, split in (("val", dataset.val), ("test", dataset.test)) if len(split)
    }
    predictions = {
        name: predict_split(method, split, size=size, tta=config.tta, machine=machine)
        for name, split in splits.items()
    }
    # Without test-time averaging: what `predict` does is adjusted and calibrated
    once = predictions
    if config.tta != "none":
        once = {
            name: predict_split(method, split, size=size, tta="none", machine=machine)
            for name, split in splits.items()
        }
    scorer, counts = scorer_for(dataset), dataset.counts.numpy()
    adjustment_record: AdjustmentRecord | None = None
    if config.adjust == "validation":
        before = summarise_splits(
            predictions,
            scorer,
            groups=dataset.groups,
            counts=counts,
            confidence=confidence_of(network),
            detail=False,
        )
        network, chosen = _adjusted(network, once["val"], dataset)
        both = [
            {
                name: replace(
                    result, logits={head: chosen(rows) for head, rows in result.logits.items()}
                )
                for name, result in results.items()
            }
            for results in ([predictions] if once is predictions else [predictions, once])
        ]
        predictions, once = both[0], both[-1]
        adjustment_record = {
            "tau": chosen.tau,
            "temperature": chosen.temperature,
            "val": before["val"],
            "test": before["test"],
        }
    point = choose_bias(task_scorer(dataset), network, once)
    if point is not None and point["bias"]:
        seen = counts > 0
        already = bias_of(network, seen)
        before = summarise_splits(
            shift_predictions(predictions, seen, -already),
            scorer,
            groups=dataset.groups,
            counts=counts,
            confidence=confidence_of(network),
            detail=False,
        )
        point |= {"val": before["val"], "test": before["test"]}
        network = with_bias(network, seen, point["bias"])
        same = once is predictions
        predictions = shift_predictions(predictions, seen, point["bias"] - already)
        once = predictions if same else shift_predictions(once, seen, point["bias"] - already)
    thresholds, confidence = calibrated(once, groups=dataset.groups), confidence_of(network)
    summaries = summarise_splits(
        predictions,
        scorer,
        once=once,
        groups=dataset.groups,
        counts=counts,
        confidence=confidence,
        thresholds=thresholds,
    )
    if first:
        for name, result in predictions.items():
            write_predictions(run.files.predictions(name), result, splits[name].ids)
    selection = history[-1]["keep"] if history else "not trained"
    row: Row = {
        "format": FORMAT,
        "recipe": config.recipe.name,
        "keywords": {
            name: value for name, value in config.keywords.items() if name not in run.unused
        },
        "data": {
            "name": dataset.name,
            "hash": dataset.hash,
            "protocol": dataset.protocol,
            "imbalance": config.data.imbalance,
            "mirror": dataset.mirror,
            "scoring": dataset.scoring,
            "test_domain": config.data.test_domain,
            "train_domain": config.data.train_domain,
            "geometry": dataset.geometry,
            "classes": len(dataset.classes),
            "train_images": len(dataset.train),
            "counts_before": dataset.source_counts.tolist(),
            "counts_after": dataset.counts.tolist(),
            "caveats": [*dataset.caveats, *run.caveats],
        },
        "seed": config.seed,
        "view_seed": config.view_seed,
        "split_seed": config.data.split_seed,
        "selection": f"{selection}, adjusted on validation" if adjustment_record else selection,
        "tta": config.tta,
        "size": size,
        "pretraining": run.pretraining or dataset.pretraining,
        "parameters": sum(weight.numel() for weight in network.parameters()),
        "epochs": {stage["name"]: stage["epochs"] for stage in history},
        "minutes": sum(stage["minutes"] for stage in history),
        "test": summaries["test"],
        "val": summaries["val"],
        "best_validation": _best(out, history, headline_of(scorer)),
        "headline": headline_of(scorer),
        "labels": dict(scorer.labels),
        "versions": versions(),
        "hardware": hardware(machine),
    }
    if plan := next((stage["plan"] for stage in history if "plan" in stage), ""):
        row["epoch_plan"] = plan
    if dataset.backbone is not None:
        row["data"]["backbone"] = dict(dataset.backbone.network)
    if earlier := sum(run.minutes_before.values()):
        row["minutes_before"] = round(earlier, 3)
    if run.unused:
        row["unused"] = sorted(run.unused)
    if point is not None:
        row["operating_point"] = point
    if adjustment_record:
        row["adjustment"] = adjustment_record
    if first:
        write_model(run.files.model.path, network, dataset, row)
        write_sets(run.files.model.path, thresholds)
        with warn_on_error("no example images were written", f"longtail eval {out} --rewrite"):
            write_examples(out, network, dataset, size=size, confidence=confidence)
    return row


def _adjusted(
    network: Classifier, val: SplitPredictions, dataset: Dataset
) -> tuple[Adjusted, Adjustment]:
    """The network with its logits adjusted by the predictions for the validation images."""
    chosen = adjustment(val.logits["logits"], val.target, dataset.counts.numpy())
    device = next(network.parameters()).device
    adjusted = Adjusted(
        network.network,
        network.head,
        bias=torch.from_numpy(chosen.bias),
        temperature=chosen.temperature,
    )
    return adjusted.to(device).eval(), chosen


def _best(out: Path, history: Sequence[Mapping[str, Any]], headline: Headline) -> Best | None:
    """The best epoch of the last stage by validation, of the weights that were saved."""
    if not history:
        return None
    metric = f"val/{headline['name']}"
    if (chosen := history[-1].get("best")) and history[-1]["keep"].endswith(metric):
        return {"epoch": chosen["epoch"], "value": chosen["value"]}
    kept = history[-1]["keep"].partition(", ")[2]
    metric = f"{kept}/{metric}" if kept else metric
    journal = RunFolder(out).stage(history[-1]["name"]).journal
    lines = [line for line in (read_journal(journal) if journal.exists() else []) if metric in line]
    sign = 1 if headline["higher_is_better"] else -1
    best = max(lines, key=lambda line: (sign * line[metric], -line["epoch"]), default=None)
    return None if best is None else {"epoch": best["epoch"], "value": best[metric]}
