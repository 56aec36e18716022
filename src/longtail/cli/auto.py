"""`longtail train auto`: choose a recipe for the data and the machine, and train it."""

from __future__ import annotations

import contextlib
import io
import os
import tempfile
import time
from collections.abc import Mapping
from dataclasses import asdict, replace
from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING, Any

from longtail.cli import flags, results, tables
from longtail.errors import LongtailError
from longtail.recipes.auto import TIME_SHARE, Choice, Facts, choose
from longtail.recipes.signatures import read
from longtail.records.layout import RunFolder

if TYPE_CHECKING:
    from longtail.data.dataset import Dataset
    from longtail.engine.machine import Machine
    from longtail.records.row import Row
    from longtail.runs.identity import Adjust, RunConfig

DOWNLOAD_SHARE = 0.1  # of the time budget may be spent on downloading weights

PRETRAINED = {"cpu": ("resnet18.a1_in1k",), "gpu": ("resnet50.a1_in1k", "resnet18.a1_in1k")}
"""The timm models whose weights are tried, in order of preference."""


def perform(**values: Any) -> None:
    """Choose a recipe and its keywords for the data, the machine and the time, explain why, train.

    Prints and stores the complete `longtail train ...` command that it chose, which reproduces the
    run. Running auto again resumes the stored command. `--dry-run` only chooses.
    """
    from longtail.engine.machine import choose as choose_machine
    from longtail.experiments.jobs import default_folder
    from longtail.records.documents import read_document, write_document
    from longtail.records.kinds import CHOICE, read_recipe
    from longtail.runs import train
    from longtail.runs.identity import check_outside

    began, minutes = time.monotonic(), values["minutes"]
    if not minutes > 0:
        raise LongtailError(
            f"--minutes must be positive, got {minutes:g}: pass --minutes 45, for instance"
        )
    if int(os.environ.get("WORLD_SIZE", "1")) > 1:
        raise LongtailError(
            "auto runs in one process, but WORLD_SIZE is larger than 1: run it with --dry-run in"
            " one"
            " process, then start the printed command with torchrun"
        )
    shared = {name: values[name] for name in flags.SHARED}
    del shared["minutes"]
    if shared.pop("epoch_plan"):
        raise LongtailError("auto plans the epochs itself: leave --epoch-plan out")
    data, out, wish = shared.pop("data"), shared.pop("out"), shared.pop("adjust")
    out = out or default_folder("auto", data, shared["seed"])
    check_outside(out, data)
    files = RunFolder(out)
    if files.choice.exists():
        stored = read_document(files.choice, CHOICE)
        choice = Choice(
            stored["recipe"],
            stored["keywords"],
            stored["adjust"],
            stored["reason"],
            stored["minutes"],
        )
        tables.say(f"{out} resumes with the settings chosen before.")
        before = stored.get("requested_minutes", minutes)
        if minutes != before or wish not in (stored["adjust"], flags.AUTO["adjust"].default):
            tables.warn(
                f"these were chosen for {before:g} minutes and --adjust {stored['adjust']}: for"
                " other"
                " values, pass another --out"
            )
        tables.say(stored["command"])
        training_minutes = stored.get("training_minutes")
    else:
        if files.recipe.exists():
            raise LongtailError(
                f"{out} contains a run that auto did not start: pass another --out, or resume it"
                f" with {read_recipe(out)['command']}"
            )
        machine = choose_machine(
            **{
                name: shared[name]
                for name in (
                    "device",
                    "precision",
                    "threads",
                    "workers",
                    "compile",
                    "sync_batchnorm",
                )
            }
        )
        choice, facts, config = _choose(
            data, shared, machine, wish, seconds=60 * minutes, began=began
        )
        command = config.command(out)
        tables.say(f"\n{choice.reason}")
        needed = f"{choice.minutes:.{0 if choice.minutes >= 10 else 1}f}"
        tables.say(
            f"{choice.keywords['epochs']} epochs, about {needed} of {minutes:g} minutes."
            " The equivalent command:\n"
        )
        tables.say(f"{command}\n")
        if choice.minutes > minutes:
            tables.warn(
                f"a single epoch takes longer than {minutes:g} minutes: increase --minutes, or use"
                " fewer images"
            )
        if shared["dry_run"]:
            tables.say("Dry run: nothing was written.")
            tables.next_step("the same command without --dry-run", command)
            return
        spent = (time.monotonic() - began) / 60
        # Before training the data is opened again, after it the network is evaluated
        training_minutes = max(TIME_SHARE * (minutes - spent) - spent / 2, 0.01)
        document = {
            "command": command,
            **asdict(choice),
            "requested_minutes": minutes,
            "training_minutes": training_minutes,
            "facts": asdict(facts),
        }
        out.mkdir(parents=True, exist_ok=True)
        write_document(files.choice, document)
    result = train(
        choice.recipe,
        data,
        out,
        **shared,
        adjust=choice.adjust,
        minutes=training_minutes,
        **choice.keywords,
    )
    if result.row is None:
        tables.next_step("the same command without --dry-run")
        return
    if not result.fresh:
        tables.say(f"{result.folder} was finished before; its results:")
    if plan := result.row.get("epoch_plan"):
        document = read_document(files.choice, CHOICE)
        if "--epoch-plan" not in document["command"]:
            command = f"{document['command']} --epoch-plan {plan}"
            write_document(files.choice, {**document, "command": command})
        tables.say(
            f"Training had time for {sum(result.row['epochs'].values())} of"
            f" {choice.keywords['epochs']} epochs. The equivalent command now ends with"
            f" --epoch-plan {plan}"
        )
    if result.fresh:
        taken = (time.monotonic() - began) / 60
        tables.say(f"This took {taken:.{0 if taken >= 10 else 1}f} of {minutes:g} minutes.")
    results.row(result.row)
    for line in verdict(result.folder, result.row):
        tables.say(line)
    tables.say(f"run: {result.folder}")
    if (report := RunFolder(result.folder).report).exists():
        tables.say(f"report: {report}")
    tables.next_step(f"longtail predict {quote(str(result.folder))} PATH_OF_IMAGES")


def _choose(
    data: str,
    shared: Mapping[str, Any],
    machine: Machine,
    wish: str,
    *,
    seconds: float,
    began: float,
) -> tuple[Choice, Facts, RunConfig]:
    from longtail.data.open import open_data, open_dataset
    from longtail.data.request import DataRequest
    from longtail.runs.identity import RunConfig

    request = DataRequest.from_flags(data, shared)
    before = time.monotonic()
    # Training opens the data again and prints its warnings.
    dataset = (
        open_dataset(request, device=machine.device)
        if shared["dry_run"]
        else open_data(data, **request.flags())
    )
    if not bool((dataset.counts > 0).all()):
        pairs = {"attribute", "object"} <= {*dataset.class_attributes}
        recipes = "compcos, cge or attribute_object" if pairs else "eszsl, or ce_gzsl"
        kind = "pairs of attribute and object" if pairs else "classes"
        command = f"longtail train {recipes.partition(',')[0]} --data {data}"
        if not pairs and not dataset.has_vectors:
            recipes += ", on features of the images"
            command = f"longtail embed {data} --network NETWORK --out features.npz"
        raise LongtailError(
            f"auto chooses among recipes for classes with training images, but {dataset.name} has"
            f" {kind} without any: train {recipes}. Start with `{command}`"
        )
    if dataset.unlabelled is not None:
        raise LongtailError(
            "auto does not adapt to another domain: use `longtail train mdd`, or --protocol holdout"
        )
    if dataset.has_vectors:
        raise LongtailError(
            f"auto chooses networks for images, but {dataset.name} has feature vectors: "
            f"train a head with `longtail train balanced_softmax --data {data} --network vectors`"
        )
    if dataset.test_domain is not None:
        raise LongtailError(
            "auto chooses for long tails, but this data has a test domain: compare recipes of"
            f" domain generalisation with `longtail sweep erm,vrex,swad --data {data}"
            " --set test_domain=all`"
        )
    opening = time.monotonic() - before
    facts = Facts(
        images=len(dataset.train),
        classes=len(dataset.classes),
        largest=int(dataset.counts.max()),
        smallest=int(dataset.counts.min()),
        validation=len(dataset.val),
        test=len(dataset.test),
        side=dataset.size,
        device=machine.device.partition(":")[0],
        threads=machine.threads,
        pretrained=at_hand(machine.device, dataset.size, seconds=DOWNLOAD_SHARE * seconds),
    )

    def configure(name: str, keywords: Mapping[str, Any], adjust: Adjust = "none") -> RunConfig:
        recipe = read(name)
        view_seed = shared["seed"] if shared["view_seed"] is None else shared["view_seed"]
        return RunConfig(
            recipe,
            recipe.keywords(keywords),
            request,
            shared["seed"],
            view_seed,
            shared["tta"],
            adjust,
        )

    def cost(recipe: str, keywords: Mapping[str, Any]) -> float:
        tables.say(f"timing {keywords.get('network', 'fast_cnn')} at {keywords['size']} pixels ...")
        return timed(configure(recipe, {**keywords, "epochs": 1000}), dataset, machine)

    # Training opens the data again, at the size chosen here: count that time too.
    choice = choose(facts, cost, seconds=seconds - (time.monotonic() - began) - opening)
    if wish == "none":
        choice = replace(choice, adjust="none")
    spent = (time.monotonic() - began + opening) / 60
    choice = replace(choice, minutes=round(choice.minutes + spent, 1))
    return choice, facts, configure(choice.recipe, choice.keywords, choice.adjust)


def at_hand(device: str, side: int, *, seconds: float) -> tuple[str, ...]:
    """The pretrained timm models whose weights are cached or can be downloaded now.

    None for images smaller than 32 pixels.
    """
    from longtail.nn import pretrained

    names = PRETRAINED["cpu" if device == "cpu" else "gpu"]
    if side < 32:
        return ()
    if cached := tuple(name for name in names if pretrained.cached(name)):
        return cached
    tables.say("checking for pretrained weights ...")
    return names[:1] if pretrained.fetched(names[0], seconds=min(120.0, seconds)) else ()


def timed(config: RunConfig, dataset: Dataset, machine: Machine) -> float:
    """The training time per image and epoch in seconds, measured over a few steps."""
    from longtail.engine.run import Run
    from longtail.runs.training import call_recipe

    few = sample(dataset, size=config.keywords["size"], images=4 * config.keywords["batch"])
    with tempfile.TemporaryDirectory() as folder, contextlib.redirect_stderr(io.StringIO()):
        run = Run(
            Path(folder),
            seed=config.seed,
            view_seed=config.view_seed,
            machine=machine,
            dry="estimate",
        )
        call_recipe(config, few, run)
    epochs: int = config.keywords["epochs"]
    return 60 * float(run.history[-1]["minutes"]) / (epochs * len(few.train))


def sample(dataset: Dataset, *, size: int, images: int) -> Dataset:
    """A subset of the training images without validation and test images.

    Images in memory are resized to `size`; others are resized when they are read.
    """
    import numpy as np

    from longtail.data.images.stores import ArrayImages, SquareImages

    rows = np.linspace(0, len(dataset.train) - 1, min(images, len(dataset.train))).astype(np.int64)
    train = dataset.train.take(rows)
    if dataset.size != size and train.inputs.in_memory(dataset.size) is not None:
        resized = SquareImages(train.inputs, size, "stretch")
        train = replace(train, inputs=ArrayImages.decoded(resized, size))
    empty = train.take(np.arange(0))
    return replace(dataset, train=train, val=empty, test=empty, size=size)


def verdict(folder: Path, row: Row) -> list[str]:
    """The test accuracy with 95% intervals: all classes, the rarest third, and the worst ones."""
    import numpy as np

    from longtail.metrics.intervals import balanced, wilson
    from longtail.records.documents import read_document
    from longtail.records.kinds import MODEL
    from longtail.records.predictions import read_predictions

    if row["test"] is None:
        return ["The accuracy is unknown: there are no test images."]
    predictions, _ = read_predictions(RunFolder(folder).predictions("test"))
    target = predictions.target
    right = (predictions.logits["logits"].argmax(1) == target).astype(np.float64)
    counts = np.array(row["data"]["counts_after"])
    images = np.bincount(target, minlength=len(counts))

    def with_interval(rows: Any) -> str:
        result = balanced(right[rows], target[rows])
        return f"{result.value:.1%} [{result.low:.1%}, {result.high:.1%}]"

    order = np.argsort(counts, kind="stable")
    rare = order[: max(1, len(order) // 3)]
    tested = np.isin(target, rare)
    lines = [
        f"balanced accuracy {with_interval(np.ones(len(target), dtype=bool))}: the mean over"
        f" classes; over images it is {right.mean():.1%}"
    ]
    if tested.any():
        known = len(np.unique(target[tested]))
        lines.append(
            f"rarest third {with_interval(tested)}: {known} tested classes with at most"
            f" {counts[rare].max():,} training images each"
        )
    if "adjustment" in row and row["adjustment"]["test"] is not None:
        before = row["adjustment"]["test"]
        lines.append(
            f"adjusted on validation: tau {row['adjustment']['tau']:g}, temperature"
            f" {row['adjustment']['temperature']:.2f}; without: balanced {before['balanced']:.1%},"
            f" ECE {before['ece']:.3f} instead of {row['test']['ece']:.3f}"
        )
    names = read_document(RunFolder(folder).model.spec, MODEL)["classes"]
    hits = np.bincount(target, weights=right, minlength=len(counts)).astype(np.int64)
    low, high = wilson(hits, images)
    worst = sorted(
        (label for label in order.tolist() if images[label]),
        key=lambda label: (hits[label] / images[label], counts[label]),
    )[:5]
    texts = (
        f"{names[label]} {hits[label]} of {images[label]} [{low[label]:.0%}, {high[label]:.0%}]"
        for label in worst
    )
    return [*lines, f"worst classes: {'; '.join(texts)}"]
