"""A network's predictions for all images of a split, and their scores after an epoch."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import KW_ONLY, dataclass, replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn.functional import cross_entropy

from longtail import processes
from longtail.core import Batches, NonFinite, Predict, Scorer
from longtail.data.columns import RESERVED
from longtail.errors import LongtailError
from longtail.metrics.accuracy import balanced, broken, by_group, recall_of
from longtail.records.groups import Groups
from longtail.records.predictions import SplitPredictions
from longtail.scoring.scorer import score

COLUMN = "column."


def collect(batches: Batches[Mapping[str, Any]], predict: Predict) -> SplitPredictions:
    """Predict every image of a split once; every process gets all predictions, sorted by index.

    Batches have "image", "target", "index" (the image's position in its split) and the columns of
    the split. Predictions that are not finite raise `NonFinite`.
    """
    rows, index = _predict_all(batches, predict, columns=True)
    target = rows.pop("target")
    columns = {
        name.removeprefix(COLUMN): rows.pop(name) for name in [*rows] if name.startswith(COLUMN)
    }
    heads = {name: values.astype(np.float32, copy=False) for name, values in rows.items()}
    for name, values in heads.items():
        _refuse_broken(name, broken(values), len(values))
    return SplitPredictions(heads, target, index, columns)


def _predict_all(
    batches: Batches[Mapping[str, Any]], predict: Predict, *, columns: bool = False
) -> tuple[dict[str, NDArray[Any]], NDArray[np.int64]]:
    """The predictions for all images by head, with "target", and the images' positions, all in the
    order of the split.

    With `columns`, also the columns of the split, as "column.NAME".
    """
    parts: list[dict[str, Tensor]] = []
    for batch in batches.epoch(0):
        predictions = predict(batch["image"])
        clash = {"target", "index"} & set(predictions)
        if clash:
            raise LongtailError(
                f"expected heads with names other than target and index, got {sorted(clash)}:"
                " rename them in `predict`"
            )
        parts.append(
            {
                **predictions,
                "target": batch["target"].cpu().long(),
                "index": batch["index"].cpu().long(),
                **{
                    f"{COLUMN}{name}": values.cpu()
                    for name, values in batch.items()
                    if columns and name not in RESERVED and isinstance(values, Tensor)
                },
            }
        )
    # All processes decide together, so that none waits for the rows of one that stopped here.
    if processes.any_rank(not parts):
        if processes.world_size() == 1:
            raise LongtailError("expected images to evaluate, got none: this split is empty")
        raise LongtailError(
            f"expected images in each of {processes.world_size()} processes, got none in some:"
            " evaluate with fewer processes"
        )
    # Head by head, freeing the parts: logits of thousands of classes fit into memory only once.
    rows = {
        name: processes.gather(torch.cat([part.pop(name) for part in parts])).numpy()
        for name in [*parts[0]]
    }
    # Sorts, and drops the rows that a sampler repeated to fill its shards
    index, first = np.unique(rows.pop("index"), return_index=True)
    if len(first) == len(rows["target"]) and bool((np.diff(first) == 1).all()):
        return rows, index  # they were in order
    return {name: values[first] for name, values in rows.items()}, index


def _refuse_broken(head: str, amount: int, images: int) -> None:
    # Checked after gathering, so that all processes stop together. The loss in training mode may be
    # finite although these predictions are not.
    if amount:
        raise NonFinite(
            f"the network's predictions ({head}) stopped being finite for {amount} of {images}"
            " images: training diverged. Try a lower learning rate (a tenth), a longer warmup, or"
            " gradient clipping; with bf16, try --precision fp32"
        )


@dataclass(frozen=True)
class Accuracy:
    """Evaluate on these images after an epoch: top1, balanced and the groups, "HEAD/top1" and so on
    for further heads.

    >>> from longtail.records.groups import Groups
    >>> rows = torch.tensor([0, 1])
    >>> class TwoImages:
    ...     def __len__(self): return 1
    ...     def epoch(self, index, *, start=0):
    ...         yield {"image": torch.eye(2), "target": rows, "index": rows}
    >>> groups = Groups("ranks: 1/0/1", {"many": (0,), "medium": (), "few": (1,)})
    >>> Accuracy(TwoImages(), classes=2, groups=groups)(lambda image: {"logits": image})
    {'top1': 1.0, 'balanced': 1.0, 'many': 1.0, 'few': 1.0}
    """

    batches: Batches[Mapping[str, Any]]
    _: KW_ONLY
    classes: int
    groups: Groups

    def __call__(self, predict: Predict, /) -> dict[str, float]:
        """Scores by name; a group in which no class has images is left out."""

        def classify(image: Tensor) -> Mapping[str, Tensor]:
            return {head: self._predicted(logits) for head, logits in predict(image).items()}

        heads, _ = _predict_all(self.batches, classify)
        target, numbers = heads.pop("target"), dict[str, float]()
        for head, predicted in heads.items():
            _refuse_broken(head, int((predicted < 0).sum()), len(predicted))
            prefix = "" if head == "logits" else f"{head}/"
            recalls = recall_of(predicted == target, target, self.classes)
            numbers[f"{prefix}top1"] = float((predicted == target).mean())
            numbers[f"{prefix}balanced"] = balanced(recalls)
            numbers |= {
                f"{prefix}{name}": value
                for name, value in by_group(recalls, self.groups).items()
                if value is not None
            }
        return numbers

    def _predicted(self, logits: Tensor) -> Tensor:
        """The class of each row, -1 where logits are not finite.

        Classes are kept instead of logits, which would fill the memory.
        """
        if logits.shape[1] != self.classes:
            raise LongtailError(
                f"expected {self.classes} logits for each image, got {logits.shape[1]}: build the"
                " network for these classes"
            )
        values = logits.numpy()
        # Of equal logits the lower class wins
        return torch.from_numpy(np.where(np.isfinite(values.max(1)), values.argmax(1), -1))


@dataclass(frozen=True)
class ScorerEvaluator:
    """Evaluate on these images after an epoch with a scorer; "loss" is the cross entropy of the
    predictions.

    The scores of further heads are called "HEAD/NAME". All logits are kept in memory: for
    long-tailed scores alone, use `Accuracy`.
    """

    batches: Batches[Mapping[str, Any]]
    scorer: Scorer

    def __call__(self, predict: Predict, /) -> dict[str, float]:
        """Scores by name; those for which there is nothing to measure are left out."""
        predictions = collect(self.batches, predict)
        target, numbers = torch.from_numpy(predictions.target), dict[str, float]()
        for head, logits in predictions.logits.items():
            prefix = "" if head == "logits" else f"{head}/"
            numbers[f"{prefix}loss"] = cross_entropy(torch.from_numpy(logits), target).item()
            scores = score(self.scorer, replace(predictions, logits={"logits": logits}))
            numbers |= {
                f"{prefix}{name}": value for name, value in scores.items() if value is not None
            }
        return numbers


def flipped(predict: Predict) -> Predict:
    """Average the logits of each image and its mirror image (test-time averaging "flip").

    >>> both = flipped(lambda image: {"logits": image[:, 0, 0]})
    >>> both(torch.tensor([[[[1.0, 3.0]]]]))["logits"].tolist()
    [[2.0, 2.0]]
    """

    def averaged(image: Tensor) -> Mapping[str, Tensor]:
        straight, mirrored = predict(image), predict(image.flip(-1))
        return {name: (logits + mirrored[name]) / 2 for name, logits in straight.items()}

    return averaged
