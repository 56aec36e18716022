"""Evaluate a trained method once, and write what a finished run consists of."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import torch

from longtail import processes
from longtail.analysis.writing import warn_on_error
from longtail.core import Method
from longtail.data.dataset import Dataset
from longtail.engine.machine import Machine
from longtail.engine.run import Run
from longtail.nn import Adjusted, Classifier
from longtail.nn.networks import size_of
from longtail.posthoc import Adjustment, adjustment
from longtail.records.documents import FORMAT
from longtail.records.files import read_journal
from longtail.records.layout import RunFolder
from longtail.records.predictions import SplitPredictions, write_predictions
from longtail.records.row import Adjustment as AdjustmentRecord
from longtail.records.row import Best, Row
from longtail.records.scores import Headline
from longtail.runs.evaluating import calibrated, confidence_of, write_sets
from longtail.runs.examples import write_examples
from longtail.runs.identity import RunConfig, hardware, versions
from longtail.runs.inference import predict_splits
from longtail.runs.model import deployed, write_model
from longtail.runs.operating_point import (
    bias_of,
    choose_bias,
    map_logits,
    shift_predictions,
    with_bias,
)
from longtail.scoring.scorer import headline_of, scorer_for, summarise_splits, task_scorer


def evaluate_and_save(
    config: RunConfig, dataset: Dataset, machine: Machine, method: Method[Any], run: Run
) -> Row:
    """Evaluate, write predictions and model, and make the row. Only here are test images used.

    Args:
        config: What was requested.
        dataset: The data of the run.
        machine: Where to predict.
        method: The trained method.
        run: Where it was trained.
    """
    first, network = processes.rank() == 0, deployed(method, dataset)
    out, history = run.folder, run.history
    size = size_of(network.spec)
    results = predict_splits(method, dataset.evaluated, size=size, tta=config.tta, machine=machine)
    scorer, counts = scorer_for(dataset), dataset.counts.numpy()
    summaries_of = partial(
        summarise_splits, scorer=scorer, groups=dataset.groups, counts=counts, detail=False
    )
    adjustment_record: AdjustmentRecord | None = None
    if config.adjust == "validation":
        before = summaries_of(results[config.tta], confidence=confidence_of(network))
        network, chosen = _adjusted(network, results["none"]["val"], dataset)
        results = {tta: map_logits(part, chosen) for tta, part in results.items()}
        adjustment_record = {
            "tau": chosen.tau,
            "temperature": chosen.temperature,
            "val": before["val"],
            "test": before["test"],
        }
    point = choose_bias(task_scorer(dataset), network, results["none"])
    if point is not None and point["bias"]:
        seen = counts > 0
        already = bias_of(network, seen)
        before = summaries_of(
            shift_predictions(results[config.tta], seen, -already),
            confidence=confidence_of(network),
        )
        point |= {"val": before["val"], "test": before["test"]}
        network = with_bias(network, seen, point["bias"])
        results = {
            tta: shift_predictions(part, seen, point["bias"] - already)
            for tta, part in results.items()
        }
    # What `predict` does is without test-time averaging: that is calibrated
    predictions, once = results[config.tta], results["none"]
    thresholds, confidence = calibrated(once, groups=dataset.groups), confidence_of(network)
    summaries = summaries_of(
        predictions, once=once, confidence=confidence, thresholds=thresholds, detail=True
    )
    if first:
        for name, result in predictions.items():
            write_predictions(run.files.predictions(name), result, dataset.evaluated[name].ids)
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
