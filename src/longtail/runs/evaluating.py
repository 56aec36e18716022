"""Asking a trained network about every image of a split, once."""

from __future__ import annotations

import sys
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
from longtail.errors import LongtailError
from longtail.metrics.conformal import Thresholds, calibrate
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
from longtail.runs.inference import predict_split
from longtail.runs.model import load
from longtail.scoring.long_tail import LongTailScorer
from longtail.scoring.scorer import headline_of, scorer_for, summarise_splits


def warn_of_mirroring(tta: Tta, name: str, *, mirror: bool) -> None:
    """Say so where test-time averaging shows the network images that are of no class."""
    if tta == "flip" and not mirror and processes.rank() == 0:
        print(
            f"warning: --tta flip mirrors images, and mirrored images of {name} are not of their class",
            file=sys.stderr,
        )


def confidence_of(network: nn.Module) -> str:
    """How a deployed network means its logits: softmax, or sigmoid where its loss asked a question for each class."""
    return network.confidence if isinstance(network, Classifier) else "softmax"


def calibrated(found: Mapping[str, SplitPredictions], *, groups: Groups) -> Thresholds | None:
    """The thresholds of prediction sets, by the answers for "val"; None without."""
    return (
        calibrate(found["val"].logits["logits"], found["val"].target, groups=groups)
        if "val" in found
        else None
    )


def write_sets(folder: Path, thresholds: Thresholds | None) -> None:
    """Leave the thresholds of prediction sets beside the model, for `longtail predict`; none where there are none."""
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
    trust: bool = False,
) -> Evaluation:
    """Evaluate a finished run's saved network again: on its own data, or on other data with classes that it knows.

    Of other data the test images are asked, and its validation images where it comes with some; all images, where it has no test images.
    Where other data turns out to be the run's own, in another place, its own held-out images are asked. A run's folder of images that was
    moved is found with `root`. `on_bad_image` is for other data; the run's own is read as it was.

    Writes the numbers to `eval-DATA-TTA.json` in the run's folder, for other data with a part of its hash in the name. The row stays as
    training left it, unless `rewrite` asks for its numbers and predictions anew, which needs the run's own data and test-time averaging.
    """
    folder, files = Path(run), RunFolder(Path(run))
    loaded, record = load(folder, device=device, trust=trust), read_recipe(folder)
    machine = choose(device=device, precision="fp32", threads=threads, workers=workers)
    machine.configure()
    tta = record["tta"] if tta is None else tta
    if rewrite and (data is not None or tta != record["tta"]):
        raise LongtailError(
            f"expected the run's own data and tta ({record['tta']}) to rewrite its row, got others: leave --data and --tta out"
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
            f"expected the data of the run ({record['data']['hash'][:12]}), got other images or labels ({dataset.hash[:12]}): "
            "bring it back, or pass --data to evaluate on something else on purpose"
        )
    warn_of_mirroring(tta, dataset.name, mirror=record["data"].get("mirror", dataset.mirror))
    renumbered = _renumbered(dataset.classes, loaded.classes)
    groups = Groups.from_json(record["data"]["groups"])
    splits = {
        name: split for name, split in (("val", dataset.val), ("test", dataset.test)) if len(split)
    }

    def asked(tta: Tta) -> dict[str, SplitPredictions]:
        own = {
            name: predict_split(loaded.network, split, size=loaded.size, tta=tta, machine=machine)
            for name, split in splits.items()
        }
        return {
            name: replace(answer, target=renumbered[answer.target].numpy())
            for name, answer in own.items()
        }

    found = asked(tta)
    once = found if tta == "none" else asked("none")
    # Other data is asked whether it keeps what was promised on the run's own: nothing is calibrated on it.
    thresholds = calibrated(once, groups=groups) if data is None else loaded.thresholds
    counts = np.array(loaded.row["data"]["counts_after"])
    # Other data is scored as the run's data would be, where its classes are the same; else by its classes alone.
    scorer: Scorer = LongTailScorer(groups)
    if dataset.classes == loaded.classes:
        scorer = scorer_for(replace(dataset, groups=groups, counts=torch.from_numpy(counts)))
    described = {"headline": headline_of(scorer), "labels": dict(scorer.labels)}
    summaries = summarise_splits(
        found,
        scorer,
        once=once,
        groups=groups,
        counts=counts,
        confidence=confidence_of(loaded.network),
        thresholds=thresholds,
    )
    if rewrite:
        for name, own in found.items():
            write_predictions(files.predictions(name), own, splits[name].ids)
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
        named = "".join(letter if letter.isalnum() else "-" for letter in Path(dataset.name).name)
        named += "" if data is None else f"-{dataset.hash[:8]}"  # two folders may have one name
        numbers = {
            "data": dataset.name,
            "hash": dataset.hash,
            "tta": tta,
            **summaries,
            **described,
            "versions": versions(),
        }
        try:
            write_document(files.evaluation(named, tta), numbers)
        except OSError as error:  # a run that may be read only: the numbers are given all the same
            print(f"warning: the numbers were not kept: {error}", file=sys.stderr)
    return cast(Evaluation, {**summaries, **described})


def _renumbered(given: Sequence[str], known: Sequence[str]) -> Tensor:
    """For each class of the data, its number in the network; the data may lack some, and have another order."""
    numbers = {name: number for number, name in enumerate(known)}
    strange = [name for name in given if name not in numbers]
    if strange:
        raise LongtailError(
            f"expected data with the classes of the run ({', '.join(known[:5])}{', ...' if len(known) > 5 else ''}), "
            f"got {len(strange)} others ({', '.join(strange[:5])}): rename them, or train on this data"
        )
    return torch.tensor([numbers[name] for name in given])
