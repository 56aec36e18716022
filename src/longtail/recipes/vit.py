"""Transformers with labels alone: what LiVT and DeiT-LT are compared with."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any, Literal

from torch import nn

from longtail.core import Labelled, Method
from longtail.data.dataset import Dataset
from longtail.data.samplers import ClassBalanced, Instance, RepeatedAugmentation
from longtail.engine.optim import adamw
from longtail.engine.run import Run
from longtail.losses import CrossEntropy
from longtail.methods.classify import Classify
from longtail.nn import Classifier, Frozen, Linear, files
from longtail.nn.mae import initialise
from longtail.recipes.builders import (
    ERASE,
    TRANSFORMER_ROWS,
    Crop,
    KeepRule,
    OptimizerName,
    Weights,
    adamw_or_muon,
    build_backbone,
    choose_transformer,
    fit_stage,
    mixing,
    scaled_lr,
    training_view,
)
from longtail.recipes.deit_lt import DEFER, FLOOR
from longtail.recipes.finetuning import Loss, finetune, loss_and_head
from longtail.recipes.masked_autoencoder import BETAS
from longtail.recipes.teachers import record_origin
from longtail.records.layout import RunFolder
from longtail.records.row import read_row
from longtail.schedules import Cosine

SEPARATE_ROWS = TRANSFORMER_ROWS


def vit(
    run: Run,
    data: Dataset,
    *,
    network: str = "auto",
    weights: Weights = "random",
    pool: Literal["token", "avg_norm"] = "token",
    epochs: int = 60,
    batch: int = 128,
    accumulate: int = 1,
    lr: float = 2e-3,
    weight_decay: float = 0.05,
    optimizer: OptimizerName = "default",
    warmup: float = 0.05,
    drop_path: float = 0.1,
    repeats: int = 3,
    loss: Loss = "ce",
    mixup: float = 0.8,
    cutmix: float = 1.0,
    mix_until: float = DEFER,
    smoothing: float = 0.1,
    crop: Crop = "auto",
    patch: int | None = None,
    size: int | None = None,
    **finetuning: Any,
) -> Method[Labelled]:
    """Train a vision transformer with labels alone, from scratch or from an encoder.

        longtail train vit --data cifar10-lt --root DATA --out runs/vit

    With `--pool token`, the default, it is trained as DeiT-LT trains its student, without
    distillation token and teacher: what distillation is compared with. With `--pool avg_norm` it
    has MAE's initial weights, optimizer and head: what LiVT's pretraining is compared with, under
    the defaults of `vit_scratch`. `--weights RUN` begins with the encoder of a run, such as one of
    `moco_v3` or `masked_autoencoder`, at the same learning rate: a lower `lr` may suit it.

    Cost: 101 minutes on one thread for CIFAR-10-LT (imbalance 100), `vit_mini` and 60 epochs.
    Ours: 32.1% with these, `--mix-until 0.8` and `--repeats 1`, one seed (deit_lt_cifar10_lt/vit).
    Published: 62.6% with ViT-B on CIFAR-10-LT at imbalance 100 (Rangwani et al. 2024).
    """
    size = size or data.size
    name = choose_transformer(network, size, patch=patch)
    backbone = build_backbone(
        run, name, weights, data=data, size=size, patch=patch, pool=pool, drop_path=drop_path
    )
    step = scaled_lr(lr, data.train, batch=batch, accumulate=accumulate)
    build_optimizer = partial(adamw_or_muon, optimizer, lr=step, weight_decay=weight_decay)
    mix = partial(mixing, len(data.classes), mixup=mixup, cutmix=cutmix, until=mix_until)
    settings: dict[str, Any]
    if pool == "token":  # as DeiT: PyTorch's initial weights, and smoothing of unmixed labels too
        settings = {
            "optimizer": build_optimizer(),
            "schedule": Cosine(warmup, floor=FLOOR),
            "mix": mix(),
            "build_loss": partial(loss_and_head, smoothing=smoothing, std=None),
        }
    else:  # as MAE, whose encoder LiVT begins with
        if weights == "random":
            initialise(backbone)
        settings = {"optimizer": build_optimizer(betas=BETAS), "mix": mix(smoothing=smoothing)}
    return finetune(
        run,
        data,
        backbone,
        stage="train",
        epochs=epochs,
        batch=batch,
        accumulate=accumulate,
        warmup=warmup,
        loss=loss,
        mixup=mixup,
        cutmix=cutmix,
        smoothing=smoothing,
        crop=crop,
        sampler=RepeatedAugmentation(repeats) if repeats != 1 else Instance(),
        **settings,
        **finetuning,
    )


def vit_crt(
    run: Run,
    data: Dataset,
    *,
    trained: Path | None = None,
    retrain_epochs: int = 10,
    batch: int = 128,
    accumulate: int = 1,
    lr: float = 2e-3,
    weight_decay: float = 0.05,
    smoothing: float = 0.1,
    keep: KeepRule = "last",
    crop: Crop = "auto",
    size: int | None = None,
    **first_stage: Any,
) -> Method[Labelled]:
    """Train a transformer with labels alone, then its classifier again on class-balanced batches.

        longtail train vit_crt --data cifar10-lt --root DATA --out runs/vit_crt
        longtail train vit_crt --data cifar10-lt --root DATA --trained runs/vit --out runs/vit_crt

    The stage of `vit`, then a new classifier on the frozen features, with class-balanced sampling
    and without mixing (cRT, Kang et al. 2020). `trained` takes the network of a finished run, such
    as one of `vit`, and skips the first stage.

    Cost: that of `vit`, and `retrain_epochs` more without a backward pass through the network.
    Ours: 35.7% after 20 epochs of `vit_mini` and 5 of its classifier, three seeds
    (deit_lt_seeds_cifar10_lt/vit-crt).
    Published: 68.9% with ViT-B on CIFAR-10-LT at imbalance 100 (Rangwani et al. 2024).
    """
    if trained is not None:
        run.ignore({*first_stage, "size"}, given="--trained")
        read_row(trained)  # refuses a run that is not finished
        saved = files.read(RunFolder(trained).model.path, trust=run.trust)
        classifier: nn.Module = saved.network
        size = saved.size
        record_origin(run, str(trained), data, role="features")
    else:
        size = size or data.size
        classifier = vit(
            run,
            data,
            pool="token",
            loss="ce",
            tau=1.0,
            test_prior=None,
            augment="randaugment",
            erase=ERASE,
            batch=batch,
            accumulate=accumulate,
            lr=lr,
            weight_decay=weight_decay,
            smoothing=smoothing,
            keep=keep,
            crop=crop,
            size=size,
            **first_stage,
        ).deploy()
    assert isinstance(classifier, Classifier)
    backbone = classifier.network
    head = Linear(backbone.dim, len(data.classes))
    step = scaled_lr(lr, data.train, batch=batch, accumulate=accumulate)
    return fit_stage(
        run,
        data,
        Classify(Frozen(backbone), head, CrossEntropy(smoothing=smoothing)),
        name="retrain",
        view=training_view("randaugment", size, flip=data.mirror, crop=crop),
        sampler=ClassBalanced(),
        epochs=retrain_epochs,
        batch=batch,
        accumulate=accumulate,
        optimizer=adamw(lr=step, weight_decay=weight_decay),
        schedule=Cosine(),
        ema=0.0,
        keep=keep,
    )
