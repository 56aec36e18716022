"""What recipes are built from: networks, heads, views, mixing, optimizers, evaluations, stages."""

from __future__ import annotations

from collections.abc import Mapping, Sized
from pathlib import Path
from typing import Any, Literal

from torch import nn

from longtail.core import (
    Average,
    B,
    BatchTransform,
    Evaluator,
    Keep,
    Method,
    Schedule,
    Stage,
    average,
    best,
    last,
    nothing,
)
from longtail.data.augmentations import (
    CifarAutoAugment,
    JitteredCrop,
    RandAugment,
    ThreeAugment,
)
from longtail.data.dataset import Dataset
from longtail.data.loader import EvalLoader, TrainLoader
from longtail.data.mixing import MixupCutMix, Smooth
from longtail.data.samplers import Instance, Sampler
from longtail.data.views import CropFlip, View
from longtail.engine.averaging import EMA
from longtail.engine.muon import muon
from longtail.engine.optim import Build, adamw, sgd
from longtail.engine.run import Run
from longtail.engine.sam import sam
from longtail.errors import LongtailError
from longtail.nn import Linear, Network, build
from longtail.nn.encoders import load_encoder
from longtail.nn.pretrained import pretraining_data
from longtail.recipes.encoders import read_encoder
from longtail.schedules import Until
from longtail.scoring.evaluators import Accuracy, ScorerEvaluator
from longtail.scoring.long_tail import LongTailScorer
from longtail.scoring.scorer import headline_of, random_scores, scorer_for

Augment = Literal["weak", "jitter", "cutout", "autoaugment", "randaugment", "threeaugment"]
Crop = Literal["auto", "part"]
OptimizerName = Literal["default", "muon"]
RhoSchedule = Literal["constant", "rising"]
KeepRule = Literal["last", "best"]
Weights = str  # "random", "timm", or the path of a run or of a file
TRANSFORMER_ROWS = {
    "network": ("vit_mini", "vit_tiny", "timm:vit_", "timm:deit"),
    "loss": ("bal_", "bce", "cb", "ce", "ldam", "ib"),
}
"""Networks without batch norm, and losses that are a mean over rows: see `SEPARATE_ROWS`."""
SCALE = 30.0  # of cosine logits, and so of LDAM's margins
FAST = 64  # pixels up to which fast_vit is the default transformer
SMALL = 32  # pixels up to which DeiT's code shifts images instead of taking a random part
ERASE = 0.25  # probability of random erasing in randaugment, unless given


def fit_stage(
    run: Run,
    data: Dataset,
    method: Method[B],
    *,
    name: str,
    view: View,
    optimizer: Build,
    schedule: Schedule,
    sampler: Sampler | None = None,
    mix: BatchTransform = nothing,
    epochs: int,
    batch: int = 128,
    accumulate: int = 1,
    ema: float = 0.998,
    keep: KeepRule = "last",
) -> Method[B]:
    """Train a method on the training images and evaluate it on the validation images.

    Args:
        name: of the stage, which is also the name of its folder.
        sampler: the order of the images; each image once per epoch unless given.
        ema: decay of the moving average of the weights, which is then what is kept; 0 for none.
        keep: the weights of the last epoch, or of the epoch that is best on validation images.
    """
    averages, chosen = select_weights(keep, ema=ema, data=data)
    return run.fit(
        Stage(
            name=name,
            method=method,
            data=TrainLoader(
                data.train,
                view=view,
                batch=batch,
                seed=run.view_seed,
                sampler=sampler or Instance(),
                workers=run.machine.workers,
            ),
            epochs=epochs,
            accumulate=accumulate,
            optimizer=optimizer,
            schedule=schedule,
            mix=mix,
            averages=averages,
            evals=validation(data, view.size, workers=run.machine.workers),
            keep=chosen,
        )
    )


def build_backbone(
    run: Run,
    network: str,
    weights: Weights,
    *,
    data: Dataset,
    size: int,
    stage: str = "train",
    **keywords: Any,
) -> Network:
    """Build the network, and record on the run what pretrained weights were trained on.

    Args:
        weights: "random"; "timm", for a network of timm; or the path of a run or a file, whose
            network must have the same architecture. Its mean and std of images are taken over.
        data: the data of this run, which weights may have seen, too.
        stage: the stage that begins with these weights.
        keywords: of the network.
    """
    spec: dict[str, Any] = {"name": network, "size": size, **keywords}
    if weights == "random":
        return build(spec, trust=True)
    if weights != "timm":
        encoder = read_encoder(run, data, Path(weights), stage=stage)
        # The names of timm's say their patch, and fast_vit has none
        has_patch = not network.startswith(("timm:", "fast_vit"))
        if "patch" in keywords and keywords["patch"] is None and has_patch:
            spec["patch"] = encoder.patch
        return load_encoder(build({**spec, **encoder.statistics}, trust=True), encoder)
    if not network.startswith("timm:"):
        raise LongtailError(
            f"--weights timm needs a network of timm, got {network}: pass --network timm:NAME, or "
            "remove --weights"
        )
    run.pretraining = pretraining_data(network.removeprefix("timm:"))
    # Once there is a checkpoint, the weights it began with are not needed, and may be gone.
    return build({**spec, "pretrained": not run.files.has_started()})


def default_head(network: str, backbone: Network, classes: int) -> Linear:
    """The head that a network was designed with."""
    if network == "fast_cnn":
        return Linear(backbone.dim, classes, bias=False, scale=0.25)
    return Linear(backbone.dim, classes)


def select_weights(keep: KeepRule, *, ema: float, data: Dataset) -> tuple[dict[str, Average], Keep]:
    """The averages that a stage follows, and which weights it returns."""
    averages: dict[str, Average] = {"ema": EMA(ema)} if ema else {}
    if keep == "last":
        return averages, average("ema") if ema else last
    if not len(data.val):
        raise LongtailError(
            "--keep best needs validation images, and this data has none: use --protocol holdout, "
            "or --keep last"
        )
    headline = headline_of(scorer_for(data))
    if random_scores(data, data.val)[headline["name"]] is None:
        raise LongtailError(
            f"--keep best selects by {headline['name']}, which cannot be measured on these "
            "validation images: name another score with --scoring, or use --keep last"
        )
    metric = f"{'ema/' if ema else ''}val/{headline['name']}"
    return averages, best(metric, higher_is_better=headline["higher_is_better"])


def scaled_lr(lr: float, images: Sized, *, batch: int, accumulate: int) -> float:
    """Scale a learning rate for 256 images per step to the images that a step has.

    Small data has fewer than `batch` x `accumulate`.

    >>> scaled_lr(0.1, range(10_000), batch=128, accumulate=4)
    0.2
    >>> scaled_lr(0.1, range(64), batch=128, accumulate=4)
    0.025
    """
    if batch < 1:
        raise LongtailError(f"expected a batch of at least one image, got {batch}")
    return lr * min(batch, len(images)) * min(accumulate, max(1, len(images) // batch)) / 256


def default_optimizer(
    network: nn.Module,
    weights: Weights = "random",
    *,
    lr: float | None,
    weight_decay: float | None,
    optimizer: OptimizerName = "default",
    scales: Mapping[str, float] | None = None,
) -> Build:
    """AdamW for networks with layer norm (transformers, ConvNeXt), SGD for all others, or Muon.

    Pretrained weights have a tenth of the learning rate. `scales` are learning rates of parts, as
    shares of `lr`.

    Args:
        network: Whose layers decide.
        weights: What the network starts from.
        lr: The learning rate; the usual one of the optimizer with None.
        weight_decay: The usual one with None.
        optimizer: "default", or "muon".
        scales: Learning rates of parts.
    """
    share = 1.0 if weights == "random" else 0.1
    if any(isinstance(layer, nn.LayerNorm) for layer in network.modules()):
        return adamw_or_muon(
            optimizer,
            lr=1e-3 * share if lr is None else lr,
            weight_decay=0.05 if weight_decay is None else weight_decay,
            scales=scales,
        )
    return sgd_or_muon(
        optimizer,
        lr=0.1 * share if lr is None else lr,
        weight_decay=5e-4 if weight_decay is None else weight_decay,
        scales=scales,
    )


def choose_transformer(network: str, size: int, *, patch: int | None) -> str:
    """The transformer that "auto" means: fast_vit up to 64 pixels, vit_mini above or with a patch.

    >>> choose_transformer("auto", 32, patch=None), choose_transformer("auto", 32, patch=4)
    ('fast_vit', 'vit_mini')
    """
    if network != "auto":
        return network
    return "fast_vit" if size <= FAST and patch is None else "vit_mini"


def adamw_or_muon(
    optimizer: OptimizerName, *, lr: float, weight_decay: float, **settings: Any
) -> Build:
    """AdamW; or Muon at 20 times `lr` for matrices and filters, and AdamW for the rest."""
    if optimizer == "default":
        return adamw(lr=lr, weight_decay=weight_decay, **settings)
    settings.pop("betas", None)  # Muon's
    return muon(lr=20 * lr, adamw_lr=lr, weight_decay=weight_decay, **settings)


def sgd_or_muon(
    optimizer: OptimizerName,
    *,
    lr: float,
    weight_decay: float,
    scales: Mapping[str, float] | None = None,
    nesterov: bool = True,
) -> Build:
    """SGD; or Muon at a fifth of `lr`, and AdamW at a hundredth for the rest.

    Muon's weight decay is a hundred times SGD's: it is not divided by the size of the gradient.

    Args:
        optimizer: "default" is SGD.
        lr: SGD's learning rate.
        weight_decay: SGD's weight decay.
        scales: Learning rates of parts, as shares of `lr`.
        nesterov: Whether SGD has Nesterov momentum.
    """
    if optimizer == "default":
        return sgd(lr=lr, weight_decay=weight_decay, nesterov=nesterov, scales=scales)
    return muon(lr=lr / 5, adamw_lr=lr / 100, weight_decay=100 * weight_decay, scales=scales)


def sharpness_aware(build: Build, rho: float, schedule: RhoSchedule) -> Build:
    """An optimizer with sharpness-aware minimization of radius `rho`, or as it is if that is 0.

    A rising radius is a tenth of `rho` in the first 5 of 90 epochs, a fifth until the 60th, and
    then `rho`: 0.05, 0.1 and 0.5 in its authors' code for ImageNet-LT (Rangwani et al. 2022).
    """
    if rho == 0 and schedule != "constant":
        raise LongtailError("--rho-schedule has no effect with --rho 0: remove it")
    if rho == 0:
        return build
    rising = {0.0: 0.1 * rho, 5 / 90: 0.2 * rho, 60 / 90: rho}
    return sam(build, rho=rho if schedule == "constant" else rising)


def training_view(
    augment: Augment, size: int, *, flip: bool, erase: float = ERASE, crop: Crop = "part"
) -> View:
    """Build the augmentation that a recipe names; `erase` and `crop` are parts of randaugment.

    Shifts of 4 and cut-out squares of 16 pixels are for images of 32, and grow with the image;
    `jitter` is for large images: a random part of 8 to 100%, flip and colour jitter.

    Args:
        augment: The name.
        size: Side of the images in pixels.
        flip: Whether half of the images are mirrored.
        erase: Probability of random erasing.
        crop: "part", or "auto" for shifts of small images.
    """
    if erase != ERASE and augment != "randaugment":
        raise LongtailError(
            f"--erase {erase} has no effect with --augment {augment}: remove it, or use randaugment"
        )
    pad, cutout = size // 8, size // 2
    # 4 at 224 as well, as released
    views: dict[Augment, Any] = {
        "weak": CropFlip(size, pad=pad, flip=flip),
        "jitter": jittered_part(size, flip=flip),
        "cutout": CropFlip(size, pad=pad, flip=flip, cutout=cutout),
        "autoaugment": CifarAutoAugment(size, pad=pad, flip=flip, cutout=cutout),
        "randaugment": RandAugment(
            size, erase=erase, flip=flip, pad=pad if crop == "auto" and size <= SMALL else None
        ),
        "threeaugment": ThreeAugment(size, pad=min(4, pad), flip=flip),
    }
    view: View = views[augment]
    return view


def jittered_part(size: int, *, flip: bool, **more: Any) -> JitteredCrop:
    """A random part of 8 to 100%, flip and colour jitter: as usual for convolutions on ImageNet."""
    settings: dict[str, Any] = {"scale": (0.08, 1.0), "jitter": 0.4, "hue": 0.0, "grey": 0.0}
    return JitteredCrop(size, flip=flip, **settings | more)


def mixing(
    classes: int, *, mixup: float, cutmix: float, smoothing: float = 0.0, until: float = 1.0
) -> BatchTransform:
    """Mixup and CutMix until a share of training; 0 switches each of them off.

    Args:
        classes: Number of classes.
        mixup: Parameter of the Beta distribution of Mixup.
        cutmix: The same of CutMix.
        smoothing: Of the labels.
        until: Share of training.
    """
    if mixup or cutmix:
        switch = 0.5 if mixup and cutmix else float(bool(cutmix))
        mix = MixupCutMix(
            classes=classes,
            mixup=mixup or 1.0,
            cutmix=cutmix or 1.0,
            switch=switch,
            smoothing=smoothing,
        )
        return mix if until == 1.0 else Until(until, mix)
    return Smooth(classes, smoothing) if smoothing else nothing


def validation(data: Dataset, size: int, *, workers: int = 0) -> dict[str, Evaluator]:
    """Score the validation images after every epoch, where there are any."""
    if not len(data.val):
        return {}
    rows, scorer = EvalLoader(data.val, size=size, batch=256, workers=workers), scorer_for(data)
    if isinstance(scorer, LongTailScorer):  # the same scores, without all logits in memory
        return {"val": Accuracy(rows, classes=len(data.classes), groups=data.groups)}
    return {"val": ScorerEvaluator(rows, scorer)}
