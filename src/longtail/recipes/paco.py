"""Contrast with learnt centres (PaCo, Cui et al., ICCV 2021), with and without BatchFormer."""

from __future__ import annotations

from typing import Any, Literal

from longtail.core import LabelledViews, Method
from longtail.data.augmentations import SimClr
from longtail.data.dataset import Dataset
from longtail.data.views import TwoViews
from longtail.engine.run import Run
from longtail.errors import LongtailError
from longtail.losses import ParametricContrastive
from longtail.methods.paco import PaCo
from longtail.recipes.batchformer import Mode, Scope, batchformer_neck, lr_scales
from longtail.recipes.builders import (
    OptimizerName,
    RhoSchedule,
    Weights,
    build_backbone,
    default_head,
    fit_stage,
    jittered_part,
    sgd_or_muon,
    sharpness_aware,
    training_view,
)
from longtail.schedules import Cosine, Steps

Views = Literal["cifar", "imagenet", "places"]


def paco(
    run: Run,
    data: Dataset,
    *,
    network: str = "fast_cnn",
    weights: Weights = "random",
    epochs: int = 40,
    batch: int = 128,
    accumulate: int = 1,
    lr: float = 0.05,
    weight_decay: float = 5e-4,
    optimizer: OptimizerName = "default",
    warmup: float = 0.025,
    schedule: Literal["steps", "cosine"] = "steps",
    alpha: float = 0.01,
    temperature: float = 0.05,
    queue: int = 1024,
    momentum: float = 0.999,
    dim: int = 32,
    rho: float = 0.0,
    rho_schedule: RhoSchedule = "constant",
    blur: float = 0.5,
    views: Views = "cifar",
    batchformer: Mode = "off",
    plain_weight: float = 0.5,
    batchformer_weight: float = 0.5,
    loss_scale: float = 1.0,
    batchformer_lr_scale: float = 0.1,
    batchformer_scope: Scope = "local",
    size: int | None = None,
    **training: Any,
) -> Method[LabelledViews]:
    """Learn class centres, and contrast every image with them and with other images.

        longtail train paco --data cifar100-lt --root DATA --out runs/paco

    One view of an image (crop, flip, AutoAugment, cutout) is classified by the centres, and
    contrasted with another view (SimCLR's) of all images of the batch and with the last `queue`
    images, as the momentum encoder represents them. The log prior is added to the centres' logits
    as in `balanced_softmax`; `alpha` is the weight of each image of the same class, where that of
    the centre is 1. The defaults are those of PaCo for CIFAR; ImageNet-LT has alpha 0.05,
    temperature 0.2, queue 8192 and dim 128. The learning rate falls to a tenth at 0.8 of training,
    and to a hundredth at 0.9, or with `--schedule cosine` all the time.

    `--views imagenet` is for large images: a random part, flip, colour jitter and RandAugment,
    contrasted with a part that is jittered, sometimes grey and blurred; `places` contrasts two of
    the latter.

    `blur` is the probability that the second view is blurred: 0.5 as in the released code; runs of
    earlier versions had 0.

    `rho` is the radius of sharpness-aware minimization (Foret et al. 2021), 0 for none: DeiT-LT's
    second teacher has it, of a radius that was not disclosed.

    `--batchformer on` puts one BatchFormer after both networks; its released code has none for
    PaCo, so this follows the appendix.

    Cost: 20 to 29 minutes for CIFAR-100-LT (imbalance 100), `fast_cnn` and 30 epochs on one core
    beside other work.
    Ours: 32.3% with `--protocol paper --epochs 30` there (cifar100_lt_ride_paco/paco).
    Published: 51.9% with ResNet-32 and 400 epochs on CIFAR-100-LT at imbalance 100, with
    BatchFormer 52.4% (Hou et al. 2022).
    """
    if queue < batch * accumulate:
        raise LongtailError(
            f"--queue {queue} is shorter than the {batch * accumulate} images of a step: "
            f"pass --queue {batch * accumulate} or more"
        )
    size, classes = size or data.size, len(data.classes)
    backbone = build_backbone(run, network, weights, data=data, size=size)
    head = default_head(network, backbone, classes)
    loss = ParametricContrastive(data.counts, alpha=alpha, temperature=temperature)
    neck = batchformer_neck(
        backbone.dim,
        batchformer,
        plain_weight=plain_weight,
        batchformer_weight=batchformer_weight,
        scope=batchformer_scope,
        loss_scale=loss_scale,
    )
    inner = sgd_or_muon(
        optimizer,
        lr=lr,
        weight_decay=weight_decay,
        nesterov=False,
        scales=lr_scales(neck, batchformer_lr_scale),
    )
    return fit_stage(
        run,
        data,
        PaCo(backbone, head, loss, dim=dim, size=queue, momentum=momentum, neck=neck),
        name="train",
        view=two_views(views, size, flip=data.mirror, blur=blur),
        epochs=epochs,
        batch=batch,
        accumulate=accumulate,
        optimizer=sharpness_aware(inner, rho, rho_schedule),
        schedule=(
            Steps((0.8, 0.9), (0.1, 0.01), warmup=warmup) if schedule == "steps" else Cosine(warmup)
        ),
        **training,
    )


def two_views(views: Views, size: int, *, flip: bool, blur: float) -> TwoViews:
    """The two views of an image in PaCo's code for CIFAR, ImageNet-LT or Places-LT."""
    if views == "cifar":
        first = training_view("autoaugment", size, flip=flip)
        return TwoViews(first, SimClr(size, blur=blur, flip=flip))
    contrasted = jittered_part(size, flip=flip, grey=0.2, blur=blur)
    if views == "places":
        return TwoViews(contrasted, contrasted)
    return TwoViews(jittered_part(size, flip=flip, ops="rand-n2-m10-mstd0.5"), contrasted)
