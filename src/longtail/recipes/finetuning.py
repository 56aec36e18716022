"""Training a transformer with labels, with any loss of LiVT's table 7 (Xu et al. 2023)."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Literal

from torch import Tensor, nn

from longtail.core import BatchTransform, Labelled, Method, Schedule
from longtail.data.dataset import Dataset
from longtail.data.samplers import Sampler
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
    ReleasedLADE,
    class_balanced_weights,
)
from longtail.methods.classify import Classify
from longtail.nn import Cosine, Head, Linear, Neck, Network
from longtail.recipes.builders import (
    ERASE,
    SCALE,
    Augment,
    Crop,
    KeepRule,
    fit_stage,
    mixing,
    training_view,
)
from longtail.schedules import Cosine as CosineSchedule
from longtail.schedules import Deferred

LossBuilder = Callable[..., tuple[nn.Module, Head, nn.Module | None]]
Loss = Literal[
    "bal_bce", "bce", "cb_bce", "bal_ce", "ce", "cb", "ldam", "lade", "ib", "lade_released"
]
HEAD_STD = 2e-5  # of the initial weights of a linear head: near zero, as in MAE


def finetune(
    run: Run,
    data: Dataset,
    backbone: Network,
    *,
    stage: str,
    optimizer: Build,
    batch: int = 128,
    accumulate: int = 1,
    epochs: int = 100,
    warmup: float = 0.1,
    loss: Loss,
    tau: float = 1.0,
    test_prior: Literal["uniform"] | None = None,
    mixup: float = 0.8,
    cutmix: float = 1.0,
    smoothing: float = 0.0,
    augment: Augment = "randaugment",
    erase: float = ERASE,
    crop: Crop = "part",
    ema: float = 0.0,
    keep: KeepRule = "last",
    view: View | None = None,
    sampler: Sampler | None = None,
    schedule: Schedule | None = None,
    mix: BatchTransform | None = None,
    neck: Neck | None = None,
    build_loss: LossBuilder | None = None,
) -> Method[Labelled]:
    """Train a transformer with labels in one stage, with any loss of LiVT's table 7.

    Args:
        stage: name of the stage.
        view: instead of the one that `augment`, `erase` and `crop` name.
        schedule: instead of a cosine with `warmup`.
        mix: instead of `mixup`, `cutmix` and `smoothing`.
        build_loss: `loss_and_head`, with other settings.
    """
    size = int(backbone.spec["size"])
    function, head, weights = (build_loss or loss_and_head)(
        loss, data.counts, backbone.dim, tau=tau, test_prior=test_prior
    )
    return fit_stage(
        run,
        data,
        Classify(backbone, head, function, neck=neck, weights=weights),
        name=stage,
        view=view or training_view(augment, size, erase=erase, flip=data.mirror, crop=crop),
        sampler=sampler,
        epochs=epochs,
        batch=batch,
        accumulate=accumulate,
        optimizer=optimizer,
        schedule=schedule or CosineSchedule(warmup),
        mix=mix or mixing(len(data.classes), mixup=mixup, cutmix=cutmix, smoothing=smoothing),
        ema=ema,
        keep=keep,
    )


def loss_and_head(
    loss: Loss,
    counts: Tensor,
    dim: int,
    *,
    tau: float,
    test_prior: Literal["uniform"] | None,
    smoothing: float = 0.0,
    binarize_targets: bool = False,
    std: float | None = HEAD_STD,
) -> tuple[nn.Module, Head, nn.Module | None]:
    """Build a loss of LiVT's table 7, the head that it was designed with, and its class weights.

    Balanced BCE without a test prior is the one with a uniform test prior and a head whose bias
    begins lower by what that adds: training is the same, and the sigmoid of a logit is then the
    probability for a balanced test set.

    Args:
        counts: training images of each class, (C,).
        dim: width of the features.
        smoothing: label smoothing within a cross entropy.
        binarize_targets: `BinaryCrossEntropy`'s, for labels that are mixed.
        std: deviation of the initial weights of a linear head; PyTorch's default where it is None.
    """
    if tau != 1.0 and loss not in ("bal_bce", "bal_ce"):
        raise LongtailError(
            f"--tau has no effect with --loss {loss}: remove it, or use bal_bce or bal_ce"
        )
    if test_prior is not None and loss != "bal_bce":
        raise LongtailError(
            f"--test-prior has no effect with --loss {loss}: remove it, or use bal_bce"
        )
    if smoothing and loss not in ("bal_ce", "ce", "cb"):
        raise LongtailError(
            f"--smoothing has no effect with --loss {loss} and class tokens: pass --smoothing 0"
        )
    losses: dict[Loss, Callable[[], nn.Module]] = {
        "bal_bce": lambda: BalancedBCE(counts, tau=tau, test_prior="uniform"),
        "bce": lambda: BinaryCrossEntropy(binarize_targets=binarize_targets),
        "cb_bce": lambda: ClassBalancedBCE(counts),
        "bal_ce": lambda: LogitAdjusted(counts, tau=tau, smoothing=smoothing),
        "ce": lambda: CrossEntropy(smoothing=smoothing),
        "cb": lambda: CrossEntropy(smoothing=smoothing),
        "ldam": lambda: LDAM(counts, max_margin=0.5 * SCALE, scale=1.0),
        "lade": lambda: LADE(counts),
        "lade_released": lambda: ReleasedLADE(counts),
        "ib": lambda: InfluenceBalanced(counts),
    }
    weights = Deferred(class_balanced_weights(counts), start=0.0) if loss == "cb" else None
    if loss == "ldam":
        return losses[loss](), Cosine(dim, len(counts), scale=SCALE), weights
    head = Linear(dim, len(counts))
    bias = -tau * math.log(len(counts) - 1) if loss == "bal_bce" and test_prior is None else 0.0
    if std is not None:
        nn.init.trunc_normal_(head.weight, std=std)
    if std is not None or bias:
        nn.init.constant_(head.bias, bias)
    return losses[loss](), head, weights
