"""Domain generalisation: ERM, CORAL, IRM, V-REx, MixStyle and SWAD, each with BatchFormer."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Literal

from longtail import processes
from longtail.core import Average, Keep, Labelled, Method, Schedule, Stage, constant, last
from longtail.data.augmentations import JitteredCrop
from longtail.data.batches import StepsPerEpoch
from longtail.data.dataset import Dataset
from longtail.data.loader import TrainLoader
from longtail.data.samplers import Instance, PerDomain, Sampler, SomeDomains
from longtail.data.views import CropFlip, View
from longtail.engine.averaging import LossValley
from longtail.engine.optim import adamw, reset_at, sgd
from longtail.engine.run import Run
from longtail.errors import LongtailError
from longtail.losses import domains as penalties
from longtail.methods.domains import AcrossDomains
from longtail.nn import Linear
from longtail.nn.mixstyle import MixStyle
from longtail.nn.networks import Embedded
from longtail.recipes.batchformer import (
    Mode,
    Scope,
    batchformer_neck,
    lr_scales,
    note_frozen_inputs,
)
from longtail.recipes.builders import KeepRule, Weights, build_backbone, validation
from longtail.schedules import Cosine, Steps
from longtail.scoring.scorer import headline_of, scorer_for

SELECTION = "training-domain validation"
"""The name of the selection in rows, for the best epoch and for SWAD's average alike."""

RANDOM_LR = 0.02
"""The learning rate of SGD for random initial weights."""
PENALTY_LR = 0.002
"""That of IRM and V-REx, whose penalties grow with the square of the loss: they diverge at more."""

DomainBatches = Literal["shuffled", "per_domain"]
DomainSchedule = Literal["cosine", "constant", "step"]
Optimizer = Literal["sgd", "adam"]


def erm(
    run: Run, data: Dataset, *, batches: DomainBatches = "shuffled", **keywords: Any
) -> Method[Labelled]:
    """Train on several domains with cross entropy, and test on another: the baseline.

        longtail train erm --data PACS --test-domain sketch --out runs/erm
        longtail sweep erm,coral,irm,vrex --data PACS --set test_domain=all --seeds 0,1,2

    Empirical risk minimization on the images of all training domains, shuffled, or equally many of
    each domain in every batch with `--batches per_domain`. A fifth of each class and domain is held
    out; the epoch with the best accuracy there, as the mean over training domains, is tested. The
    test domain selects nothing.

    TLL's settings are `--network timm:resnet18 --weights timm --epochs 20 --steps 500 --batch 36
    --freeze-batchnorm --dropout 0.1`, those of DomainBed `--batches per_domain --batch 96
    --optimizer adam --schedule constant --weight-decay 0 --epochs 50 --steps 100
    --freeze-batchnorm`. On feature vectors, `--network vectors --hidden 256` trains one hidden
    layer.

    `--batchformer on` lets the images of a batch attend to each other across domains before the
    head while training (Hou et al. 2022); in its released code for domain generalisation
    BatchFormer was never trained, which here is `--batchformer frozen`.

    Published: 82.0% with ResNet-18 on PACS, 82.4% with BatchFormer (TLL's settings, Hou et al.
    2022).
    """
    return train_across_domains(
        run,
        data,
        method=AcrossDomains,
        average=None,
        random_lr=RANDOM_LR,
        batches=batches,
        **keywords,
    )


def coral(
    run: Run, data: Dataset, *, penalty_weight: float = 1.0, **keywords: Any
) -> Method[Labelled]:
    """Train on several domains so that features have the same mean and covariance in all.

        longtail train coral --data PACS --test-domain sketch --out runs/coral

    Cross entropy and `penalty_weight` times the squared difference between means and covariances
    of the features of two domains (Sun & Saenko 2016), the mean over pairs of domains. Every batch
    has equally many images of each domain. With BatchFormer, the penalty is that of each stream
    times its weight. Everything else is as in `erm`; TLL's learning rate is 5e-4.

    Published: 80.2% with ResNet-18 on PACS, 80.9% with BatchFormer (Hou et al. 2022).
    """
    return train_across_domains(
        run,
        data,
        method=partial(AcrossDomains, penalty=penalties.coral, penalty_weight=penalty_weight),
        average=None,
        random_lr=RANDOM_LR,
        batches="per_domain",
        **keywords,
    )


def irm(
    run: Run,
    data: Dataset,
    *,
    penalty_weight: float = 1.0,
    anneal: float = 0.05,
    **keywords: Any,
) -> Method[Labelled]:
    """Train on several domains so that one scale of the logits is best in all.

        longtail train irm --data PACS --test-domain sketch --penalty-weight 100 --out runs/irm

    Cross entropy and the squared gradient of each domain's cross entropy by a scale of the logits
    (IRMv1, Arjovsky et al. 2019), estimated as the product of the gradients on two halves of the
    domain's images. Its weight is 1 in the first `anneal` of training and `penalty_weight` after
    that, when the optimizer forgets its momentum. TLL has weight 1, DomainBed 100 and an anneal of
    0.1. The penalty is that of each domain and of each stream of BatchFormer; in the released code
    the compared parts mix both. From random weights the learning rate is 0.002: at that of `erm`
    the loss diverges. Everything else is as in `coral`.

    Published: 78.9% with ResNet-18 on PACS, 79.4% with BatchFormer (Hou et al. 2022).
    """
    return train_across_domains(
        run,
        data,
        method=partial(
            AcrossDomains, penalty=penalties.irm, penalty_weight=penalty_weight, anneal=anneal
        ),
        average=None,
        random_lr=PENALTY_LR,
        batches="per_domain",
        **keywords,
    )


def vrex(
    run: Run,
    data: Dataset,
    *,
    penalty_weight: float = 3.0,
    anneal: float = 0.05,
    **keywords: Any,
) -> Method[Labelled]:
    """Train on several domains so that the loss is the same in all.

        longtail train vrex --data PACS --test-domain sketch --out runs/vrex

    Cross entropy and the variance over domains of their cross entropies (V-REx, Krueger et al.
    2021). Its weight is 1 in the first `anneal` of training and `penalty_weight` after that, when
    the optimizer forgets its momentum. TLL has weight 3, DomainBed 10 and an anneal of 0.1. The
    learning rate is that of `irm`. Everything else is as in `coral`.

    Published: 81.3% with ResNet-18 on PACS, 82.2% with BatchFormer (Hou et al. 2022).
    """
    return train_across_domains(
        run,
        data,
        method=partial(
            AcrossDomains, penalty=penalties.vrex, penalty_weight=penalty_weight, anneal=anneal
        ),
        average=None,
        random_lr=PENALTY_LR,
        batches="per_domain",
        **keywords,
    )


def mixstyle(
    run: Run,
    data: Dataset,
    *,
    style_stages: Sequence[int] = (1, 2),
    style_probability: float = 0.5,
    style_alpha: float = 0.1,
    **keywords: Any,
) -> Method[Labelled]:
    """Train on several domains with styles that are mixed between domains inside the network.

        longtail train mixstyle --data PACS --test-domain sketch --out runs/mixstyle

    Means and deviations of feature maps are mixed with those of an image of another domain (Zhou et
    al. 2021), after the stages `style_stages` of a convolutional network, in `style_probability` of
    the batches. Every batch has two random domains. Of timm's ResNets, whose first stage is the
    stem, published are `--style-stages 2,3,4` (layers 1 to 3) on PACS and `2,3` on OfficeHome.
    Feature vectors have no style: such data is refused. Everything else is as in `erm`.

    Published: 83.1% with ResNet-18 on PACS, 83.7% with BatchFormer (Hou et al. 2022).
    """
    return train_across_domains(
        run,
        data,
        method=partial(
            AcrossDomains,
            style=MixStyle(probability=style_probability, alpha=style_alpha),
            style_stages=[stage - 1 for stage in style_stages],
        ),
        average=None,
        random_lr=RANDOM_LR,
        batches="per_domain",
        **keywords,
    )


def swad(
    run: Run,
    data: Dataset,
    *,
    batches: DomainBatches = "per_domain",
    epochs: int = 50,
    n_converge: int = 3,
    n_tolerance: int = 6,
    tolerance_ratio: float = 0.3,
    **keywords: Any,
) -> Method[Labelled]:
    """Train on several domains and average the weights while the validation loss is in its valley.

        longtail train swad --data PACS --test-domain sketch --steps 100 --out runs/swad

    ERM whose result is the mean of the weights of all steps from the epoch at which the validation
    loss (the mean over training domains) has stopped falling for `n_converge` epochs, until it has
    been above 1 + `tolerance_ratio` of that for `n_tolerance` (Cha et al. 2021). An epoch is the
    time between two validations: published are 100 to 200 steps, which `--steps` sets. Everything
    else is as in `erm`. `compare` ranks both: their selection is the same, on training domains.

    Published: 82.9% with ResNet-18 on PACS, 83.7% with BatchFormer (DomainBed's settings, Hou et
    al. 2022).
    """
    return train_across_domains(
        run,
        data,
        method=AcrossDomains,
        average=LossValley(
            n_converge=n_converge, n_tolerance=n_tolerance, tolerance_ratio=tolerance_ratio
        ),
        random_lr=RANDOM_LR,
        keep="best",
        batches=batches,
        epochs=epochs,
        **keywords,
    )


def train_across_domains(
    run: Run,
    data: Dataset,
    *,
    method: Callable[..., AcrossDomains],
    average: LossValley | None,
    random_lr: float,
    batches: DomainBatches,
    network: str = "fast_cnn",
    weights: Weights = "random",
    hidden: int = 0,
    epochs: int = 20,
    steps: int | None = None,
    batch: int = 36,
    optimizer: Optimizer = "sgd",
    lr: float | None = None,
    weight_decay: float = 5e-4,
    schedule: DomainSchedule = "cosine",
    dropout: float = 0.0,
    freeze_batchnorm: bool = False,
    augment: Literal["weak", "jitter"] = "jitter",
    keep: KeepRule = "best",
    batchformer: Mode = "off",
    plain_weight: float = 0.5,
    batchformer_weight: float = 0.5,
    loss_scale: float = 1.0,
    batchformer_layers: int = 1,
    batchformer_lr_scale: float = 1.0,
    batchformer_scope: Scope = "local",
    size: int | None = None,
) -> Method[Labelled]:
    """Train a network on the training domains: the recipes above.

    Args:
        method: builds the method from a network and a head.
        average: of the weights, which is then kept; none keeps an epoch.
        random_lr: the learning rate of SGD for random initial weights, unless `lr` is given.
    """
    _check_data(data, keep=keep)
    if data.has_vectors:
        run.ignore({"augment"}, given="feature vectors")
    size, classes = size or data.size, len(data.classes)
    backbone = build_backbone(run, network, weights, data=data, size=size)
    if hidden:
        backbone = Embedded(backbone, [hidden])
    head = Linear(backbone.dim, classes)
    # After the head, so that one seed gives one network with and without it.
    neck = batchformer_neck(
        backbone.dim,
        batchformer,
        plain_weight=plain_weight,
        batchformer_weight=batchformer_weight,
        loss_scale=loss_scale,
        layers=batchformer_layers,
        scope=batchformer_scope,
    )
    note_frozen_inputs(run, backbone, neck)
    trained = method(backbone, head, dropout=dropout, freeze_batchnorm=freeze_batchnorm, neck=neck)
    compared = trained.penalty is not None or trained.style is not None
    if compared and len(data.train.columns["domain"].unique()) < 2:
        raise LongtailError(
            "this recipe compares training domains, and there is only one: use erm or swad, or"
            " train on more domains"
        )
    views: dict[str, View] = {
        "weak": CropFlip(size, pad=size // 8, flip=data.mirror),
        "jitter": JitteredCrop(size, flip=data.mirror),
    }
    loader = TrainLoader(
        data.train,
        view=views[augment],
        batch=batch,
        seed=run.view_seed,
        sampler=_sampler(data, batches, batch=batch, per_batch=2 if trained.style else None),
        workers=run.machine.workers,
    )
    stage_data = loader if steps is None else StepsPerEpoch(loader, steps=steps)
    scales = lr_scales(neck, batchformer_lr_scale, default=1.0)
    if lr is None:
        lr = _usual_lr(optimizer, weights, random_lr=random_lr)
    build = (sgd if optimizer == "sgd" else adamw)(lr=lr, weight_decay=weight_decay, scales=scales)
    if trained.anneal:
        build = reset_at(build, step=math.ceil(trained.anneal * epochs * len(stage_data)))
    averages, chosen = _selection(data, keep, average)
    schedules: dict[str, Schedule] = {
        "cosine": Cosine(),
        "constant": constant,
        "step": Steps((0.8,), (0.1,)),
    }
    return run.fit(
        Stage(
            name="train",
            method=trained,
            data=stage_data,
            epochs=epochs,
            optimizer=build,
            schedule=schedules[schedule],
            averages=averages,
            evals=validation(data, size, workers=run.machine.workers),
            keep=chosen,
        )
    )


def _check_data(data: Dataset, *, keep: KeepRule) -> None:
    if data.test_domain is None:
        raise LongtailError(
            f"this recipe trains on some domains for another, and {data.name} was opened without"
            " a test domain: pass --test-domain NAME, or use cross_entropy"
        )
    if not len(data.val) and keep == "best":
        raise LongtailError(
            "the weights are selected on validation images of the training domains, and this data"
            " has none: use --protocol holdout, or --keep last"
        )


def _sampler(
    data: Dataset, batches: DomainBatches, *, batch: int, per_batch: int | None
) -> Sampler:
    """The order of training images; batches with domains have equally many images of each."""
    if batches == "shuffled":
        return Instance()
    domain = data.train.columns["domain"].tolist()
    share = (per_batch or len({*domain})) * processes.world_size()
    if batch % share:
        raise LongtailError(
            f"expected a batch with equally many images of {share} domains (times processes), got"
            f" {batch}: try {max(batch // share, 1) * share}"
        )
    return PerDomain(domain) if per_batch is None else SomeDomains(domain, batch, per_batch)


def _usual_lr(optimizer: Optimizer, weights: Weights, *, random_lr: float) -> float:
    """The learning rate of TLL (SGD) or DomainBed (Adam) for pretrained weights, else a larger."""
    if weights == "random":
        return random_lr if optimizer == "sgd" else 1e-3
    return 1e-3 if optimizer == "sgd" else 5e-5


def _selection(
    data: Dataset, keep: KeepRule, valley: LossValley | None
) -> tuple[dict[str, Average], Keep]:
    """The averages that are followed, and which weights are kept."""
    if valley is not None:
        return {"swad": valley}, Keep(SELECTION, average="swad")
    if keep == "last":
        return {}, last
    headline = headline_of(scorer_for(data))
    better = headline["higher_is_better"]
    return {}, Keep(SELECTION, best=f"val/{headline['name']}", higher_is_better=better)
