"""DeiT-LT: a convolutional teacher for a transformer with two experts, and what it is compared with (Rangwani et al., CVPR 2024)."""

from __future__ import annotations

from typing import Any, Literal

from longtail import processes
from longtail.analysis.distillation import analyse_teacher, analyse_tokens, analyse_training
from longtail.analysis.writing import warn_on_error
from longtail.core import BatchTransform, Keep, Method, Stage, constant, nothing
from longtail.data import teacher_labels
from longtail.data.dataset import Dataset
from longtail.data.loader import TrainLoader
from longtail.data.samplers import Instance, RepeatedAugmentation, Sampler
from longtail.data.views import TwoViews, View
from longtail.engine.optim import adamw
from longtail.engine.run import Run
from longtail.engine.seeding import seed_all
from longtail.errors import LongtailError
from longtail.losses import CrossEntropy, class_balanced_weights
from longtail.methods.distill_tokens import DistillTokens, Release, Taught
from longtail.nn import Network, Teacher, TokenHeads, build
from longtail.recipes.builders import (
    Augment,
    KeepRule,
    mixing,
    scaled_lr,
    select_weights,
    training_view,
    unused,
    validation,
)
from longtail.recipes.ldam import ldam
from longtail.recipes.paco import paco
from longtail.recipes.teachers import teacher_of
from longtail.schedules import Cosine, Deferred

DEFER = 0.917  # epoch 1,100 of 1,200
FLOOR = (
    0.04  # 1e-5 of 2.5e-4 in the released code: re-weighting begins when the rate is nearly there
)


def deit_lt(
    run: Run,
    data: Dataset,
    *,
    teacher: str | None = None,
    teacher_method: Literal["ldam", "paco"] = "ldam",
    teacher_network: str = "fast_cnn",
    teacher_epochs: int = 60,
    teacher_rho: float = 0.1,
    teacher_schedule: Literal["steps", "cosine"] | None = None,
    teacher_view: Literal["student", "weak"] = "student",
    network: str = "vit_mini",
    epochs: int = 60,
    batch: int = 128,
    accumulate: int = 1,
    lr: float = 2e-3,
    weight_decay: float = 0.05,
    warmup: float = 0.05,
    drop_path: float = 0.1,
    augment: Augment = "randaugment",
    repeats: int = 3,
    mixup: float = 0.8,
    cutmix: float = 1.0,
    mix_until: float | None = None,
    smoothing: float = 0.1,
    defer: float = DEFER,
    release: float | None = None,
    keep: KeepRule = "last",
    patch: int | None = None,
    size: int | None = None,
) -> Method[Taught]:
    """Train a convolutional teacher, then a transformer with two experts: labels teach the head, the teacher's answers the tail.

        longtail train deit_lt --data cifar10-lt --root DATA --out runs/deit_lt

    The class token learns the labels, smoothed; the distillation token learns what the teacher sees in the student's own images, which are
    augmented and mixed far beyond what the teacher was trained on, and from `defer` of training on it is re-weighted by effective numbers
    of the teacher's classes. Mixing ends there too, unless `mix_until` says otherwise (1.0 for ImageNet-LT and iNaturalist). The answer is
    the mean of both tokens' logits; accuracies of each are reported as well. `release` begins to shift the distillation token from the
    teacher's classes to the labels at that share of training.

    The teacher is trained first, as stage `teacher`: LDAM + DRW + SAM or PaCo + SAM on `teacher_network` (ResNet-50 for large images is
    timm:resnet50). The radius of SAM, `teacher_rho`, is for `fast_cnn`, and so is the fall of the rate that `ldam` has unless
    `teacher_schedule` says otherwise; with resnet32 they are published as 0.8 and steps. The teacher sees the images at their own size,
    whatever the student's `size`, and its network is left in `teacher/model`. `--teacher RUN` takes the network of a finished run, or of
    `OTHER/teacher`, and `--teacher timm:NAME` a pretrained one of timm. Its classes for every image are kept and not asked again (see
    `longtail.data.teacher_labels`). `--teacher-view weak --mixup 0 --cutmix 0` shows it a weakly augmented view instead: in distribution, as in
    table 1.

    What the tokens attend to, the rank of their features, their distance over epochs and how unsure the teacher is of the student's images
    are left in `analysis/` and drawn in the report (figures 3 to 5).

    `lr` is for 256 images a step and grows with them; the default is for `vit_mini`. Re-weighting begins late, at a low rate: in
    trainings of tens of epochs, where it then has few steps, `--defer 0.8` gives it more.

    Paper: ViT-B at 224 pixels, 1,200 epochs at an effective batch of 1,024 and rate 5e-4, warmup 5 epochs, re-weighting from epoch 1,100:
    the sweep `deit-lt-paper`.

    Cost: 87 minutes on two threads for CIFAR-10-LT (imbalance 100), `vit_mini` and 60 epochs, and 48 on one for the teacher before.
    Ours: 43.5% with these, `--defer 0.8`, `--mix-until 0.8` and `--repeats 1`, one seed (deit_lt_cifar10_lt/student).
    Published: 84.8% on CIFAR-10-LT at imbalance 100, 87.5% with PaCo + SAM as teacher (teachers: 81.9% and 86.8%).
    """
    if teacher is not None:
        training: dict[str, Any] = {
            "teacher_network": teacher_network,
            "teacher_epochs": teacher_epochs,
        }
        training |= {
            "teacher_rho": teacher_rho,
            "teacher_schedule": teacher_schedule,
        }  # `teacher_method` may say what it is
        unused(run, deit_lt, training, beside="--teacher, which is trained already")
    if teacher_view == "weak" and (mixup or cutmix):
        raise LongtailError(
            "expected --mixup 0 --cutmix 0 beside --teacher-view weak, for the teacher's class is that of the image before mixing, got "
            f"mixup {mixup} and cutmix {cutmix}"
        )
    chosen, weights = (
        select_weights(keep, ema=0.0, data=data)[1],
        Deferred(class_balanced_weights(data.counts), defer),
    )
    mix = mixing(
        len(data.classes),
        mixup=mixup,
        cutmix=cutmix,
        until=defer if mix_until is None else mix_until,
    )
    trust = constant if release is None else Release(release)
    backbone, heads = _student(
        network, data, size=size, patch=patch, drop_path=drop_path, seed=run.seed
    )
    view = training_view(augment, backbone.spec["size"], flip=data.mirror)
    if teacher_view == "weak":
        view, mix = (
            TwoViews(view, training_view("weak", view.size, flip=data.mirror)),
            teacher_labels.SplitViews(),
        )

    def trained(own: Run) -> Method[Any]:
        settings: dict[str, Any] = {
            "network": teacher_network,
            "epochs": teacher_epochs,
            "rho": teacher_rho,
        }
        settings |= {} if teacher_schedule is None else {"schedule": teacher_schedule}
        return (ldam if teacher_method == "ldam" else paco)(
            own, data.at_native_resolution(), **settings
        )

    taught = teacher_of(run, data, teacher, trained)
    return _distilled(
        run,
        data,
        DistillTokens(
            backbone, heads, CrossEntropy(smoothing=smoothing), weights=weights, trust=trust
        ),
        taught,
        familiar=training_view("weak", taught.size, flip=data.mirror)
        if teacher_view == "student"
        else None,
        epochs=epochs,
        batch=batch,
        accumulate=accumulate,
        lr=lr,
        weight_decay=weight_decay,
        warmup=warmup,
        view=view,
        sampler=RepeatedAugmentation(repeats) if repeats != 1 else Instance(),
        mix=mix,
        keep=chosen,
    )


def deit(
    run: Run,
    data: Dataset,
    *,
    teacher: str | None = None,
    teacher_network: str = "fast_cnn",
    teacher_epochs: int = 60,
    network: str = "vit_mini",
    epochs: int = 60,
    batch: int = 128,
    accumulate: int = 1,
    lr: float = 2e-3,
    weight_decay: float = 0.05,
    warmup: float = 0.05,
    drop_path: float = 0.1,
    repeats: int = 3,
    mixup: float = 0.8,
    cutmix: float = 1.0,
    smoothing: float = 0.1,
    keep: KeepRule = "last",
    patch: int | None = None,
    size: int | None = None,
) -> Method[Taught]:
    """Train a transformer with a distillation token from a teacher that knows such images: DeiT, which DeiT-LT departs from.

        longtail train deit --data cifar10-lt --root DATA --out runs/deit

    Hard distillation (Touvron et al. 2021, equation 3) without re-weighting. The teacher is trained first with cross entropy on the
    student's own views, mixed as its images are, so that what it sees while teaching is in its distribution. All else as in `deit_lt`.

    Cost: that of `deit_lt`, with a teacher that takes half as long, for it is trained without SAM.
    Published: 70.2% with ViT-B and a RegNetY-16GF teacher on CIFAR-10-LT at imbalance 100 (Rangwani et al. 2024).
    """
    if teacher is not None:
        training = {"teacher_network": teacher_network, "teacher_epochs": teacher_epochs}
        unused(run, deit, training, beside="--teacher, which is trained already")
    chosen = select_weights(keep, ema=0.0, data=data)[1]
    backbone, heads = _student(
        network, data, size=size, patch=patch, drop_path=drop_path, seed=run.seed
    )

    def trained(own: Run) -> Method[Any]:
        plain: dict[str, Any] = {"margin": 0.0, "defer": 1.0, "rho": 0.0}
        strong: dict[str, Any] = {"augment": "randaugment", "mixup": mixup, "cutmix": cutmix}
        return ldam(
            own,
            data.at_native_resolution(),
            network=teacher_network,
            epochs=teacher_epochs,
            **plain,
            **strong,
        )

    return _distilled(
        run,
        data,
        DistillTokens(backbone, heads, CrossEntropy(smoothing=smoothing)),
        teacher_of(run, data, teacher, trained),
        epochs=epochs,
        batch=batch,
        accumulate=accumulate,
        lr=lr,
        weight_decay=weight_decay,
        warmup=warmup,
        view=training_view("randaugment", backbone.spec["size"], flip=data.mirror),
        sampler=RepeatedAugmentation(repeats) if repeats != 1 else Instance(),
        mix=mixing(len(data.classes), mixup=mixup, cutmix=cutmix),
        keep=chosen,
    )


def _student(
    network: str, data: Dataset, *, size: int | None, patch: int | None, drop_path: float, seed: int
) -> tuple[Network, TokenHeads]:
    """A network with a distillation token and its heads; the same for a seed, whether a teacher is trained in this run or was before."""
    seed_all(seed, "student")
    if not network.startswith(("vit_", "timm:")):
        raise LongtailError(
            f"expected a network with a distillation token, got {network}, which has no tokens: take vit_mini, vit_tiny or one of timm's, "
            "such as timm:deit_tiny_distilled_patch16_224"
        )
    backbone = build(
        {
            "name": network,
            "size": size or data.size,
            "patch": patch,
            "pool": "tokens",
            "drop_path": drop_path,
        }
    )
    heads = TokenHeads(backbone.dim, len(data.classes))
    seed_all(
        seed, "start"
    )  # a teacher that is trained in this run is the one that its own recipe trains
    return backbone, heads


def _distilled(
    run: Run,
    data: Dataset,
    method: DistillTokens,
    teacher: Teacher,
    *,
    familiar: View | None = None,
    epochs: int,
    batch: int,
    accumulate: int,
    lr: float,
    weight_decay: float,
    warmup: float,
    view: View,
    sampler: Sampler,
    mix: BatchTransform,
    keep: Keep,
) -> Method[Taught]:
    """The student's stage, with a teacher that is asked once for each image that it will see.

    `familiar` is a weak view, to compare how unsure the teacher is of both, where it is not what it teaches with.
    """
    loader = TrainLoader(
        data.train,
        view=view,
        batch=batch,
        seed=run.view_seed,
        sampler=sampler,
        workers=run.machine.workers,
    )
    labelled: BatchTransform = teacher_labels.AddTeacherLabels(teacher)
    if (
        not run.dry and not run.files.stage("student").is_finished
    ):  # a dry run measures what a first student pays
        determined = teacher_labels.cache_key(
            teacher,
            loader,
            data,
            mix=mix,
            seed=run.seed,
            stage="student",
            epochs=epochs,
            accumulate=accumulate,
        )
        labelled = teacher_labels.cached_labels(
            teacher_labels.AddTeacherLabels(teacher),
            determined,
            epochs=epochs,
            draws=len(data.train),
            classes=len(data.classes),
        )
    student = run.fit(
        Stage(
            name="student",
            method=method,
            data=loader,
            epochs=epochs,
            accumulate=accumulate,
            optimizer=adamw(
                lr=scaled_lr(lr, data.train, batch=batch, accumulate=accumulate),
                weight_decay=weight_decay,
            ),
            schedule=Cosine(warmup, floor=FLOOR),
            mix=labelled if mix is nothing else teacher_labels.Compose(mix, labelled),
            evals=validation(data, view.size, workers=run.machine.workers),
            keep=keep,
        )
    )
    analysis = run.files.analysis
    folder, last = analysis.path, analysis.arrays("training")
    if not run.dry and processes.rank() == 0 and not last.exists():
        with warn_on_error(
            "what the tokens do was not written", "longtail.analysis.analyse_tokens"
        ):
            analyse_tokens(student.deploy(), data, folder)
        if familiar is not None:
            with warn_on_error(
                "how unsure the teacher is was not written", "longtail.analysis.analyse_teacher"
            ):
                analyse_teacher(teacher, data, folder, inside=familiar, outside=view, mix=mix)
        with warn_on_error(
            "how the tokens part was not written", "longtail.analysis.analyse_training"
        ):
            analyse_training({run.folder.name: run.folder}, folder)
    return student
