"""Training a transformer with labels: a loss of LiVT's table 7 by name with its head, and the one stage (Xu et al. 2023)."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Literal

from torch import Tensor, nn

from longtail.core import BatchTransform, Labelled, Method, Stage
from longtail.data.dataset import Dataset
from longtail.data.loader import TrainLoader
from longtail.data.views import View
from longtail.engine.optim import Build
from longtail.engine.run import Run
from longtail.errors import LongtailError
from longtail.losses import (
    LADE,
    LDAM,
    BalancedBCE,
    BinaryCrossEntropy,
    ClassBalancedBCE,
    CrossEntropy,
    InfluenceBalanced,
    LogitAdjusted,
    class_balanced_weights,
)
from longtail.methods.classify import Classify
from longtail.nn import Cosine, Head, Linear, Network, PassThrough
from longtail.recipes.builders import SCALE, KeepRule, select_weights, validation
from longtail.schedules import Cosine as CosineRate
from longtail.schedules import Deferred

Loss = Literal["bal_bce", "bce", "cb_bce", "bal_ce", "ce", "cb", "ldam", "lade", "ib"]
HEAD_STD = 2e-5  # a linear head begins near zero, as in MAE


def finetune(
    run: Run,
    data: Dataset,
    backbone: Network,
    *,
    stage: str,
    epochs: int,
    batch: int,
    accumulate: int,
    optimizer: Build,
    warmup: float,
    view: View,
    mix: BatchTransform,
    loss: Loss,
    tau: float,
    test_prior: Literal["uniform"] | None,
    keep: KeepRule,
    whole: bool = False,
    scale: float = 1.0,
    head_std: float = HEAD_STD,
) -> Method[Labelled]:
    """Train a transformer with labels, in one stage.

    `whole` is `BinaryCrossEntropy`'s; `scale` is a factor of the loss; a linear head begins with weights of `head_std`.
    """
    chosen = select_weights(keep, ema=0.0, data=data)[1]
    function, head, weights = loss_and_head(
        loss, data.counts, backbone.dim, tau=tau, test_prior=test_prior, whole=whole, std=head_std
    )
    return run.fit(
        Stage(
            name=stage,
            method=Classify(backbone, head, function, neck=PassThrough(scale), weights=weights),
            data=TrainLoader(
                data.train, view=view, batch=batch, seed=run.view_seed, workers=run.machine.workers
            ),
            epochs=epochs,
            accumulate=accumulate,
            optimizer=optimizer,
            schedule=CosineRate(warmup),
            mix=mix,
            evals=validation(data, backbone.spec["size"], workers=run.machine.workers),
            keep=chosen,
        )
    )


def loss_and_head(
    loss: Loss,
    counts: Tensor,
    dim: int,
    *,
    tau: float,
    test_prior: Literal["uniform"] | None,
    whole: bool = False,
    std: float = HEAD_STD,
) -> tuple[nn.Module, Head, nn.Module | None]:
    """A loss of table 7 by name, the head that it was designed with, and its class weights. A linear head begins with weights of `std`.

    Balanced BCE without a test prior is the one with a uniform test prior and a head that begins lower by what that adds: learning is the
    same, and the sigmoid of a logit is then the answer for a balanced test set.
    """
    if tau != 1.0 and loss not in ("bal_bce", "bal_ce"):
        raise LongtailError(
            f"expected --tau with --loss bal_bce or bal_ce, which have a prior to scale, got it with {loss}: leave it out"
        )
    if test_prior is not None and loss != "bal_bce":
        raise LongtailError(
            f"expected --test-prior with --loss bal_bce, got it with {loss}: leave it out"
        )
    losses: dict[Loss, Callable[[], nn.Module]] = {
        "bal_bce": lambda: BalancedBCE(counts, tau=tau, test_prior="uniform"),
        "bce": lambda: BinaryCrossEntropy(whole=whole),
        "cb_bce": lambda: ClassBalancedBCE(counts),
        "bal_ce": lambda: LogitAdjusted(counts, tau=tau),
        "ce": CrossEntropy,
        "cb": CrossEntropy,
        "ldam": lambda: LDAM(counts, max_margin=0.5 * SCALE, scale=1.0),
        "lade": lambda: LADE(counts),
        "ib": lambda: InfluenceBalanced(counts),
    }
    weights = Deferred(class_balanced_weights(counts), start=0.0) if loss == "cb" else None
    if loss == "ldam":
        return losses[loss](), Cosine(dim, len(counts), scale=SCALE), weights
    head = Linear(dim, len(counts))
    nn.init.trunc_normal_(head.weight, std=std)
    begin = -tau * math.log(len(counts) - 1) if loss == "bal_bce" and test_prior is None else 0.0
    nn.init.constant_(head.bias, begin)
    return losses[loss](), head, weights
