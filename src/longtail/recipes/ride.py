"""Experts on one trunk (RIDE, Wang et al., ICLR 2021), with and without BatchFormer."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal

from longtail.core import Labelled, Method, Schedule
from longtail.data.augmentations import Rotated
from longtail.data.dataset import Dataset
from longtail.data.views import View
from longtail.engine.run import Run
from longtail.errors import LongtailError
from longtail.losses import LDAM, Diversity, class_balanced_weights, expert_temperature
from longtail.methods.ride import Ride
from longtail.naming import unknown
from longtail.nn import Classifier, CosineExperts, Network, build, files
from longtail.nn.networks import is_custom
from longtail.recipes.batchformer import Mode, Scope, batchformer_neck, lr_scales
from longtail.recipes.builders import (
    SCALE,
    OptimizerName,
    fit_stage,
    sgd_or_muon,
    training_view,
)
from longtail.recipes.teachers import check_classes, read_teacher, record_origin
from longtail.records.layout import RunFolder
from longtail.schedules import Cosine, Deferred, Steps

LrSchedule = Literal["steps", "tenths", "cosine"]

NETWORKS = ("fast_cnn", "resnet32", "resnet10", "resnet50")
"""The networks with experts, besides custom ones."""


def ride(
    run: Run,
    data: Dataset,
    *,
    network: str = "fast_cnn",
    experts: int = 3,
    epochs: int = 40,
    lr: float = 0.1,
    weight_decay: float = 5e-4,
    optimizer: OptimizerName = "default",
    warmup: float = 0.025,
    schedule: LrSchedule = "steps",
    defer: float = 0.8,
    diversity: float = -0.45,
    class_temperature: float = 0.05,
    augment: Literal[
        "weak", "jitter", "cutout", "autoaugment", "randaugment", "threeaugment", "rotated"
    ] = "cutout",
    batchformer: Mode = "off",
    plain_weight: float = 0.5,
    batchformer_weight: float = 0.5,
    loss_scale: float = 1.0,
    batchformer_lr_scale: float = 1.0,
    batchformer_scope: Scope = "local",
    init: Path | None = None,
    teacher: Path | None = None,
    size: int | None = None,
    **training: Any,
) -> Method[Labelled]:
    """Train several experts on shared first stages, and predict with the mean of their logits.

        longtail train ride --data cifar100-lt --root DATA --out runs/ride

    Each expert has cosine logits times 30 and LDAM's margins; `diversity` (-0.45 for CIFAR, -0.2
    for ImageNet-LT) pushes it away from the mean of all. From `defer` of training on, classes are
    re-weighted by their effective numbers, and the diversity has a temperature for each class, of
    which `class_temperature` is the share that follows the prior. The learning rate falls at 0.8
    and 0.9 of training to a hundredth and a ten-thousandth. RIDE's augmentation is `--augment
    rotated`: crop, flip, and a rotation by up to 15 degrees. For large images take `--network
    resnet10` or `resnet50`, whose experts have the last two of four stages, `--augment jitter`,
    and `--schedule tenths`: a tenth at 0.6 of training, a hundredth at 0.8.

    `--batchformer on` puts one BatchFormer before the heads of all experts, with a shared
    classifier: half the loss without it, half with it. The released code for CIFAR has
    `--plain-weight 1 --batchformer-weight 1`, and for ImageNet-LT no shared classifier,
    `--plain-weight 0 --batchformer-weight 1`, which its author reports to fail on CIFAR-100-LT.
    `--init RUN` starts from the weights of a finished `ride`: BatchFormer's two stages are a run
    without it and another from there with it. `--teacher RUN` distils from a finished run, of more
    experts in RIDE.

    Cost: 23 to 25 minutes for CIFAR-100-LT (imbalance 100), `fast_cnn` and 30 epochs on one core
    beside other work.
    Ours: 38.4% with `--protocol paper --epochs 30` there (cifar100_lt_ride_paco/ride).
    Published: 48.0% with ResNet-32, 3 experts and 200 epochs on CIFAR-100-LT at imbalance 100 (one
    stage, Hou et al. 2022).
    """
    size, classes = size or data.size, len(data.classes)
    backbone = _build_experts(network, size=size, experts=experts)
    head = CosineExperts(backbone.dim, classes, experts=experts, scale=SCALE)
    if init is not None:
        _load(Classifier(backbone, head), init, data, trust=run.trust)
    dim = backbone.dim // experts
    neck = batchformer_neck(
        dim,
        batchformer,
        plain_weight=plain_weight,
        batchformer_weight=batchformer_weight,
        loss_scale=loss_scale,
        heads=4 if dim > 128 else 1,
        scope=batchformer_scope,
    )
    for other, role in ((init, "beginning"), (teacher, "teacher")):
        if other is not None:
            record_origin(run, str(other), data, role=role)
    method = Ride(
        backbone,
        head,
        LDAM(data.counts, max_margin=0.5 * SCALE, scale=1.0),
        diversity=Diversity(diversity),
        neck=neck,
        weights=Deferred(class_balanced_weights(data.counts), defer),
        temperature=Deferred(expert_temperature(data.counts, class_temperature), defer),
        teacher=None if teacher is None else read_teacher(str(teacher), data, trust=run.trust),
    )
    view: View = Rotated(size, pad=size // 8, flip=data.mirror)
    if augment != "rotated":
        view = training_view(augment, size, flip=data.mirror)
    return fit_stage(
        run,
        data,
        method,
        name="train",
        view=view,
        epochs=epochs,
        optimizer=sgd_or_muon(
            optimizer,
            lr=lr,
            weight_decay=weight_decay,
            scales=lr_scales(neck, batchformer_lr_scale, default=1.0),
        ),
        schedule=lr_schedule(schedule, warmup),
        **training,
    )


def lr_schedule(name: LrSchedule, warmup: float) -> Schedule:
    """How the learning rate falls: RIDE's steps for CIFAR, those for ImageNet-LT, or a cosine."""
    if name == "cosine":
        return Cosine(warmup)
    if name == "tenths":
        return Steps((0.6, 0.8), (0.1, 0.01), warmup=warmup)
    return Steps((0.8, 0.9), (1e-2, 1e-4), warmup=warmup)


def _build_experts(network: str, *, size: int, experts: int) -> Network:
    """A network whose features are those of each expert, concatenated."""
    if not is_custom(network) and network not in NETWORKS:
        raise unknown(
            "network of ride", network, NETWORKS, more="; or package.module:function, with experts"
        )
    name = network if is_custom(network) else f"{network}_experts"
    backbone = build({"name": name, "size": size, "experts": experts}, trust=True)
    if backbone.dim % experts:
        raise LongtailError(
            f"expected features (N, {experts} * dim) of {experts} experts from {network}, got"
            f" (N, {backbone.dim}): concatenate those of each expert, as"
            " longtail.nn.experts.Experts does"
        )
    return backbone


def _load(classifier: Classifier, run: Path, data: Dataset, *, trust: bool) -> None:
    """Copy the weights of a finished run of the same network on the same classes."""
    trained, names, _ = files.read(RunFolder(run).model.path, trust=trust)
    check_classes(str(run), names, data)
    if trained.spec != classifier.spec:
        raise LongtailError(
            f"expected a run of the same network in --init, got\n  {trained.spec}\nat {run}, "
            f"where this one is\n  {classifier.spec}"
        )
    classifier.load_state_dict(trained.state_dict())
