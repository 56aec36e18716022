"""`longtail train auto`: look at the data and the machine, choose a recipe and its keywords, say
why, and train that.
"""

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

from longtail.cli import flags, tables
from longtail.errors import LongtailError
from longtail.experiments.jobs import default_folder
from longtail.recipes.auto import Choice, Facts, choose
from longtail.recipes.signatures import read
from longtail.records.layout import RunFolder

if TYPE_CHECKING:
    from longtail.data.dataset import Dataset
    from longtail.engine.machine import Machine
    from longtail.records.row import Row
    from longtail.runs.identity import Adjust, RunConfig

FETCHING = 0.1  # of the time may go into fetching weights

PRETRAINED = {"cpu": ("resnet18.a1_in1k",), "gpu": ("resnet50.a1_in1k", "resnet18.a1_in1k")}
"""The timm models whose weights are looked for, the preferred one first."""


def perform(**values: Any) -> None:
    """Look at data, choose a recipe and its keywords for the time there is, say why, and train
    that.

    Prints and stores the whole `longtail train ...` line that it chose, which alone gives the same
    run; the same command again continues with the stored line. `--dry-run` only chooses."""
    from longtail.engine.machine import choose as choose_machine
    from longtail.records.documents import read_document, write_document
    from longtail.records.kinds import CHOICE, read_recipe
    from longtail.runs import train
    from longtail.runs.identity import check_outside

    began, minutes = time.monotonic(), values["minutes"]
    if not minutes > 0:
        raise LongtailError(
            f"expected some minutes, got {minutes:g}: pass --minutes 45, for instance"
        )
    if int(os.environ.get("WORLD_SIZE", "1")) > 1:
        raise LongtailError(
            "expected one process to choose, got several: choose with --dry-run in one, then train"
            " the line that it prints"
        )
    shared = {name: values[name] for name in flags.SHARED}
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
        tables.say(f"{out} continues with what was chosen for it.")
        before = stored.get("requested_minutes", minutes)
        if minutes != before or wish not in (stored["adjust"], flags.AUTO["adjust"].default):
            tables.warn(
                f"it was chosen for {before:g} minutes and --adjust {stored['adjust']}: for others,"
                " choose another --out"
            )
        tables.say(stored["command"])
    else:
        if files.recipe.exists():
            raise LongtailError(
                f"expected an empty folder or a run of auto at {out}, got another run: choose"
                f" another --out, or continue it with {read_recipe(out)['command']}"
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
        choice, facts, asked = _chosen(
            data, shared, machine, wish, seconds=60 * minutes, began=began
        )
        command = asked.command(out)
        tables.say(f"\n{choice.reason}")
        needed = f"{choice.minutes:.{0 if choice.minutes >= 10 else 1}f}"
        tables.say(
            f"{choice.keywords['epochs']} epochs, about {needed} of {minutes:g} minutes. The same"
            " without choosing:\n"
        )
        tables.say(f"{command}\n")
        if choice.minutes > minutes:
            tables.warn(
                f"even a single epoch takes longer than {minutes:g} minutes: give it more, or fewer"
                " images"
            )
        if shared["dry_run"]:
            tables.say("Dry run: nothing was written.")
            tables.next_step("the same command without --dry-run", command)
            return
        found = {
            "command": command,
            **asdict(choice),
            "requested_minutes": minutes,
            "facts": asdict(facts),
        }
        out.mkdir(parents=True, exist_ok=True)
        write_document(files.choice, found)
    result = train(choice.recipe, data, out, **shared, adjust=choice.adjust, **choice.keywords)
    if result.row is None:
        tables.next_step("the same command without --dry-run")
        return
    if not result.fresh:
        tables.say(f"{result.folder} was finished before; this is its row.")
    tables.row(result.row)
    for line in verdict(result.folder, result.row):
        tables.say(line)
    tables.say(f"run: {result.folder}")
    if (report := RunFolder(result.folder).report).exists():
        tables.say(f"report: {report}")
    tables.next_step(f"longtail predict {quote(str(result.folder))} PATH_OF_IMAGES")


def _chosen(
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
    # Training will open it once more, and say its warnings.
    dataset = (
        open_dataset(request, device=machine.device)
        if shared["dry_run"]
        else open_data(data, **request.flags())
    )
    if dataset.has_vectors:
        raise LongtailError(
            f"auto chooses among networks for images, and {dataset.name} has feature vectors: "
            f"train a head with `longtail train balanced_softmax --data {data} --network vectors`"
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
        pretrained=at_hand(machine.device, dataset.size, seconds=FETCHING * seconds),
    )

    def asked(recipe: str, keywords: Mapping[str, Any], adjust: Adjust = "none") -> RunConfig:
        own = read(recipe)
        view_seed = shared["seed"] if shared["view_seed"] is None else shared["view_seed"]
        return RunConfig(
            own, own.keywords(keywords), request, shared["seed"], view_seed, shared["tta"], adjust
        )

    def cost(recipe: str, keywords: Mapping[str, Any]) -> float:
        tables.say(f"timing {keywords.get('network', 'fast_cnn')} at {keywords['size']} pixels ...")
        return timed(asked(recipe, {**keywords, "epochs": 1000}), dataset, machine)

    # Training opens the data once more, at the size that is chosen here.
    choice = choose(facts, cost, seconds=seconds - (time.monotonic() - began) - opening)
    if wish == "none":
        choice = replace(choice, adjust="none")
    spent = (time.monotonic() - began + opening) / 60
    choice = replace(choice, minutes=round(choice.minutes + spent, 1))
    return choice, facts, asked(choice.recipe, choice.keywords, choice.adjust)


def at_hand(device: str, side: int, *, seconds: float) -> tuple[str, ...]:
    """The pretrained timm models whose weights are on this machine or can be fetched to it now;
    none for tiny images.
    """
    from longtail.nn import pretrained

    names = PRETRAINED["cpu" if device == "cpu" else "gpu"]
    if side < 32:
        return ()
    found = tuple(name for name in names if pretrained.cached(name))
    if found:
        return found
    tables.say("looking for pretrained weights ...")
    return names[:1] if pretrained.fetched(names[0], seconds=min(120.0, seconds)) else ()


def timed(asked: RunConfig, dataset: Dataset, machine: Machine) -> float:
    """The seconds it takes to learn from one image once: a few steps on some of the images, at the
    size that is asked for.
    """
    from longtail.engine.run import Run
    from longtail.runs.training import call_recipe

    few = sample(dataset, size=asked.keywords["size"], images=4 * asked.keywords["batch"])
    with tempfile.TemporaryDirectory() as folder, contextlib.redirect_stderr(io.StringIO()):
        run = Run(
            Path(folder),
            seed=asked.seed,
            view_seed=asked.view_seed,
            machine=machine,
            dry="estimate",
        )
        call_recipe(asked, few, run)
    epochs: int = asked.keywords["epochs"]
    return 60 * float(run.history[-1]["minutes"]) / (epochs * len(few.train))


def sample(dataset: Dataset, *, size: int, images: int) -> Dataset:
    """Some training images of a dataset and nothing else; at another size if they are in memory,
    else as they are read.
    """
    import numpy as np

    from longtail.data.images.stores import ArrayImages, SquareImages

    rows = np.linspace(0, len(dataset.train) - 1, min(images, len(dataset.train))).astype(np.int64)
    train = dataset.train.take(rows)
    if dataset.size != size and train.inputs.in_memory(dataset.size) is not None:
        resized = SquareImages(train.inputs, size, "stretch")
        train = replace(train, inputs=ArrayImages.decoded(resized, size))
    nothing = train.take(np.arange(0))
    return replace(dataset, train=train, val=nothing, test=nothing, size=size)


def verdict(folder: Path, row: Row) -> list[str]:
    """What was achieved, with 95% intervals over test images: all classes alike, the rarest third
    of them, and the worst ones.
    """
    import numpy as np

    from longtail.metrics.intervals import balanced, wilson
    from longtail.records.documents import read_document
    from longtail.records.kinds import MODEL
    from longtail.records.predictions import read_predictions

    if row["test"] is None:
        return ["There are no test images, so nothing is known about its accuracy."]
    predictions, _ = read_predictions(RunFolder(folder).predictions("test"))
    target = predictions.target
    right = (predictions.logits["logits"].argmax(1) == target).astype(np.float64)
    counts = np.array(row["data"]["counts_after"])
    images = np.bincount(target, minlength=len(counts))

    def said(rows: Any) -> str:
        found = balanced(right[rows], target[rows])
        return f"{found.value:.1%} [{found.low:.1%}, {found.high:.1%}]"

    order = np.argsort(counts, kind="stable")
    rare = order[: max(1, len(order) // 3)]
    tested = np.isin(target, rare)
    lines = [
        f"balanced accuracy {said(np.ones(len(target), dtype=bool))}: the mean over classes; over"
        f" images it is {right.mean():.1%}"
    ]
    if tested.any():
        known = len(np.unique(target[tested]))
        lines.append(
            f"rarest third {said(tested)}: {known} tested classes with at most"
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
        (own for own in order.tolist() if images[own]),
        key=lambda own: (hits[own] / images[own], counts[own]),
    )[:5]
    each = (
        f"{names[own]} {hits[own]} of {images[own]} [{low[own]:.0%}, {high[own]:.0%}]"
        for own in worst
    )
    return [*lines, f"worst classes: {'; '.join(each)}"]
