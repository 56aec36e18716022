"""Momentum contrast without labels (MoCo v2 and v3), with and without BatchFormer."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor, nn

from longtail.core import Evaluator, Labelled, Method, Schedule, Stage
from longtail.data.augmentations import ResizedCrop, SimClr
from longtail.data.dataset import Dataset, Split
from longtail.data.loader import EvalLoader, TrainLoader
from longtail.data.views import CropFlip, TwoViews, View
from longtail.engine.optim import Build, adamw, lars, sgd
from longtail.engine.predicting import predictor
from longtail.engine.run import Run
from longtail.errors import LongtailError
from longtail.losses import LogitAdjusted
from longtail.methods.moco import MoCo, MoCo3, MomentumContrast, Norm, Pairings, QueueKeys
from longtail.methods.probe import NearestNeighbours, Probe
from longtail.nn import Frozen, Linear, Network, build
from longtail.recipes.batchformer import Mode, Scope, batchformer_neck, lr_scales
from longtail.recipes.builders import fit_stage, scaled_lr
from longtail.recipes.encoders import write_encoder
from longtail.schedules import Cosine, Steps
from longtail.scoring.evaluators import collect
from longtail.scoring.features import FeatureEvaluator
from longtail.scoring.scorer import scorer_for

LARGE = 64
"""From this side on, images are blurred and cropped as ImageNet's, smaller ones as CIFAR's."""
CURVE_IMAGES = 10_000
"""How many training images nearest neighbours and linear classifier of each epoch have at most."""


def moco_v2(
    run: Run,
    data: Dataset,
    *,
    network: str = "fast_cnn",
    epochs: int = 40,
    batch: int = 128,
    accumulate: int = 1,
    lr: float = 0.12,
    weight_decay: float = 5e-4,
    warmup: float = 0.05,
    temperature: float = 0.2,
    queue: int = 4096,
    queue_keys: QueueKeys = "plain",
    momentum: float = 0.99,
    dim: int = 128,
    projector_layers: int = 2,
    projector_norm: Norm = "none",
    norm_splits: int = 4,
    batchformer: Mode = "off",
    plain_weight: float = 0.5,
    batchformer_weight: float = 0.5,
    loss_scale: float = 1.0,
    batchformer_layers: int = 1,
    batchformer_lr_scale: float = 1.0,
    batchformer_scope: Scope = "local",
    size: int | None = None,
    **probing: Any,
) -> Method[Labelled]:
    """Pretrain an encoder without labels: two views of an image are alike, other images are not.

        longtail train moco_v2 --data cifar10-lt --root DATA --out runs/moco
        longtail train balanced_softmax --data cifar10-lt --root DATA --weights runs/moco

    MoCo v2 (Chen et al. 2020): the first view of an image is contrasted with its second view and
    with the last `queue` images, as a momentum encoder represents them. Batch-norm sees a batch in
    `norm_splits` parts, the keys' in another order. The encoder is left in `encoder/` of the run,
    and `--weights` of other recipes begins with it. The row is that of a linear classifier on the
    frozen features, trained with balanced softmax for `probe_epochs`, with nearest neighbours as
    head `knn`; both are in the journal of each epoch. `lr` is for 256 images per step and is scaled
    with them. `--epochs 0` evaluates the untrained encoder.

    `--batchformer on` puts one BatchFormer before the projectors of both branches (Hou et al.
    2022), trained by the queries: each stream of the queries is contrasted with each stream of the
    keys, and a pairing weighs the product of its streams' weights. As controls, "frozen" and
    "self", and without BatchFormer `--loss-scale 0.25` and 4: the weight of the plain pairing, and
    the number of pairings. As released: `--queue-keys both --projector-norm joint`, and
    `--projector-layers 3` with BatchFormer only.

    Cost: not measured yet; `--dry-run` estimates it.
    Paper: ResNet-50, 200 epochs of 256 images, learning rate 0.03, temperature 0.2, queue 65,536,
    momentum 0.999; a linear classifier for 100 epochs at learning rate 30.
    Published: 67.5% on ImageNet, and 68.4% with BatchFormer (Hou et al. 2022, table 8).
    """
    if queue < batch * accumulate * (1 + (queue_keys == "both" and batchformer != "off")):
        raise LongtailError(
            f"--queue {queue} is shorter than the keys of a step of {batch * accumulate} images:"
            " pass a longer one"
        )
    size = size or data.size
    backbone = build({"name": network, "size": size}, trust=True)
    neck = batchformer_neck(
        backbone.dim,
        batchformer,
        plain_weight=plain_weight,
        batchformer_weight=batchformer_weight,
        layers=batchformer_layers,
        scope=batchformer_scope,
    )
    view = SimClr(size, blur=0.5 if size >= LARGE else 0.0, flip=data.mirror)
    method = MoCo(
        backbone,
        dim=dim,
        size=queue,
        momentum=momentum,
        temperature=temperature,
        layers=projector_layers,
        norm=projector_norm,
        norm_splits=norm_splits,
        neck=neck,
        loss_scale=loss_scale,
        queue_keys=queue_keys,
    )
    return pretrain_and_probe(
        run,
        data,
        method,
        views=TwoViews(view, view),
        epochs=epochs,
        batch=batch,
        accumulate=accumulate,
        optimizer=sgd(
            lr=scaled_lr(lr, data.train, batch=batch, accumulate=accumulate),
            weight_decay=weight_decay,
            nesterov=False,
            scales=lr_scales(neck, batchformer_lr_scale, default=1.0),
        ),
        schedule=Cosine(warmup),
        probe_schedule=Steps((0.6, 0.8), (0.1, 0.01)),
        size=size,
        **probing,
    )


def moco_v3(
    run: Run,
    data: Dataset,
    *,
    network: str = "fast_cnn",
    epochs: int = 40,
    batch: int = 256,
    accumulate: int = 1,
    optimizer: Literal["sgd", "lars", "adamw"] | None = None,
    lr: float | None = None,
    weight_decay: float | None = None,
    warmup: float = 0.1,
    temperature: float = 0.2,
    momentum: float = 0.99,
    dim: int = 128,
    hidden: int = 512,
    projector_norm: Norm = "joint",
    batchformer: Mode = "off",
    plain_weight: float = 0.5,
    batchformer_weight: float = 0.5,
    pairings: Pairings = "all",
    loss_scale: float = 1.0,
    batchformer_layers: int = 1,
    batchformer_lr_scale: float = 1.0,
    batchformer_scope: Scope = "local",
    size: int | None = None,
    **probing: Any,
) -> Method[Labelled]:
    """Pretrain an encoder without labels: contrast both views within large batches, no queue.

        longtail train moco_v3 --data cifar10-lt --root DATA --network vit_mini --out runs/moco
        longtail train vit --data cifar10-lt --root DATA --weights runs/moco --out runs/vit

    MoCo v3 (Chen et al. 2021), for convolutional networks and transformers: each view is contrasted
    with the other views of the batch (of all processes), as a momentum encoder represents them, and
    a predictor follows the projector. Networks with layer norm have AdamW (learning rate 1.5e-4,
    weight decay 0.1) and a random patch projection that is not trained, all others LARS (0.6,
    1e-6); `lr` is for 256 images per step and is scaled with them. Probe, `knn`, `encoder/` and
    `--epochs 0` are as in `moco_v2`.

    `--batchformer on` is as in `moco_v2`. `--pairings released` are those of the code that the
    published encoder was trained with: the second view's queries after attention are unused, and
    three pairings count twice; it summed them all (`--plain-weight 1 --batchformer-weight 1`), and
    its BatchFormer was never trained (`--batchformer frozen`). Under LARS and AdamW a factor of the
    loss changes next to nothing, so `--loss-scale` is no control here.

    Cost: not measured yet; `--dry-run` estimates it.
    Paper: ResNet-50, 100 epochs of 4,096 images, temperature 1, hidden layers of 4,096, dim 256; a
    linear classifier for 90 epochs at learning rate 0.1 for 256 images.
    Published: 68.9% on ImageNet, and 69.8% with BatchFormer (Hou et al. 2022, table 8).
    """
    size = size or data.size
    if pairings != "all" and batchformer == "off":
        raise LongtailError(
            "--pairings has no effect without BatchFormer: pass --batchformer on, or remove it"
        )
    backbone = build({"name": network, "size": size}, trust=True)
    neck = batchformer_neck(
        backbone.dim,
        batchformer,
        plain_weight=plain_weight,
        batchformer_weight=batchformer_weight,
        layers=batchformer_layers,
        scope=batchformer_scope,
    )
    blur = (1.0, 0.1) if size >= LARGE else (0.0, 0.0)
    first, second = (
        SimClr(size, blur=blur[0], flip=data.mirror),
        SimClr(size, blur=blur[1], solarize=0.2, flip=data.mirror),
    )
    method = MoCo3(
        backbone,
        dim=dim,
        hidden=hidden,
        momentum=momentum,
        temperature=temperature,
        norm=projector_norm,
        neck=neck,
        loss_scale=loss_scale,
        pairs=pairings,
    )
    if optimizer is None:
        has_layer_norm = any(isinstance(layer, nn.LayerNorm) for layer in backbone.modules())
        optimizer = "adamw" if has_layer_norm else "lars"
    lrs, decays = {"sgd": 0.12, "lars": 0.6, "adamw": 1.5e-4}, {"sgd": 5e-4, "lars": 1e-6}
    step = scaled_lr(
        lrs[optimizer] if lr is None else lr, data.train, batch=batch, accumulate=accumulate
    )
    decay = decays.get(optimizer, 0.1) if weight_decay is None else weight_decay
    scales = lr_scales(neck, batchformer_lr_scale, default=1.0)
    optimizers: dict[str, Build] = {
        "sgd": sgd(lr=step, weight_decay=decay, nesterov=False, scales=scales),
        "lars": lars(lr=step, weight_decay=decay, scales=scales),
        "adamw": adamw(lr=step, weight_decay=decay, scales=scales),
    }
    return pretrain_and_probe(
        run,
        data,
        method,
        views=TwoViews(first, second),
        epochs=epochs,
        batch=batch,
        accumulate=accumulate,
        optimizer=optimizers[optimizer],
        schedule=Cosine(warmup),
        probe_schedule=Cosine(),
        size=size,
        **probing,
    )


def pretrain_and_probe(
    run: Run,
    data: Dataset,
    method: MomentumContrast,
    *,
    views: TwoViews,
    epochs: int,
    batch: int,
    accumulate: int,
    optimizer: Build,
    schedule: Schedule,
    probe_schedule: Schedule,
    size: int,
    probe_epochs: int = 10,
    probe_batch: int = 128,
    probe_optimizer: Literal["adamw", "sgd"] = "adamw",
    probe_lr: float = 3e-3,
    neighbours: int = 20,
) -> Method[Labelled]:
    """Train a method without labels in stage `pretrain`, then its linear probe in stage `probe`.

    Args:
        epochs: of pretraining; 0 for none.
        neighbours: that vote for the head `knn`; 0 for no such head, and no scores per epoch.
    """
    network = method.deploy()
    if epochs:
        run.fit(
            Stage(
                name="pretrain",
                method=method,
                data=TrainLoader(
                    data.train,
                    view=views,
                    batch=batch,
                    seed=run.view_seed,
                    workers=run.machine.workers,
                ),
                epochs=epochs,
                accumulate=accumulate,
                optimizer=optimizer,
                schedule=schedule,
                evals=feature_scores(run, data, size=size, neighbours=neighbours),
            )
        )

        def write(_: Path) -> None:
            write_encoder(run, network, data=data, images=len(data.train))

        run.write(run.files.encoder.spec, write)
    classes = len(data.classes)
    knn = None
    if neighbours:
        split = run.compute(lambda: data.train, dry=lambda: _first_rows(data.train, 2 * classes))
        knn = NearestNeighbours(
            features_of(run, network, split, size=size),
            split.target,
            classes=classes,
            neighbours=neighbours,
        )
    view: View = CropFlip(size, pad=size // 8, flip=data.mirror)
    if size >= LARGE:
        view = ResizedCrop(size, scale=(0.08, 1.0), flip=data.mirror)
    return fit_stage(
        run,
        data,
        Probe(Frozen(network), Linear(network.dim, classes), LogitAdjusted(data.counts), knn=knn),
        name="probe",
        view=view,
        epochs=probe_epochs,
        batch=probe_batch,
        optimizer=(
            adamw(lr=probe_lr, weight_decay=0.0)  # whatever the scale of the features is
            if probe_optimizer == "adamw"
            else sgd(lr=probe_lr, weight_decay=0.0, nesterov=False)
        ),
        schedule=probe_schedule,
        ema=0.0,
    )


def feature_scores(run: Run, data: Dataset, *, size: int, neighbours: int) -> dict[str, Evaluator]:
    """Score the features on validation images after every epoch, where there are any."""
    if not len(data.val) or not neighbours:
        return {}
    labelled = _first_rows(data.train, CURVE_IMAGES)
    counts = torch.bincount(labelled.target, minlength=len(data.classes))
    workers = run.machine.workers
    return {
        "val": FeatureEvaluator(
            EvalLoader(data.val, size=size, batch=256, workers=workers),
            EvalLoader(labelled, size=size, batch=256, workers=workers),
            scorer_for(data),
            counts=counts.clamp_min(1),
            neighbours=neighbours,
        )
    }


def features_of(run: Run, network: Network, split: Split, *, size: int) -> Tensor:
    """Features (N, dim) of the images of a split."""
    run.machine.place_module(network.eval())
    rows = EvalLoader(split, size=size, batch=256, workers=run.machine.workers)
    predict = predictor(lambda image: {"logits": network(image)}, run.machine)
    return torch.from_numpy(collect(rows, predict).logits["logits"])


def _first_rows(split: Split, count: int) -> Split:
    """At most `count` rows of a split, evenly spaced."""
    if len(split) <= count:
        return split
    return split.take(np.linspace(0, len(split) - 1, count).astype(np.int64))
