"""Plain supervised training: cross entropy, and the same with the prior in the logits."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from typing import Any, Literal

from torch import nn

from longtail.core import Average, BatchTransform, Evaluator, Keep, Labelled, Method, Stage, average, best, last, nothing
from longtail.data.augmentations import CifarAutoAugment, RandAugment, ThreeAugment
from longtail.data.dataset import Dataset
from longtail.data.loader import InOrder, Loader
from longtail.data.mixing import Mixup, MixupCutMix, Smooth
from longtail.data.samplers import ClassBalanced, Instance, ProgressivelyBalanced, Sampler, SquareRoot
from longtail.data.views import View, Weak
from longtail.engine.averaging import EMA
from longtail.engine.optim import Build, adamw, sgd
from longtail.engine.run import Run
from longtail.losses import LogitAdjusted
from longtail.methods.classify import Classify
from longtail.metrics.evaluators import Accuracy
from longtail.nn import Linear, Network, build
from longtail.nn.pretrained import learnt_from
from longtail.recipes.batchformer import neck, rates
from longtail.schedules import Cosine, Until

Augment = Literal["weak", "cutout", "autoaugment", "randaugment", "threeaugment"]
Sampling = Literal["instance", "class_balanced", "square_root", "progressive"]
Weights = Literal["random", "timm"]
ERASE = 0.25  # how often randaugment erases a part, unless told


def cross_entropy(
    run: Run,
    data: Dataset,
    *,
    network: str = "fast_cnn",
    weights: Weights = "random",
    epochs: int = 40,
    batch: int = 128,
    accumulate: int = 1,
    lr: float | None = None,
    weight_decay: float | None = None,
    warmup: float = 0.15,
    augment: Augment = "cutout",
    sampling: Sampling = "instance",
    mixup: float = 0.0,
    smoothing: float = 0.0,
    ema: float = 0.998,
    keep: Literal["last", "best"] = "last",
    size: int | None = None,
) -> Method[Labelled]:
    """Train with cross entropy: the baseline that forgets the tail.

        longtail train cross_entropy --data cifar10-lt --root DATA --out runs/plain

    Networks with layer norm, such as transformers, use AdamW (rate 1e-3, decay 0.05), all others SGD with Nesterov momentum (rate 0.1,
    decay 5e-4); `lr` and `weight_decay` override that. The rate warms up, then falls along a cosine. The weights kept are the moving
    average with decay `ema` at the last epoch; `--ema 0` keeps the raw ones, `--keep best` those that were best on validation.
    `--network timm:NAME --weights timm` begins with timm's pretrained weights, at a tenth of these rates; the row says what they have seen.

    Cost: 15 minutes for CIFAR-10-LT (imbalance 100), `fast_cnn` and 40 epochs on one core, 35 on a busy one.
    Ours: 71.6% with `--protocol paper --tta flip` (cifar10_lt_baselines/plain-paper).
    Published: 70.4% with ResNet-32 and 200 epochs on CIFAR-10-LT at imbalance 100 (Cao et al. 2019).
    """
    return balanced_softmax(
        run,
        data,
        tau=0.0,
        network=network,
        weights=weights,
        epochs=epochs,
        batch=batch,
        accumulate=accumulate,
        lr=lr,
        weight_decay=weight_decay,
        warmup=warmup,
        augment=augment,
        sampling=sampling,
        mixup=mixup,
        smoothing=smoothing,
        ema=ema,
        keep=keep,
        size=size,
    )


def balanced_softmax(
    run: Run,
    data: Dataset,
    *,
    tau: float = 1.0,
    network: str = "fast_cnn",
    weights: Weights = "random",
    epochs: int = 40,
    batch: int = 128,
    accumulate: int = 1,
    lr: float | None = None,
    weight_decay: float | None = None,
    warmup: float = 0.15,
    warmup_start: float = 0.0,
    augment: Augment = "cutout",
    sampling: Sampling = "instance",
    mixup: float = 0.0,
    smoothing: float = 0.0,
    batchformer: Literal["off", "on", "frozen", "self"] = "off",
    plain: float = 0.5,
    attended: float = 0.5,
    loss_scale: float = 1.0,
    batchformer_layers: int = 1,
    batchformer_rate: float = 0.1,
    batchformer_scope: Literal["local", "global"] = "local",
    ema: float = 0.998,
    keep: Literal["last", "best"] = "last",
    size: int | None = None,
) -> Method[Labelled]:
    """Train with the prior in the logits, so that rare classes count as much as frequent ones.

        longtail train balanced_softmax --data cifar10-lt --root DATA --out runs/balanced

    Cross entropy of logits + tau * log prior: Balanced Softmax (Ren et al. 2020) at tau = 1, which is also logit adjustment
    (Menon et al. 2021), and cross entropy at tau = 0. Everything else is as in `cross_entropy`.

    `--batchformer on` lets the images of a batch attend to each other before the head while training (Hou et al. 2022), at
    `batchformer_rate` of the learning rate: half the loss without it and half with it, as in its Algorithm 1. The released code has
    `--plain 1.5 --attended 1.5`; no shared classifier is `--plain 0 --attended 1`. Controls: "frozen" keeps BatchFormer's random initial
    weights, "self" lets each image attend to itself alone, and `--loss-scale 1.5` or 0.5 scales the loss of the baseline. Its settings
    for CIFAR-100-LT are the sweep `batchformer-paper`.

    Cost: 15 minutes for CIFAR-10-LT (imbalance 100), `fast_cnn` and 40 epochs on one core, 35 on a busy one.
    Ours: 81.2% with `--protocol paper --tta flip` (cifar10_lt_baselines/balanced-paper).
    Published: 77.7% with ResNet-32 and 200 epochs on CIFAR-10-LT at imbalance 100 (Menon et al. 2021); 50.7% with ResNet-32 and 13,000
    steps of 512 images on CIFAR-100-LT at imbalance 100, and 51.7% with BatchFormer (Hou et al. 2022).
    """
    size, classes = size or data.size, len(data.classes)
    backbone = beginning(run, network, weights, size=size)
    head = classifying_head(network, backbone, classes)
    # After the head, so that one seed gives one network with and without it.
    own = neck(
        backbone.dim,
        batchformer,
        plain=plain,
        attended=attended,
        loss_scale=loss_scale,
        layers=batchformer_layers,
        scope=batchformer_scope,
    )
    loss = LogitAdjusted(data.counts, tau=tau, smoothing=smoothing)
    averages, chosen = kept(keep, ema=ema, data=data)
    samplers: dict[Sampling, Sampler] = {
        "instance": Instance(),
        "class_balanced": ClassBalanced(),
        "square_root": SquareRoot(),
        "progressive": ProgressivelyBalanced(epochs=epochs),
    }
    view = training_view(augment, size, flip=data.mirror)
    return run.fit(
        Stage(
            name="train",
            method=Classify(backbone, head, loss, neck=own),
            data=Loader(data.train, view=view, batch=batch, seed=run.view_seed, sampler=samplers[sampling], workers=run.machine.workers),
            epochs=epochs,
            accumulate=accumulate,
            optimizer=usual_optimizer(backbone, weights, lr=lr, weight_decay=weight_decay, scales=rates(own, batchformer_rate)),
            schedule=Cosine(warmup, start=warmup_start),
            mix=Mixup(mixup, classes) if mixup else nothing,
            averages=averages,
            evals=validation(data, size, workers=run.machine.workers),
            keep=chosen,
        )
    )


def beginning(run: Run, network: str, weights: Weights, *, size: int) -> Network:
    """The network that training begins with; weights that have seen other data are on the run's row."""
    if weights == "random":
        return build({"name": network, "size": size})
    if not network.startswith("timm:"):
        raise ValueError(f"expected a network of timm for --weights timm, got {network}: pass --network timm:NAME, or leave --weights out")
    run.pretraining = learnt_from(network.removeprefix("timm:"))
    # Once there is a checkpoint, the weights it began with are not needed, and may be gone.
    return build({"name": network, "size": size, "pretrained": not (run.folder / "train" / "last.pt").exists()})


def classifying_head(network: str, backbone: Network, classes: int) -> Linear:
    """The head that a network was designed with."""
    if network == "fast_cnn":
        return Linear(backbone.dim, classes, bias=False, scale=0.25)
    return Linear(backbone.dim, classes)


def kept(keep: Literal["last", "best"], *, ema: float, data: Dataset) -> tuple[dict[str, Average], Keep]:
    """The averages that a stage follows, and which weights it returns."""
    averages: dict[str, Average] = {"ema": EMA(ema)} if ema else {}
    if keep == "last":
        return averages, average("ema") if ema else last
    if not len(data.val):
        raise ValueError("--keep best needs validation images, and this data has none: use --protocol holdout, or --keep last")
    return averages, best("ema/val/balanced" if ema else "val/balanced")


def usual_optimizer(
    network: nn.Module,
    weights: Weights = "random",
    *,
    lr: float | None,
    weight_decay: float | None,
    scales: Mapping[str, float] | None = None,
) -> Build:
    """AdamW for networks with layer norm (transformers, ConvNeXt), SGD for all others, slower for pretrained weights.

    `scales` are rates of parts, as shares of `lr`.
    """
    share = 1.0 if weights == "random" else 0.1
    if any(isinstance(own, nn.LayerNorm) for own in network.modules()):
        return adamw(lr=1e-3 * share if lr is None else lr, weight_decay=0.05 if weight_decay is None else weight_decay, scales=scales)
    return sgd(lr=0.1 * share if lr is None else lr, weight_decay=5e-4 if weight_decay is None else weight_decay, scales=scales)


def unused(run: Run, recipe: Callable[..., Any], keywords: Mapping[str, Any], *, beside: str) -> None:
    """Refuse keywords that have no effect here, so that no row names them.

    Asked before anything is written only: a run that began under older defaults may have them.
    """
    if not run.dry:
        return
    defaults = inspect.signature(recipe).parameters
    said = [f"--{name.replace('_', '-')} {value}" for name, value in keywords.items() if value != defaults[name].default]
    if said:
        raise ValueError(f"expected no word about it beside {beside}, got {', '.join(said)}: leave that out")


def training_view(augment: Augment, size: int, *, flip: bool, erase: float = ERASE) -> View:
    """A view by name; shifts and cut-out squares that are 4 and 16 pixels of 32 grow with the image. `erase` is for randaugment."""
    if erase != ERASE and augment != "randaugment":
        raise ValueError(f"expected --erase with --augment randaugment, got {erase} with {augment}, which erases nothing: leave it out")
    pad, cutout = size // 8, size // 2
    views: dict[Augment, Any] = {
        "weak": Weak(size, pad=pad, flip=flip),
        "cutout": Weak(size, pad=pad, flip=flip, cutout=cutout),
        "autoaugment": CifarAutoAugment(size, pad=pad, flip=flip, cutout=cutout),
        "randaugment": RandAugment(size, erase=erase, flip=flip),
        "threeaugment": ThreeAugment(size, pad=pad, flip=flip),
    }
    view: View = views[augment]
    return view


def mixing(classes: int, *, mixup: float, cutmix: float, smoothing: float = 0.0, until: float = 1.0) -> BatchTransform:
    """Mixup, CutMix or one of the two, where 0 switches it off, and `until` that share of training."""
    if mixup or cutmix:
        switch = 0.5 if mixup and cutmix else float(bool(cutmix))
        mix = MixupCutMix(classes=classes, mixup=mixup or 1.0, cutmix=cutmix or 1.0, switch=switch, smoothing=smoothing)
        return mix if until == 1.0 else Until(until, mix)
    return Smooth(classes, smoothing) if smoothing else nothing


def validation(data: Dataset, size: int, *, workers: int = 0) -> dict[str, Evaluator]:
    """Judge on the validation images after every epoch, where there are any."""
    if not len(data.val):
        return {}
    rows = InOrder(data.val, size=size, batch=256, workers=workers)
    return {"val": Accuracy(rows, classes=len(data.classes), groups=data.groups)}
