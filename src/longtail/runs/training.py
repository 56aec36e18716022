"""One run: open the data, check whose folder it is, follow the recipe, evaluate once, write the row last."""

from __future__ import annotations

import importlib
import json
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal

from longtail import processes
from longtail.core import Method
from longtail.data.dataset import Dataset
from longtail.engine.distributed import started
from longtail.engine.machine import Machine, choose
from longtail.engine.run import Run
from longtail.metrics.files import write_predictions
from longtail.metrics.row import FORMAT, Best, Row, Summary
from longtail.recipes.signatures import read
from longtail.report.rows import read_row
from longtail.runs.evaluating import answers, opened, summary
from longtail.runs.files import write_json, write_text
from longtail.runs.identity import Asked, Tta, begun, check_identity, hardware, versions
from longtail.runs.model import size_of, spec_of, write_model


@dataclass(frozen=True)
class Result:
    """A run's folder, and its row; after a dry run there is none."""

    folder: Path
    row: Row | None
    fresh: bool = True  # False: it was finished before, and nothing was computed


def train(
    recipe: str,
    data: str | Path,
    out: str | Path,
    *,
    root: str | Path | None = None,
    imbalance: float | None = None,
    profile: Literal["exp", "step", "pareto"] = "exp",
    protocol: Literal["holdout", "paper"] = "holdout",
    split_seed: int = 0,
    on_bad_image: Literal["refuse", "skip"] = "refuse",
    seed: int = 0,
    view_seed: int | None = None,
    tta: Tta = "none",
    device: str = "auto",
    precision: Literal["auto", "fp32", "bf16"] = "auto",
    threads: int | None = None,
    workers: int = 0,
    save_every: float = 10.0,
    compile: bool = False,
    sync_batchnorm: bool = False,
    tensorboard: bool = False,
    dry_run: bool = False,
    **keywords: Any,
) -> Result:
    """Train a recipe on data into the folder `out`, evaluate it, and give its row.

    The same call again resumes, or finds the run finished; a call that means another run is refused and told the difference. The
    data, the recipe with its keywords, the seeds and `tta` say which run it is; the machine (device, precision, threads, workers,
    compile) may change. `longtail train` is this function; `keywords` are the recipe's own.
    """
    known, out = read(recipe), Path(out)
    asked = Asked(
        recipe=known,
        keywords=known.keywords(keywords),
        data=str(data),
        flags={
            "root": None if root is None else str(root),
            "imbalance": imbalance,
            "profile": profile,
            "protocol": protocol,
            "split_seed": split_seed,
            "on_bad_image": on_bad_image,
        },
        seed=seed,
        view_seed=seed if view_seed is None else view_seed,
        tta=tta,
    )
    machine = choose(device=device, precision=precision, threads=threads, workers=workers, compile=compile, sync_batchnorm=sync_batchnorm)
    with started(machine):
        # Images are kept at the size that the recipe will ask for, where it says so: resizing twice loses detail.
        dataset = opened(asked.data, asked.flags, machine, size=asked.keywords.get("size"))
        if tta == "flip" and not dataset.mirror and processes.rank() == 0:
            print(f"warning: --tta flip mirrors images, and mirrored images of {dataset.name} are not of their class", file=sys.stderr)
        if dry_run:
            with tempfile.TemporaryDirectory() as folder:
                follow(asked, dataset, Run(Path(folder), seed=seed, view_seed=asked.view_seed, machine=machine, dry=True))
            return Result(out, None)
        record, first = asked.record(dataset, machine, out), processes.rank() == 0
        check_identity(out, record)
        if (out / "row.json").exists():
            return Result(out, read_row(out), fresh=False)
        if first and not begun(out):
            write_text(out / "recipe.py", known.module_source)
            write_json(out / "recipe.json", record)
        run = Run(
            out,
            seed=seed,
            view_seed=asked.view_seed,
            machine=machine,
            save_minutes=save_every,
            tensorboard=tensorboard,
            command=asked.command(out),
        )
        if first:
            _note_session(out, machine)
        row = _conclude(asked, dataset, machine, follow(asked, dataset, run), run)
        if first:
            write_json(out / "row.json", row)
        return Result(out, row | {"folder": str(out)})


def follow(asked: Asked, dataset: Dataset, run: Run) -> Method[Any]:
    """Call the recipe."""
    module, _, function = asked.recipe.target.partition(":")
    keywords = {
        name: _as_path(value) if asked.recipe.parameters[name].scalar == "Path" else value for name, value in asked.keywords.items()
    }
    method = getattr(importlib.import_module(module), function)(run, dataset, **keywords)
    if not isinstance(method, Method):
        raise ValueError(
            f"expected {asked.recipe.name} to return its trained method, got {type(method).__name__}: return what `run.fit` gave"
        )
    return method


def _as_path(value: Any) -> Any:
    return None if value is None else [Path(item) for item in value] if isinstance(value, list) else Path(value)


def _note_session(out: Path, machine: Machine) -> None:
    """Add to sessions.jsonl when and on what this run was worked on: machines may change when it is resumed."""
    line = {"time": datetime.now(UTC).isoformat(timespec="seconds"), "hardware": hardware(machine), "versions": versions()}
    with (out / "sessions.jsonl").open("a", encoding="utf-8") as file:
        file.write(json.dumps(line) + "\n")


def _conclude(asked: Asked, dataset: Dataset, machine: Machine, method: Method[Any], run: Run) -> Row:
    """Evaluate, write predictions and model, and sum up. The test images are looked at here and nowhere else."""
    first, network = processes.rank() == 0, method.eval().deploy()
    out, history = run.folder, run.history
    size = size_of(spec_of(network))
    summaries: dict[str, Summary | None] = {"val": None, "test": None}
    for name, split in (("val", dataset.val), ("test", dataset.test)):
        if len(split):
            found = answers(method, split, size=size, tta=asked.tta, machine=machine)
            summaries[name] = summary(found, classes=len(dataset.classes), groups=dataset.groups)
            if first:
                write_predictions(out / "predictions" / f"{name}.npz", found, split.ids)
    row: Row = {
        "format": FORMAT,
        "recipe": asked.recipe.name,
        "keywords": dict(asked.keywords),
        "data": {
            "name": dataset.name,
            "hash": dataset.hash,
            "protocol": dataset.protocol,
            "imbalance": asked.flags["imbalance"],
            "classes": len(dataset.classes),
            "train_images": len(dataset.train),
            "counts_before": dataset.source_counts.tolist(),
            "counts_after": dataset.counts.tolist(),
            "marks": list(dataset.marks),
        },
        "seed": asked.seed,
        "view_seed": asked.view_seed,
        "split_seed": asked.flags["split_seed"],
        "selection": history[-1]["keep"] if history else "not trained",
        "tta": asked.tta,
        "size": size,
        "pretraining": run.pretraining,
        "parameters": sum(own.numel() for own in network.parameters()),
        "epochs": {stage["name"]: stage["epochs"] for stage in history},
        "minutes": sum(stage["minutes"] for stage in history),
        "test": summaries["test"],
        "val": summaries["val"],
        "best_validation": _best(out, history),
        "versions": versions(),
        "hardware": hardware(machine),
    }
    if first:
        write_model(out / "model", network, dataset, row)
    return row


def _best(out: Path, history: Sequence[Mapping[str, Any]]) -> Best | None:
    """The best epoch of the last stage by validation, of the weights that were kept: the average, where one was."""
    if not history:
        return None
    kept = history[-1]["keep"].partition(", ")[2]
    metric = f"{kept}/val/balanced" if kept else "val/balanced"
    journal = out / history[-1]["name"] / "journal.jsonl"
    lines = [json.loads(line) for line in journal.read_text(encoding="utf-8").splitlines()] if journal.exists() else []
    judged = [(line[metric], -line["epoch"]) for line in lines if metric in line]
    return {"epoch": -max(judged)[1], "balanced": max(judged)[0]} if judged else None
