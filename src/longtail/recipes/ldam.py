"""LDAM + DRW + SAM: DeiT-LT's first teacher (Cao et al. 2019, Rangwani et al. 2022)."""

from __future__ import annotations

from typing import Any, Literal

from longtail.core import Labelled, Method
from longtail.data.dataset import Dataset
from longtail.engine.run import Run
from longtail.losses import LDAM, class_balanced_weights
from longtail.methods.classify import Classify
from longtail.nn import Cosine as CosineHead
from longtail.recipes.builders import (
    SCALE,
    Augment,
    Crop,
    OptimizerName,
    RhoSchedule,
    Weights,
    build_backbone,
    fit_stage,
    mixing,
    sgd_or_muon,
    sharpness_aware,
    training_view,
)
from longtail.schedules import Cosine, Deferred, Steps


def ldam(
    run: Run,
    data: Dataset,
    *,
    network: str = "fast_cnn",
    weights: Weights = "random",
    epochs: int = 60,
    lr: float = 0.1,
    weight_decay: float = 2e-4,
    optimizer: OptimizerName = "default",
    warmup: float = 0.025,
    schedule: Literal["steps", "cosine"] = "cosine",
    margin: float = 0.5,
    defer: float = 0.8,
    rho: float = 0.1,
    rho_schedule: RhoSchedule = "constant",
    augment: Augment = "weak",
    crop: Crop = "part",
    mixup: float = 0.0,
    cutmix: float = 0.0,
    size: int | None = None,
    **training: Any,
) -> Method[Labelled]:
    """Train with wider margins for rarer classes, late re-weighting and SAM: a teacher for DeiT-LT.

        longtail train ldam --data cifar10-lt --root DATA --out runs/teacher
        longtail train deit_lt --data cifar10-lt --root DATA --teacher runs/teacher --out runs/deit

    LDAM (Cao et al. 2019) on cosine logits times 30, classes re-weighted by their effective numbers
    from `defer` of training on, and sharpness-aware minimization of radius `rho` (Rangwani et al.
    2022): LDAM + DRW + SAM, the first teacher of DeiT-LT. `--rho 0` is LDAM + DRW, `--defer 1`
    LDAM, and with `--margin 0` as well cross entropy. With `--schedule steps`, as published, the
    learning rate falls to a hundredth at 0.8 of training, and to a ten-thousandth at 0.9. Radius
    and schedule are for `fast_cnn`, chosen on validation images of CIFAR-10-LT (the plan
    deit_lt_teacher_tuning); published are 0.8 and steps for ResNet-32, whose weights are larger, on
    CIFAR at imbalance 100, and for ImageNet-LT and iNaturalist `--rho 0.5 --rho-schedule rising`,
    which begins at 0.05, with margin 0.3.

    Cost: sharpness-aware minimization needs two passes per batch; `--dry-run` estimates it.
    Ours: 75.0% with `fast_cnn` in 60 epochs and a tenth of the images held out, one seed
    (deit_lt_teachers/flat).
    Published: 81.9% with ResNet-32 and 200 epochs on CIFAR-10-LT at imbalance 100, 77.0% without
    SAM (Rangwani et al. 2024).
    """
    size, classes = size or data.size, len(data.classes)
    backbone = build_backbone(run, network, weights, data=data, size=size)
    method = Classify(
        backbone,
        CosineHead(backbone.dim, classes, scale=SCALE),
        LDAM(data.counts, max_margin=margin * SCALE, scale=1.0),
        weights=Deferred(class_balanced_weights(data.counts), defer),
    )
    inner = sgd_or_muon(optimizer, lr=lr, weight_decay=weight_decay, nesterov=False)
    return fit_stage(
        run,
        data,
        method,
        name="train",
        view=training_view(augment, size, flip=data.mirror, crop=crop),
        epochs=epochs,
        optimizer=sharpness_aware(inner, rho, rho_schedule),
        schedule=(
            Steps((0.8, 0.9), (1e-2, 1e-4), warmup=warmup)
            if schedule == "steps"
            else Cosine(warmup)
        ),
        mix=mixing(classes, mixup=mixup, cutmix=cutmix),
        **training,
    )
