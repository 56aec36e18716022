"""Evaluate a finished run again: on its data, or on other data with the same classes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Literal, cast

import numpy as np
import torch
from torch import Tensor, nn

from longtail import processes
from longtail.analysis.writing import warn_on_error
from longtail.core import Scorer
from longtail.data.dataset import Dataset
from longtail.data.open import first_process_first, open_for_evaluation
from longtail.data.request import DataRequest
from longtail.engine.machine import choose
from longtail.errors import LongtailError, warn
from longtail.metrics.conformal import Thresholds, calibrate
from longtail.naming import unknown
from longtail.nn import Classifier
from longtail.records.documents import write_document
from longtail.records.groups import Groups
from longtail.records.kinds import read_recipe
from longtail.records.layout import ModelFolder, RunFolder
from longtail.records.predictions import SplitPredictions, write_predictions
from longtail.records.row import Evaluation
from longtail.report.page import write as write_report
from longtail.runs.examples import write_examples
from longtail.runs.identity import Tta, open_run_data, versions
from longtail.runs.inference import predict_splits
from longtail.runs.model import load
from longtail.scoring.long_tail import LongTailScorer
from longtail.scoring.scorer import headline_of, scorer_for, summarise_splits


def warn_of_mirroring(tta: Tta, name: str, *, mirror: bool) -> None:
    """Warn where test-time averaging mirrors images that change their class when mirrored."""
    if tta == "flip" and not mirror and processes.rank() == 0:
        warn(f"--tta flip mirrors images, and mirrored images of {name} are not of their class")


def confidence_of(network: nn.Module) -> str:
    """How logits become confidence: by softmax, or by sigmoid after a binary loss."""
    return network.confidence if isinstance(network, Classifier) else "softmax"


def calibrated(predictions: Mapping[str, SplitPredictions], *, groups: Groups) -> Thresholds | None:
    """The thresholds of prediction sets by the predictions for "val"; None without those."""
    if "val" not in predictions:
        return None
    val = predictions["val"]
    return calibrate(val.logits["logits"], val.target, groups=groups)


def write_sets(folder: Path, thresholds: Thresholds | None) -> None:
    """Write the thresholds of prediction sets beside the model, for `longtail predict`."""
    path = ModelFolder(folder).thresholds
    if thresholds is None:
        path.unlink(missing_ok=True)
    else:
        write_document(path, thresholds.to_json())


def evaluate(
    run: str | Path,
    *,
    data: str | Path | None = None,
    root: str | Path | None = None,
    tta: Tta | None = None,
    device: str = "auto",
    threads: int | None = None,
    workers: int = 0,
    rewrite: bool = False,
    on_bad_image: Literal["refuse", "skip"] = "refuse",
    scoring: str | None = None,
    trust: bool = False,
) -> Evaluation:
    """Evaluate a finished run's saved network again: on its data, or on other data.

    Other data must have classes that the network knows. Its test images are evaluated, and its
    validation images where it comes with some; all images, where it has no test images. Where it
    turns out to be the data of the run in another place, the run's held-out images are evaluated.

    The scores are written to `eval-DATA-TTA.json` in the run folder, for other data with a part of
    its hash in the name.

    Args:
        run: The folder of a finished run.
        data: The name or the path of other data.
        root: Where the run's images are now, if they were moved; or the root of `data`.
        tta: Test-time averaging; as the run was evaluated, unless given.
        device: Where to compute.
        threads: Threads that compute; all, unless given.
        workers: Processes that decode images.
        rewrite: Also write scores and predictions into the run's row. This needs the data and
            the test-time averaging of the run.
        on_bad_image: What to do about images of other data that cannot be read.
        scoring: The score that ranks; that of the run or of the other data, unless given.
        trust: Whether to run code outside longtail that the run names.
    """
    folder, files = Path(run), RunFolder(Path(run))
    loaded, record = load(folder, device=device, trust=trust), read_recipe(folder)
    machine = choose(device=device, precision="fp32", threads=threads, workers=workers)
    machine.configure()
    tta = record["tta"] if tta is None else tta
    if rewrite and (data is not None or tta != record["tta"] or scoring is not None):
        raise LongtailError(
            f"--rewrite needs the data, the scoring and the tta ({record['tta']}) of the run: "
            "remove --data, --scoring and --tta"
        )
    if data is None:
        dataset = open_run_data(record, machine, root=root, trust=trust)
    else:
        before = DataRequest.from_flags(record["data"]["source"], record["data"])
        request = DataRequest.from_flags(
            data,
            {"root": root, "on_bad_image": on_bad_image, "geometry": loaded.preprocessing.geometry},
        )

        def evaluation_data() -> Dataset:
            return open_for_evaluation(
                request,
                size=loaded.preprocessing.stored,
                crop=loaded.preprocessing.crop,
                learnt=(record["data"]["hash"], before.protocol, before.split_seed),
            )

        dataset = first_process_first(evaluation_data, machine.device)
    if data is None and dataset.hash != record["data"]["hash"]:
        raise LongtailError(
            f"expected the data of the run ({record['data']['hash'][:12]}), "
            f"got other images or labels ({dataset.hash[:12]}): "
            "restore it, or pass --data to evaluate on other data on purpose"
        )
    warn_of_mirroring(tta, dataset.name, mirror=record["data"].get("mirror", dataset.mirror))
    class_numbers = _class_numbers(dataset.classes, loaded.classes)
    groups = Groups.from_json(record["data"]["groups"])
    splits = {
        name: replace(split, target=class_numbers[split.target])
        for name, split in dataset.evaluated.items()
    }
    results = predict_splits(loaded.network, splits, size=loaded.size, tta=tta, machine=machine)
    predictions, once = results[tta], results["none"]
    # Other data tests the calibration on the run's data: nothing is calibrated on it.
    thresholds = calibrated(once, groups=groups) if data is None else loaded.thresholds
    counts = np.array(loaded.row["data"]["counts_after"])
    # Other data with the same classes is scored as the run's data; else by its classes alone.
    if scoring is not None:
        dataset = replace(dataset, scoring=scoring)
    scorer: Scorer = LongTailScorer(groups, scoring or LongTailScorer.headline)
    if dataset.classes == loaded.classes:
        scorer = scorer_for(replace(dataset, groups=groups, counts=torch.from_numpy(counts)))
    elif scorer.headline not in scorer.labels:
        raise unknown(f"score of {dataset.name}", scorer.headline, scorer.labels)
    described = {"headline": headline_of(scorer), "labels": dict(scorer.labels)}
    summaries = summarise_splits(
        predictions,
        scorer,
        once=once,
        groups=groups,
        counts=counts,
        confidence=confidence_of(loaded.network),
        thresholds=thresholds,
    )
    if rewrite:
        for name, result in predictions.items():
            write_predictions(files.predictions(name), result, splits[name].ids)
        write_sets(files.model.path, thresholds)
        write_document(
            files.row,
            {
                name: value
                for name, value in {**loaded.row, **summaries, **described}.items()
                if name != "folder"
            },
        )
        with warn_on_error("no example images were written", "the same command"):
            write_examples(
                folder,
                loaded.network,
                dataset,
                size=loaded.size,
                confidence=confidence_of(loaded.network),
            )
        with warn_on_error("no report was written", f"longtail report {folder}"):
            write_report([folder], files.report)
    else:
        label = "".join(letter if letter.isalnum() else "-" for letter in Path(dataset.name).name)
        label += "" if data is None else f"-{dataset.hash[:8]}"  # two folders may have one name
        content = {
            "data": dataset.name,
            "hash": dataset.hash,
            "tta": tta,
            **summaries,
            **described,
            "versions": versions(),
        }
        try:
            write_document(files.evaluation(label, tta), content)
        except OSError as error:  # a folder that may only be read: the scores are returned
            warn(f"the scores were not written: {error}")
    return cast(Evaluation, {**summaries, **described})


def _class_numbers(classes: Sequence[str], known: Sequence[str]) -> Tensor:
    """For each class of the data, its number in the network; some may be missing or elsewhere."""
    numbers = {name: number for number, name in enumerate(known)}
    unknown = [name for name in classes if name not in numbers]
    if unknown:
        shown = f"{', '.join(known[:5])}{', ...' if len(known) > 5 else ''}"
        raise LongtailError(
            f"expected data with the classes of the run ({shown}), got {len(unknown)} others "
            f"({', '.join(unknown[:5])}): rename them, or train on this data"
        )
    return torch.tensor([numbers[name] for name in classes])
