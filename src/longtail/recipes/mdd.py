"""Domain adaptation with the margin disparity discrepancy (Zhang et al., ICML 2019)."""

from __future__ import annotations

from typing import Literal

from torch import nn

from longtail.core import Method, Stage
from longtail.data.batches import PairedBatches, StepsPerEpoch
from longtail.data.dataset import Dataset, Split
from longtail.data.loader import Drawn, TrainLoader
from longtail.engine.optim import sgd
from longtail.engine.run import Run
from longtail.errors import LongtailError
from longtail.methods.mdd import MDD, Adapted
from longtail.nn import Embedded, Linear
from longtail.recipes.batchformer import Mode, Scope, batchformer_neck, lr_scales
from longtail.recipes.builders import (
    Augment,
    Weights,
    build_backbone,
    training_view,
    validation,
)
from longtail.schedules import InversePower, Sigmoid

TARGET_SEED = 1_000_003
"""Added to the view seed for the target: its order must not follow that of the source."""


def mdd(
    run: Run,
    data: Dataset,
    *,
    network: str = "fast_cnn",
    weights: Weights = "random",
    epochs: int = 20,
    steps: int | None = None,
    batch: int = 32,
    lr: float = 0.004,
    lr_decay: float = 4.0,
    weight_decay: float = 5e-4,
    backbone_lr_scale: float | None = None,
    bottleneck: int = 1024,
    head_width: int = 1024,
    dropout: float = 0.5,
    gamma: float = 4.0,
    trade_off: float = 1.0,
    reversal: float = 0.1,
    reversal_speed: float = 20.0,
    augment: Augment = "weak",
    batchformer: Mode = "off",
    batchformer_on: Literal["bottleneck", "backbone"] = "bottleneck",
    plain_weight: float = 0.5,
    batchformer_weight: float = 0.5,
    loss_scale: float = 1.0,
    batchformer_layers: int = 1,
    batchformer_lr_scale: float = 1.0,
    batchformer_scope: Scope = "local",
    size: int | None = None,
) -> Method[Adapted]:
    """Adapt a classifier from labelled images of one domain to unlabelled images of another.

        longtail train mdd --data OFFICE31 --train-domain amazon --test-domain webcam
        --protocol adapt --out runs/mdd

    An adversary learns to agree with the classifier on source images and to disagree on target
    images; features are learned so that it cannot (Zhang et al. 2019, `longtail.methods.MDD`). The
    target images are those of the test domain, without their classes: `--protocol adapt` provides
    them, and `compare` does not rank such runs with those that never used them. Their classes
    select nothing: the last epoch is tested. The baseline without adaptation is `erm` or
    `cross_entropy` on the same data, or `--trade-off 0`, whose batch norm uses target images.

    A batch has `batch` source images and as many target images. Published settings are those of
    TLL: `--network timm:resnet50 --weights timm --steps 1000` for Office-31, and for VisDA-2017
    `timm:resnet101 --epochs 30 --batch 36 --lr-decay 6 --reversal-speed 30` with `--scoring
    balanced`: VisDA ranks by the mean over classes. The backbone of pretrained weights has a tenth
    of the learning rate. On feature vectors, `--network vectors` trains the bottleneck and the
    heads.

    `--batchformer on` lets the images of both domains attend to each other while training (Hou et
    al. 2022), after the bottleneck. In the released code it stands before the bottleneck
    (`--batchformer-on backbone`), whose batch norm there mixes both streams; here it normalises
    each by itself.

    Published: 76.8% (mean over classes) with ResNet-101 on VisDA-2017, 77.8% with BatchFormer (Hou
    et al. 2022).
    """
    if data.unlabelled is None:
        raise LongtailError(
            f"mdd adapts to test images without their classes, and {data.name} was opened without"
            " them: pass --protocol adapt, with --train-domain and --test-domain for two domains"
        )
    if data.has_vectors:
        run.ignore({"augment"}, given="feature vectors")
    size, classes = size or data.size, len(data.classes)
    backbone = build_backbone(run, network, weights, data=data, size=size)
    bottlenecked = Embedded(backbone, [bottleneck], norm="batch", dropout=dropout)
    hidden = Embedded(bottlenecked, [head_width], dropout=dropout)
    head, adversary = (
        Linear(head_width, classes),
        nn.Sequential(
            nn.Linear(bottleneck, head_width),
            nn.ReLU(),
            nn.Dropout(dropout),
            nn.Linear(head_width, classes),
        ),
    )
    _initialise(bottlenecked.layers, hidden.layers, head, adversary)
    # After the heads, so that one seed gives one network with and without it.
    neck = batchformer_neck(
        bottleneck if batchformer_on == "bottleneck" else backbone.dim,
        batchformer,
        plain_weight=plain_weight,
        batchformer_weight=batchformer_weight,
        loss_scale=loss_scale,
        layers=batchformer_layers,
        scope=batchformer_scope,
    )
    if batchformer == "off" and batchformer_on != "bottleneck":
        raise LongtailError(
            "--batchformer-on has no effect without BatchFormer: pass --batchformer on, or remove"
            " it"
        )
    scales = lr_scales(neck, batchformer_lr_scale, default=1.0)
    if any(p.requires_grad for p in backbone.parameters()):
        usual = 1.0 if weights == "random" else 0.1
        scales["network.network.network"] = (
            usual if backbone_lr_scale is None else backbone_lr_scale
        )
    elif backbone_lr_scale is not None:
        raise LongtailError(
            "--backbone-lr-scale has no effect on feature vectors, whose backbone is not trained:"
            " remove it"
        )
    view = training_view(augment, size, flip=data.mirror)

    def loader(split: Split, seed: int) -> TrainLoader[Drawn]:
        return TrainLoader(split, view=view, batch=batch, seed=seed, workers=run.machine.workers)

    source = loader(data.train, run.view_seed)
    return run.fit(
        Stage(
            name="train",
            method=MDD(
                hidden,
                head,
                adversary,
                gamma=gamma,
                trade_off=trade_off,
                reversal=Sigmoid(reversal, speed=reversal_speed),
                neck=neck,
                neck_on=batchformer_on,
            ),
            data=PairedBatches(
                source if steps is None else StepsPerEpoch(source, steps=steps),
                unlabelled=loader(data.unlabelled, run.view_seed + TARGET_SEED),
            ),
            epochs=epochs,
            optimizer=sgd(lr=lr, weight_decay=weight_decay, scales=scales),
            schedule=InversePower(lr_decay),
            evals=validation(data, size, workers=run.machine.workers),
        )
    )


def _initialise(
    bottleneck: nn.Module, hidden: nn.Module, head: nn.Module, adversary: nn.Module
) -> None:
    """The initial weights of the released code."""
    for part, deviation, bias in (
        (bottleneck, 0.005, 0.1),
        (hidden, 0.01, 0.0),
        (head, 0.01, 0.0),
        (adversary, 0.01, 0.0),
    ):
        for module in part.modules():
            if isinstance(module, nn.Linear):
                nn.init.normal_(module.weight, 0.0, deviation)
                nn.init.constant_(module.bias, bias)
