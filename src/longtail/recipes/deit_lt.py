"""DeiT-LT and DeiT: distillation from a convolutional teacher (Rangwani et al., CVPR 2024)."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, Literal

from torch import nn

from longtail.analysis.distillation import analyse_teacher, analyse_tokens, analyse_training
from longtail.analysis.writing import warn_on_error
from longtail.core import BatchTransform, Method, Schedule, Stage, constant, nothing
from longtail.data import label_cache, teacher_labels
from longtail.data.dataset import Dataset
from longtail.data.loader import TrainLoader
from longtail.data.samplers import Instance, RepeatedAugmentation
from longtail.data.views import TwoViews
from longtail.engine.run import Run
from longtail.engine.seeding import seed_all
from longtail.errors import LongtailError
from longtail.losses import CrossEntropy, LogitAdjusted, class_balanced_weights
from longtail.methods.distill_tokens import DistillTokens, Release, Taught
from longtail.nn import Network, TokenHeads
from longtail.nn.networks import is_custom
from longtail.recipes.builders import (
    TRANSFORMER_ROWS,
    Augment,
    Crop,
    KeepRule,
    OptimizerName,
    Weights,
    adamw_or_muon,
    build_backbone,
    choose_transformer,
    mixing,
    scaled_lr,
    select_weights,
    training_view,
    validation,
)
from longtail.recipes.ldam import ldam
from longtail.recipes.paco import paco
from longtail.recipes.supervised import balanced_softmax
from longtail.recipes.teachers import find_teacher
from longtail.schedules import Cosine, Deferred

SEPARATE_ROWS = TRANSFORMER_ROWS
DEFER = 0.917  # epoch 1,100 of 1,200
# 1e-5 of 2.5e-4 in the released code: re-weighting begins when the learning rate is nearly there.
FLOOR = 0.04


def deit_lt(
    run: Run,
    data: Dataset,
    *,
    teacher: str | None = None,
    teacher_method: Literal["ldam", "paco", "balanced_softmax"] = "ldam",
    teacher_network: str = "fast_cnn",
    teacher_epochs: int = 60,
    teacher_rho: float = 0.1,
    teacher_schedule: Literal["steps", "cosine"] | None = None,
    teacher_size: int | None = None,
    teacher_view: Literal["student", "weak"] = "student",
    augment: Augment = "randaugment",
    mixup: float = 0.8,
    cutmix: float = 1.0,
    mix_until: float | None = None,
    distill: Literal["hard", "soft"] = "hard",
    class_loss: Literal["cross_entropy", "balanced_softmax"] = "cross_entropy",
    defer: float = DEFER,
    release: float | None = None,
    answer: Literal["logits", "probabilities", "cls", "dist"] = "logits",
    **student: Any,
) -> Method[Taught]:
    """Train a convolutional teacher, then a transformer that learns from labels and the teacher.

        longtail train deit_lt --data cifar10-lt --root DATA --out runs/deit_lt

    The class token learns the smoothed labels, and becomes an expert on frequent classes. The
    distillation token learns the classes that the teacher predicts for the student's images, which
    are augmented and mixed far beyond what the teacher was trained on; from `defer` of training on
    it is re-weighted by effective numbers, and becomes an expert on rare classes. Mixing ends there
    too, unless `mix_until` says otherwise (1.0 for ImageNet-LT and iNaturalist). The prediction is
    the mean of both tokens' logits; accuracies of each are reported as well. `release` starts to
    shift the distillation token from the teacher's classes to the labels at that share of training.

    These depart from the paper. With `--distill soft` the teacher's probabilities are learnt, not
    its classes. `--class-loss balanced_softmax` adds the log prior to the logits of the class
    token in training. `--defer 1` leaves re-weighting out. `--answer` predicts by the mean of both
    tokens' probabilities, or by one token. `--ema` keeps a moving average of the student's weights.
    `--weights RUN` starts from the encoder of a run, such as one of `masked_autoencoder`, whose
    class token becomes both tokens.

    The teacher is trained first, as stage `teacher`: LDAM + DRW + SAM, PaCo + SAM or, without SAM,
    `balanced_softmax` on `teacher_network` (ResNet-50 for large images is timm:resnet50). The
    radius of SAM, `teacher_rho`, is for `fast_cnn`, and so is the schedule that `ldam` has unless
    `teacher_schedule` says otherwise; with resnet32 they are published as 0.8 and steps. The
    teacher gets the images at native resolution, whatever the student's `size`, or at
    `teacher_size`, and its network is left in `teacher/model`. `--teacher RUN` takes the
    network of a finished run, or of `OTHER/teacher`, and `--teacher timm:NAME` a pretrained one
    of timm. Its labels for every image are cached (see `longtail.data.label_cache`). With
    `--teacher-view weak --mixup 0 --cutmix 0` it labels a weakly augmented view instead: in
    distribution, as in table 1.

    Attention of the tokens, the rank of their features, their distance over epochs and the
    teacher's uncertainty about the student's images are left in `analysis/` and shown in the report
    (figures 3 to 5).

    At up to 32 pixels RandAugment gets a crop that is shifted by up to an eighth, with black around
    it, as in the released code; `--crop part` gives it a random part of 8 to 100% of the image, as
    above 32 pixels, and as runs of earlier versions had it.

    `lr` is for 256 images per step and is scaled with them; the default is for `vit_mini`.
    Re-weighting begins late, at a low learning rate: in trainings of tens of epochs, where it then
    has few steps, `--defer 0.8` gives it more.

    Paper: ViT-B at 224 pixels, 1,200 epochs at an effective batch of 1,024 and learning rate 5e-4,
    warmup 5 epochs, re-weighting from epoch 1,100: the sweep `deit-lt-paper`.

    Cost: 87 minutes on two threads for CIFAR-10-LT (imbalance 100), `vit_mini` and 60 epochs, and
    48 on one for the teacher before.
    Ours: 43.5% with these, `--defer 0.8`, `--mix-until 0.8` and `--repeats 1`, one seed
    (deit_lt_cifar10_lt/student).
    Published: 84.8% on CIFAR-10-LT at imbalance 100, 87.5% with PaCo + SAM as teacher (teachers:
    81.9% and 86.8%).
    """
    if teacher is not None:  # `teacher_method` may still say what it is
        of_teacher = ("network", "epochs", "rho", "schedule", "size")
        run.ignore([f"teacher_{name}" for name in of_teacher], given="--teacher")
    if teacher_view == "weak" and (mixup or cutmix):
        raise LongtailError(
            "--teacher-view weak labels an image before mixing: pass --mixup 0 --cutmix 0"
        )
    flat: dict[str, Any] = {"rho": teacher_rho}
    flat |= {} if teacher_schedule is None else {"schedule": teacher_schedule}
    if teacher is None and teacher_method == "balanced_softmax":
        run.ignore(("teacher_rho", "teacher_schedule"), given="--teacher-method balanced_softmax")
    teachers: dict[str, Callable[..., Method[Any]]] = {
        "ldam": partial(ldam, **flat),
        "paco": partial(paco, **flat),
        "balanced_softmax": balanced_softmax,
    }
    class_losses: dict[str, Callable[..., nn.Module]] = {
        "cross_entropy": CrossEntropy,
        "balanced_softmax": partial(LogitAdjusted, data.counts),
    }
    until = defer if mix_until is None else mix_until
    return distil(
        run,
        data,
        teacher=teacher,
        train_teacher=partial(
            teachers[teacher_method],
            network=teacher_network,
            epochs=teacher_epochs,
            size=teacher_size,
        ),
        teacher_view=teacher_view,
        compare_views=teacher_view == "student",
        labels=teacher_labels.SoftLabels() if distill == "soft" else teacher_labels.HardLabels(),
        build_loss=class_losses[class_loss],
        build_heads=partial(TokenHeads, answer=answer),
        class_weights=Deferred(class_balanced_weights(data.counts), defer),
        teacher_share=constant if release is None else Release(release),
        augment=augment,
        mix=mixing(len(data.classes), mixup=mixup, cutmix=cutmix, until=until),
        **student,
    )


def deit(
    run: Run,
    data: Dataset,
    *,
    teacher: str | None = None,
    teacher_network: str = "fast_cnn",
    teacher_epochs: int = 60,
    teacher_size: int | None = None,
    teacher_repeats: int = 1,
    mixup: float = 0.8,
    cutmix: float = 1.0,
    crop: Crop = "auto",
    **student: Any,
) -> Method[Taught]:
    """Train a transformer with a distillation token from a teacher of the same views: DeiT.

        longtail train deit --data cifar10-lt --root DATA --out runs/deit

    Hard distillation (Touvron et al. 2021, equation 3) without re-weighting: what DeiT-LT departs
    from. The teacher is trained first with cross entropy on the student's augmented and mixed
    views, so that they are in its distribution while it teaches. All else as in `deit_lt`.
    Published is `--teacher-network timm:regnety_160 --teacher-size 224 --teacher-repeats 3` (table
    S.2).

    Cost: that of `deit_lt`, with a teacher that takes half as long, for it is trained without SAM.
    Published: 70.2% with ViT-B and a RegNetY-16GF teacher on CIFAR-10-LT at imbalance 100 (Rangwani
    et al. 2024).
    """
    if teacher is not None:
        of_teacher = ("network", "epochs", "size", "repeats")
        run.ignore([f"teacher_{name}" for name in of_teacher], given="--teacher")
    train_teacher = partial(
        ldam,
        network=teacher_network,
        epochs=teacher_epochs,
        size=teacher_size,
        sampler=RepeatedAugmentation(teacher_repeats) if teacher_repeats != 1 else Instance(),
        augment="randaugment",
        mixup=mixup,
        cutmix=cutmix,
        crop=crop,
        margin=0.0,  # with no re-weighting either, LDAM is cross entropy
        defer=1.0,
        rho=0.0,
    )
    return distil(
        run,
        data,
        teacher=teacher,
        train_teacher=train_teacher,
        teacher_view="student",
        compare_views=False,
        labels=teacher_labels.HardLabels(),
        build_loss=CrossEntropy,
        build_heads=TokenHeads,
        augment="randaugment",
        crop=crop,
        mix=mixing(len(data.classes), mixup=mixup, cutmix=cutmix),
        **student,
    )


def distil(
    run: Run,
    data: Dataset,
    *,
    teacher: str | None,
    train_teacher: Callable[[Run, Dataset], Method[Any]],
    teacher_view: Literal["student", "weak"],
    compare_views: bool,
    labels: teacher_labels.Labels,
    build_loss: Callable[..., nn.Module],
    build_heads: Callable[[int, int], TokenHeads],
    class_weights: nn.Module | None = None,
    teacher_share: Schedule = constant,
    augment: Augment,
    mix: BatchTransform,
    network: str = "auto",
    weights: Weights = "random",
    epochs: int = 60,
    batch: int = 128,
    accumulate: int = 1,
    lr: float = 2e-3,
    weight_decay: float = 0.05,
    optimizer: OptimizerName = "default",
    warmup: float = 0.05,
    drop_path: float = 0.1,
    repeats: int = 3,
    smoothing: float = 0.1,
    ema: float = 0.0,
    keep: KeepRule = "last",
    crop: Crop = "auto",
    patch: int | None = None,
    size: int | None = None,
) -> Method[Taught]:
    """Train a transformer with a distillation token, in stage `student`.

    Args:
        teacher: a finished run or timm:NAME; None trains a teacher first with `train_teacher`.
        compare_views: whether to record the teacher's uncertainty about its own and these images.
        labels: what of the teacher's predictions is learnt.
        build_loss: builds the loss of the class token from its `smoothing`.
        build_heads: builds the heads of both tokens from the width of the features and the classes.
        class_weights: class weights of the distillation token.
        teacher_share: how far the distillation token follows the teacher rather than the labels.
        mix: what happens to a batch before the teacher labels it.
    """
    backbone, heads = _build_student(
        run,
        data,
        network,
        weights,
        size=size or data.size,
        patch=patch,
        drop_path=drop_path,
        build_heads=build_heads,
    )
    view = training_view(augment, backbone.spec["size"], flip=data.mirror, crop=crop)
    if teacher_view == "weak":
        view = TwoViews(view, training_view("weak", view.size, flip=data.mirror))
        mix = teacher_labels.SplitViews()
    learnt, run.pretraining = run.pretraining, None
    labeller = find_teacher(run, data, teacher, train_teacher)
    run.pretraining = "; ".join(filter(None, (learnt, run.pretraining))) or None
    loader = TrainLoader(
        data.train,
        view=view,
        batch=batch,
        seed=run.view_seed,
        sampler=RepeatedAugmentation(repeats) if repeats != 1 else Instance(),
        workers=run.machine.workers,
    )
    labelled = teacher_labels.AddTeacherLabels(labeller, labels)
    add_labels: BatchTransform = labelled
    if run.will_train("student"):  # an estimate measures what a first student costs
        key = label_cache.cache_key(
            labeller,
            loader,
            data,
            mix=mix,
            seed=run.seed,
            stage="student",
            epochs=epochs,
            accumulate=accumulate,
            labels=labels,
        )
        add_labels = label_cache.cached_labels(
            labelled,
            key,
            epochs=epochs,
            draws=len(data.train),
            classes=len(data.classes),
        )
    averages, kept = select_weights(keep, ema=ema, data=data)
    loss = build_loss(smoothing=smoothing)
    student = run.fit(
        Stage(
            name="student",
            method=DistillTokens(backbone, heads, loss, weights=class_weights, trust=teacher_share),
            data=loader,
            epochs=epochs,
            accumulate=accumulate,
            optimizer=adamw_or_muon(
                optimizer,
                lr=scaled_lr(lr, data.train, batch=batch, accumulate=accumulate),
                weight_decay=weight_decay,
            ),
            schedule=Cosine(warmup, floor=FLOOR),
            mix=add_labels if mix is nothing else teacher_labels.Compose(mix, add_labels),
            averages=averages,
            evals=validation(data, view.size, workers=run.machine.workers),
            keep=kept,
        )
    )

    def analyse(path: Path) -> None:
        folder = path.parent
        with warn_on_error(
            "the analysis of the tokens was not written", "longtail.analysis.analyse_tokens"
        ):
            analyse_tokens(student.deploy(), data, folder)
        if compare_views:
            with warn_on_error(
                "the teacher's uncertainty was not written", "longtail.analysis.analyse_teacher"
            ):
                weak = training_view("weak", labeller.size, flip=data.mirror)
                analyse_teacher(labeller, data, folder, inside=weak, outside=view, mix=mix)
        with warn_on_error(
            "the tokens' distance over epochs was not written", "longtail.analysis.analyse_training"
        ):
            analyse_training({"student": run.folder}, folder)  # not its name: runs may be moved

    run.write(run.files.analysis.arrays("training"), analyse)
    return student


def _build_student(
    run: Run,
    data: Dataset,
    network: str,
    weights: Weights,
    *,
    size: int,
    patch: int | None,
    drop_path: float,
    build_heads: Callable[[int, int], TokenHeads],
) -> tuple[Network, TokenHeads]:
    """Build a network with a distillation token, and its heads.

    They are the same for a seed, whether a teacher is trained in this run or was trained before.
    """
    seed_all(run.seed, "student")
    network = choose_transformer(network, size, patch=patch)
    if not (network.startswith(("vit_", "fast_vit", "timm:")) or is_custom(network)):
        raise LongtailError(
            f"expected a network with a distillation token, got {network}: take fast_vit, "
            "vit_tiny, or one of timm's such as timm:deit_tiny_distilled_patch16_224"
        )
    backbone = build_backbone(
        run,
        network,
        weights,
        data=data,
        size=size,
        stage="student",
        patch=patch,
        pool="tokens",
        drop_path=drop_path,
    )
    heads = build_heads(backbone.dim, len(data.classes))
    # A teacher that is trained in this run is then the one that the teacher's recipe trains.
    seed_all(run.seed, "start")
    return backbone, heads
