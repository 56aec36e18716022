"""Plain supervised training: cross entropy, and the same with the prior in the logits."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, Literal

from longtail.core import Labelled, Method
from longtail.data.dataset import Dataset
from longtail.data.samplers import (
    ClassBalanced,
    Instance,
    ProgressivelyBalanced,
    Sampler,
    SquareRoot,
)
from longtail.engine.run import Run
from longtail.errors import LongtailError
from longtail.losses import CrossEntropy, LogitAdjusted
from longtail.methods.classify import Classify
from longtail.nn import Frozen, Neck
from longtail.recipes.batchformer import (
    Mode,
    Scope,
    batchformer_neck,
    lr_scales,
    note_frozen_inputs,
)
from longtail.recipes.builders import (
    Augment,
    OptimizerName,
    Weights,
    build_backbone,
    default_head,
    default_optimizer,
    fit_stage,
    mixing,
    training_view,
)
from longtail.schedules import Cosine

Sampling = Literal["instance", "class_balanced", "square_root", "progressive"]


def cross_entropy(run: Run, data: Dataset, **keywords: Any) -> Method[Labelled]:
    """Train with cross entropy: the baseline, which neglects rare classes.

        longtail train cross_entropy --data cifar10-lt --root DATA --out runs/plain

    Networks with layer norm, such as transformers, use AdamW (learning rate 1e-3, weight decay
    0.05), all others SGD with Nesterov momentum (0.1, 5e-4); `lr` and `weight_decay` override
    that; `--optimizer muon` orthogonalises the steps of matrices and filters (Jordan et al. 2024).
    The learning rate warms up, then falls as a cosine. The weights kept are the moving
    average with decay `ema` at the last epoch; `--ema 0` keeps the raw weights, and `--keep best`
    those of the epoch with the best validation score. `--network timm:NAME --weights timm` starts
    from timm's pretrained weights, and `--weights RUN` from the encoder of a run, such as one of
    `moco_v2`, at a tenth of these learning rates; the row names the data that they were trained on.
    `--batchformer on` and its controls are as in `balanced_softmax`.

    Cost: 15 minutes for CIFAR-10-LT (imbalance 100), `fast_cnn` and 40 epochs on one core, 35 on a
    busy one.
    Ours: 71.6% with `--protocol paper --tta flip` (cifar10_lt_baselines/plain-paper).
    Published: 70.4% with ResNet-32 and 200 epochs on CIFAR-10-LT at imbalance 100 (Cao et al.
    2019).
    """
    return balanced_softmax(run, data, tau=0.0, warmup_start=0.0, **keywords)


def balanced_softmax(
    run: Run,
    data: Dataset,
    *,
    tau: float = 1.0,
    batchformer: Mode = "off",
    plain_weight: float = 0.5,
    batchformer_weight: float = 0.5,
    loss_scale: float = 1.0,
    batchformer_layers: int = 1,
    batchformer_lr_scale: float = 0.1,
    batchformer_scope: Scope = "local",
    **keywords: Any,
) -> Method[Labelled]:
    """Train with the log prior added to the logits, so that rare classes count as much as others.

        longtail train balanced_softmax --data cifar10-lt --root DATA --out runs/balanced

    Cross entropy of logits + tau * log prior: Balanced Softmax (Ren et al. 2020) at tau = 1, which
    is also logit adjustment (Menon et al. 2021), and cross entropy at tau = 0. Everything else is
    as in `cross_entropy`. Another `sampling` than `instance` corrects for rare classes a second
    time: use it with cross_entropy, or with a lower tau.

    `--batchformer on` lets the images of a batch attend to each other before the head while
    training (Hou et al. 2022), at `batchformer_lr_scale` of the learning rate: half the loss
    without it and half with it, as in its Algorithm 1. The released code has `--plain-weight 1.5
    --batchformer-weight 1.5`; `--plain-weight 0 --batchformer-weight 1` has no shared classifier.
    Controls: "frozen" keeps BatchFormer's random initial weights, "self" lets each image attend to
    itself alone, and `--loss-scale 1.5` or 0.5 scales the loss of the baseline. Its settings for
    CIFAR-100-LT are the sweep `batchformer-paper`.

    `--features frozen` trains the classifier alone, and BatchFormer, on the features of `weights`:
    the second stage of balanced meta-softmax (Ren et al. 2020), without its meta-sampler.

    Cost: 15 minutes for CIFAR-10-LT (imbalance 100), `fast_cnn` and 40 epochs on one core, 35 on a
    busy one.
    Ours: 81.2% with `--protocol paper --tta flip` (cifar10_lt_baselines/balanced-paper).
    Published: 77.7% with ResNet-32 and 200 epochs on CIFAR-10-LT at imbalance 100 (Menon et al.
    2021); 50.7% with ResNet-32 and 13,000 steps of 512 images on CIFAR-100-LT at imbalance 100, and
    51.7% with BatchFormer (Hou et al. 2022).
    """
    neck = partial(
        batchformer_neck,
        mode=batchformer,
        plain_weight=plain_weight,
        batchformer_weight=batchformer_weight,
        loss_scale=loss_scale,
        layers=batchformer_layers,
        scope=batchformer_scope,
    )
    return train_classifier(
        run, data, tau=tau, neck=neck, neck_lr_scale=batchformer_lr_scale, **keywords
    )


def train_classifier(
    run: Run,
    data: Dataset,
    *,
    tau: float,
    neck: Callable[[int], Neck],
    neck_lr_scale: float,
    network: str = "fast_cnn",
    weights: Weights = "random",
    features: Literal["trained", "frozen"] = "trained",
    epochs: int = 40,
    lr: float | None = None,
    weight_decay: float | None = None,
    optimizer: OptimizerName = "default",
    warmup: float = 0.15,
    warmup_start: float = 0.0,
    augment: Augment = "cutout",
    sampling: Sampling = "instance",
    mixup: float = 0.0,
    smoothing: float = 0.0,
    size: int | None = None,
    **training: Any,
) -> Method[Labelled]:
    """Train a network with cross entropy of logits + `tau` * log prior: the two recipes above.

    Args:
        neck: builds what stands before the head, from the width of the features.
        neck_lr_scale: learning rate of the neck, as a share of the network's.
    """
    size, classes = size or data.size, len(data.classes)
    if features == "frozen" and weights == "random":
        raise LongtailError("--features frozen keeps random features: pass --weights")
    backbone = build_backbone(run, network, weights, data=data, size=size)
    head = default_head(network, backbone, classes)
    # After the head, so that one seed gives one network with and without it.
    before_head = neck(backbone.dim)
    body = Frozen(backbone) if features == "frozen" else backbone
    note_frozen_inputs(run, body, before_head)
    loss = _loss(data, tau=tau, smoothing=smoothing)
    samplers: dict[Sampling, Sampler] = {
        "instance": Instance(),
        "class_balanced": ClassBalanced(),
        "square_root": SquareRoot(),
        "progressive": ProgressivelyBalanced(epochs=epochs),
    }
    return fit_stage(
        run,
        data,
        Classify(body, head, loss, neck=before_head),
        name="train",
        view=training_view(augment, size, flip=data.mirror),
        sampler=samplers[sampling],
        epochs=epochs,
        optimizer=default_optimizer(
            backbone,
            weights,
            lr=lr,
            weight_decay=weight_decay,
            optimizer=optimizer,
            scales=lr_scales(before_head, neck_lr_scale),
        ),
        schedule=Cosine(warmup, start=warmup_start),
        mix=mixing(classes, mixup=mixup, cutmix=0.0),
        **training,
    )


def _loss(data: Dataset, *, tau: float, smoothing: float) -> CrossEntropy:
    """Cross entropy of logits + `tau` * log prior, which classes without training images lack."""
    unseen = int((data.counts == 0).sum())
    if unseen and tau:
        raise LongtailError(
            f"balanced_softmax needs training images of every class, and {data.name} has none of"
            f" {unseen:,} classes: use cross_entropy, or a recipe for unseen classes such as eszsl"
        )
    if unseen:  # a softmax of the seen classes: the logits of all others only fall
        return CrossEntropy(smoothing=smoothing)
    return LogitAdjusted(data.counts, tau=tau, smoothing=smoothing)
