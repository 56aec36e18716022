"""A baseline of generalised zero-shot learning: ESZSL with calibrated stacking."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Literal

import numpy as np
import torch
from torch import Tensor

from longtail.core import Labelled, Method
from longtail.data.dataset import Dataset
from longtail.data.splits import validation_classes
from longtail.engine.run import Run
from longtail.errors import LongtailError
from longtail.methods.eszsl import CalibratedStacking, Eszsl
from longtail.metrics.bias_sweep import bias_sweep, class_weights
from longtail.nn import ClassVectors, build
from longtail.posthoc.adjusting import temperature
from longtail.recipes.ce_gzsl import class_vectors

STRENGTHS = tuple(10.0**power for power in range(-3, 4))
"""The penalties that are tried, as in the paper."""


def eszsl(
    run: Run,
    data: Dataset,
    *,
    network: Literal["vectors"] = "vectors",
    gamma: float | None = None,
    lambda_: float | None = None,
    bias: float | None = None,
) -> Method[Labelled]:
    """Compare features with class vectors by a matrix in closed form: a baseline in seconds.

        longtail train eszsl --data CUB --protocol paper --out runs/eszsl

    ESZSL (Romera-Paredes and Torr 2015) with calibrated stacking (Chao et al. 2016): a bias is
    added to the logits of unseen classes. The penalties `gamma` (of features) and `lambda_` (of
    class vectors) and the `bias` are chosen, unless given, on validation classes: a third of the
    seen classes and a tenth of the rows of all others are held out of the training rows, and the
    best harmonic mean H on them decides. Then all training rows are used. Test rows choose nothing.

    New classes can be added without training: `longtail predict RUN FEATURES --classes FILE`.
    """
    start = time.monotonic()
    vectors, seen = class_vectors(data, "eszsl"), data.counts > 0
    rows = data.train.inputs.vectors()
    assert rows is not None
    held = _held_out(data)
    chosen = run.compute(
        lambda: _choose(rows, data, vectors, held, gamma=gamma, lambda_=lambda_),
        dry=lambda: Choice(1.0, 1.0, 1.0, 0.0, 0.0),
    )
    head = ClassVectors(data.size, len(seen), width=vectors.shape[1], unit=True, scale=chosen.scale)
    head.vectors.copy_(vectors)
    solved = Eszsl.fit(rows, (seen.cumsum(0) - 1)[data.train.target], vectors[seen])
    with torch.no_grad():
        head.project.weight.copy_(solved.weight(gamma=chosen.gamma, lambda_=chosen.lambda_))
    minutes = round((time.monotonic() - start) / 60, 3)
    record = {"name": "solve", "epochs": 0, "minutes": minutes, "keep": "closed form", "best": None}
    run.history.append(record)
    offset = chosen.bias if bias is None else bias
    method = CalibratedStacking(
        build({"name": network, "size": data.size}), head, seen, bias=offset
    )
    run.machine.place_module(method)
    return method.eval()


@dataclass(frozen=True)
class Choice:
    """What was chosen on validation classes."""

    gamma: float
    lambda_: float
    scale: float  # of the logits, so that their softmax is calibrated
    bias: float  # of unseen classes, at this scale
    h: float  # on validation classes


def _choose(
    rows: Tensor,
    data: Dataset,
    vectors: Tensor,
    held: Tensor,
    *,
    gamma: float | None,
    lambda_: float | None,
) -> Choice:
    """Choose penalties, bias and scale by the best H on the held-out training rows."""
    target = data.train.target
    trained = torch.bincount(target[~held], minlength=len(vectors)) > 0
    known = torch.bincount(target, minlength=len(vectors)) > 0
    position = trained.cumsum(0) - 1
    fitted = Eszsl.fit(rows[~held], position[target[~held]], vectors[trained])
    labels = (known.cumsum(0) - 1)[target[held]].numpy()
    seen, weight = trained[known].numpy(), class_weights(labels)
    best: Choice | None = None
    for first, second, scores in fitted.all_scores(
        rows[held],
        vectors[known],
        gammas=STRENGTHS if gamma is None else (gamma,),
        lambdas=STRENGTHS if lambda_ is None else (lambda_,),
    ):
        logits = scores.numpy()
        sweep = bias_sweep(logits, labels, seen, weight=weight)
        assert sweep is not None
        if best is None or sweep.hm > best.h:
            shifted = logits + np.where(seen, 0.0, sweep.best_bias)
            scale = 1 / temperature(shifted, labels)
            best = Choice(first, second, scale, scale * sweep.best_bias, sweep.hm)
    assert best is not None
    return best


def _held_out(data: Dataset) -> Tensor:
    """Which training rows are held out, (N,): those of validation classes, and a tenth of others.

    The choice does not depend on the run's seed, so that the result is the same for all.
    """
    target = data.train.target
    names = [data.classes[label] for label in target.unique().tolist()]
    if len(names) < 3:
        raise LongtailError(
            f"eszsl chooses its settings on a third of the seen classes, and {data.name} has only"
            f" {len(names)} of them: at least 3 are needed"
        )
    unseen = validation_classes(names, seed=0)
    held = torch.zeros(len(target), dtype=torch.bool)
    for label in target.unique().tolist():
        rows = (target == label).nonzero().flatten()
        if data.classes[label] not in unseen:
            order = np.random.default_rng([0, label]).permutation(len(rows))
            rows = rows[torch.from_numpy(order[: max(1, len(rows) // 10)])] if len(rows) > 1 else []
        held[rows] = True
    return held
