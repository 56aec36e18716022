"""LiVT: vision transformers from scratch on long-tailed data, and the transformers it is compared with (Xu et al. 2023)."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any, Literal

from torch import Tensor, nn

from longtail import processes
from longtail.core import BatchTransform, Labelled, Method, Stage
from longtail.data.dataset import Dataset
from longtail.data.loader import Loader
from longtail.data.views import ThreeAugment, View
from longtail.engine.optim import Build, adamw, clipped, from_timm
from longtail.engine.run import Run
from longtail.losses import (
    LADE,
    LDAM,
    BalancedBCE,
    BinaryCrossEntropy,
    ClassBalancedBCE,
    CrossEntropy,
    InfluenceBalanced,
    LogitAdjusted,
    effective_number,
)
from longtail.methods.classify import Classify
from longtail.nn import Cosine, Head, Linear, Network, build
from longtail.nn.mae import initialise
from longtail.nn.mae_files import Weights, load_encoder, read_weights, timm_layout
from longtail.recipes.masked_autoencoder import BETAS, pretrained_encoder
from longtail.recipes.supervised import Augment, kept, mixing, training_view, unused, validation
from longtail.schedules import Cosine as CosineRate
from longtail.schedules import Deferred

Loss = Literal["bal_bce", "bce", "cb_bce", "bal_ce", "ce", "cb", "ldam", "lade", "ib"]
SCALE = 30.0  # of cosine logits, and so of LDAM's margins
LAYER_SCALE = 1e-4
ORIGIN = "pretrained.json"  # in a run's folder: where its encoder was, wherever the command that took it was typed
HEAD_STD = 2e-5  # a linear head begins near zero, as in MAE


def livt(
    run: Run,
    data: Dataset,
    *,
    network: str = "vit_mini",
    pretrained: Path | None = None,
    pretrain_epochs: int = 200,
    pretrain_batch: int = 256,
    pretrain_accumulate: int = 1,
    pretrain_lr: float = 1e-3,
    pretrain_size: int | None = None,
    mask: float = 0.75,
    decoder_width: int = 128,
    decoder_depth: int = 2,
    decoder_heads: int = 4,
    epochs: int = 100,
    batch: int = 128,
    accumulate: int = 1,
    lr: float = 2e-3,
    weight_decay: float = 0.05,
    warmup: float = 0.1,
    layer_decay: float = 0.75,
    drop_path: float = 0.1,
    loss: Loss = "bal_bce",
    tau: float = 1.0,
    test_prior: Literal["uniform"] | None = None,
    mixup: float = 0.8,
    cutmix: float = 1.0,
    smoothing: float = 0.0,
    augment: Augment = "randaugment",
    erase: float = 0.25,
    keep: Literal["last", "best"] = "last",
    patch: int | None = None,
    size: int | None = None,
) -> Method[Labelled]:
    """Train a vision transformer on long-tailed data alone: paint hidden patches first, then learn the labels with Balanced BCE.

        longtail train livt --data cifar100-lt --root DATA --out runs/livt
        longtail train livt --data cifar100-lt --root DATA --loss ce --pretrained runs/livt --out runs/mae-ce

    LiVT (Xu et al. 2023). `pretrained` takes the encoder of another run, which may have seen other data, or of a public MAE checkpoint,
    and skips the first stage (of a run that took one itself, it takes the same); width, depth, heads and patch must be the network's, the
    image size may differ. Rates are for 256 images a step and grow with them; with `layer_decay` d, the last of n blocks has d of the
    rate, the first d ** n. `erase` is a part of randaugment. `loss` is any of the paper's table 7: ce is the paper's MAE, bal_bce its
    LiVT (`test_prior` uniform adds equation 10's log(C - 1)), the others are its baselines.

    Cost: not measured yet; `--dry-run` estimates it.
    Paper: 800 epochs of pretraining at an effective batch of 4,096 and rate 1.5e-4, then 100 at 1,024 and 1e-3; decoder 512 wide, 8 blocks,
    16 heads. Published: ViT-B 60.9% on ImageNet-LT; on CIFAR-100-LT (imbalance 100) 58.2%, pretrained on ImageNet-1K.
    """
    size = size or data.size
    first: dict[str, Any] = {"mask": mask, "decoder_width": decoder_width, "decoder_depth": decoder_depth, "decoder_heads": decoder_heads}
    first |= {"pretrain_epochs": pretrain_epochs, "pretrain_batch": pretrain_batch, "pretrain_accumulate": pretrain_accumulate}
    first |= {"pretrain_lr": pretrain_lr, "pretrain_size": pretrain_size}
    if pretrained is not None:
        unused(run, livt, first, beside="--pretrained, which skips pretraining")
        origin = began(pretrained)
        weights = read_weights(origin)
        if not run.dry and processes.rank() == 0:
            run.folder.mkdir(parents=True, exist_ok=True)
            (run.folder / ORIGIN).write_text(json.dumps(str(origin.resolve())) + "\n", encoding="utf-8")
        seen = weights.data or f"the data of {origin.name}"
        run.pretraining = None if data.hash[:12] in seen else seen
    else:
        encoder = pretrained_encoder(
            run,
            data,
            (data if pretrain_size is None else data.natively()).train,
            network=network,
            epochs=pretrain_epochs,
            batch=pretrain_batch,
            accumulate=pretrain_accumulate,
            lr=pretrain_lr,
            weight_decay=0.05,
            warmup=0.05,
            mask=mask,
            decoder=(decoder_width, decoder_depth, decoder_heads),
            patch=patch,
            size=pretrain_size or size,
        )
        weights = Weights(run.folder, timm_layout(encoder), encoder.spec)
    spec = {"name": network, "size": size, "patch": patch or weights.patch, "pool": "avg_norm", "drop_path": drop_path}
    spec |= weights.statistics
    return _classifier(
        run,
        data,
        load_encoder(build(spec), weights),
        stage="finetune",
        epochs=epochs,
        batch=batch,
        accumulate=accumulate,
        optimizer=adamw(lr=lr * batch * accumulate / 256, betas=BETAS, weight_decay=weight_decay, layer_decay=layer_decay),
        warmup=warmup,
        view=training_view(augment, size, erase=erase, flip=data.mirror),
        mix=mixing(len(data.classes), mixup=mixup, cutmix=cutmix, smoothing=smoothing),
        loss=loss,
        tau=tau,
        test_prior=test_prior,
        keep=keep,
    )


def vit_scratch(
    run: Run,
    data: Dataset,
    *,
    network: str = "vit_mini",
    epochs: int = 100,
    batch: int = 128,
    accumulate: int = 1,
    lr: float = 2e-3,
    weight_decay: float = 0.05,
    warmup: float = 0.1,
    drop_path: float = 0.1,
    loss: Loss = "ce",
    tau: float = 1.0,
    test_prior: Literal["uniform"] | None = None,
    mixup: float = 0.8,
    cutmix: float = 1.0,
    smoothing: float = 0.0,
    augment: Augment = "randaugment",
    erase: float = 0.25,
    keep: Literal["last", "best"] = "last",
    patch: int | None = None,
    size: int | None = None,
) -> Method[Labelled]:
    """Train a vision transformer with labels alone: what LiVT's pretraining is measured against.

        longtail train vit_scratch --data cifar100-lt --root DATA --loss bal_ce --out runs/scratch

    LiVT's second stage from the weights that its first one begins with, and one rate for all layers; `lr` is for 256 images a step and
    grows with them.

    Cost: not measured yet; `--dry-run` estimates it.
    Published: ViT-B 31.6% on ImageNet-LT after 800 epochs (Xu et al. 2023, table 2).
    """
    size = size or data.size
    return _classifier(
        run,
        data,
        initialise(build({"name": network, "size": size, "patch": patch, "pool": "avg_norm", "drop_path": drop_path})),
        stage="train",
        epochs=epochs,
        batch=batch,
        accumulate=accumulate,
        optimizer=adamw(lr=lr * batch * accumulate / 256, betas=BETAS, weight_decay=weight_decay),
        warmup=warmup,
        view=training_view(augment, size, erase=erase, flip=data.mirror),
        mix=mixing(len(data.classes), mixup=mixup, cutmix=cutmix, smoothing=smoothing),
        loss=loss,
        tau=tau,
        test_prior=test_prior,
        keep=keep,
    )


def deit3(
    run: Run,
    data: Dataset,
    *,
    network: str = "vit_mini",
    epochs: int = 100,
    batch: int = 128,
    accumulate: int = 1,
    lr: float = 3e-3,
    weight_decay: float = 0.02,
    warmup: float = 0.05,
    drop_path: float = 0.1,
    layer_scale: float = LAYER_SCALE,
    loss: Loss = "bce",
    tau: float = 1.0,
    test_prior: Literal["uniform"] | None = None,
    mixup: float = 0.8,
    cutmix: float = 1.0,
    keep: Literal["last", "best"] = "last",
    patch: int | None = None,
    size: int | None = None,
) -> Method[Labelled]:
    """Train a vision transformer in the manner of DeiT III: LAMB, three simple augmentations, binary cross entropy.

        longtail train deit3 --data cifar100-lt --root DATA --out runs/deit3

    Touvron et al. 2022: class token, scaled layers, LAMB (rate 3e-3 whatever the batch, clipped at norm 1), one of grey, solarize and blur,
    mixup and CutMix; with `bce`, every class of a mixed image counts as a whole. Without its repeated augmentation, which shows an epoch a
    third of the images.

    Cost: not measured yet; `--dry-run` estimates it.
    Published: ViT-B 48.4% on ImageNet-LT after 800 epochs (Xu et al. 2023, table 2).
    """
    size = size or data.size
    scaled = {} if network.startswith("timm:") else {"layer_scale": layer_scale}  # timm's models say by themselves
    if not scaled and layer_scale != LAYER_SCALE:
        raise ValueError(f"expected --layer-scale with a network of ours, got it with {network}, which has its own: leave it out")
    return _classifier(
        run,
        data,
        build({"name": network, "size": size, "patch": patch, "drop_path": drop_path, **scaled}),
        stage="train",
        epochs=epochs,
        batch=batch,
        accumulate=accumulate,
        optimizer=clipped(from_timm("lamb", lr=lr, weight_decay=weight_decay), norm=1.0),
        warmup=warmup,
        view=ThreeAugment(size, pad=size // 8, flip=data.mirror),
        mix=mixing(len(data.classes), mixup=mixup, cutmix=cutmix),
        loss=loss,
        tau=tau,
        test_prior=test_prior,
        keep=keep,
        whole=True,
        head_std=0.02,  # LAMB's steps are in proportion to the weights: a head near zero would stay there
    )


def _classifier(
    run: Run,
    data: Dataset,
    backbone: Network,
    *,
    stage: str,
    epochs: int,
    batch: int,
    accumulate: int,
    optimizer: Build,
    warmup: float,
    view: View,
    mix: BatchTransform,
    loss: Loss,
    tau: float,
    test_prior: Literal["uniform"] | None,
    keep: Literal["last", "best"],
    whole: bool = False,
    head_std: float = HEAD_STD,
) -> Method[Labelled]:
    """One stage with labels."""
    chosen = kept(keep, ema=0.0, data=data)[1]
    function, head, weights = loss_and_head(loss, data.counts, backbone.dim, tau=tau, test_prior=test_prior, whole=whole, std=head_std)
    return run.fit(
        Stage(
            name=stage,
            method=Classify(backbone, head, function, weights=weights),
            data=Loader(data.train, view=view, batch=batch, seed=run.view_seed, workers=run.machine.workers),
            epochs=epochs,
            accumulate=accumulate,
            optimizer=optimizer,
            schedule=CosineRate(warmup),
            mix=mix,
            evals=validation(data, backbone.spec["size"], workers=run.machine.workers),
            keep=chosen,
        )
    )


def began(run: Path) -> Path:
    """The run or file whose encoder a run began with: itself if it has pretrained one, or never had any.

    Its own network has learnt labels, and would not be what `--pretrained` promises.
    """
    origin = run / ORIGIN
    return Path(json.loads(origin.read_text(encoding="utf-8"))) if origin.exists() else run


def loss_and_head(
    loss: Loss,
    counts: Tensor,
    dim: int,
    *,
    tau: float,
    test_prior: Literal["uniform"] | None,
    whole: bool = False,
    std: float = HEAD_STD,
) -> tuple[nn.Module, Head, nn.Module | None]:
    """A loss of table 7 by name, the head that it was designed with, and its class weights. A linear head begins with weights of `std`.

    Balanced BCE without a test prior is the one with a uniform test prior and a head that begins lower by what that adds: learning is the
    same, and the sigmoid of a logit is then the answer for a balanced test set.
    """
    if tau != 1.0 and loss not in ("bal_bce", "bal_ce"):
        raise ValueError(f"expected --tau with --loss bal_bce or bal_ce, which have a prior to scale, got it with {loss}: leave it out")
    if test_prior is not None and loss != "bal_bce":
        raise ValueError(f"expected --test-prior with --loss bal_bce, got it with {loss}: leave it out")
    losses: dict[Loss, nn.Module] = {
        "bal_bce": BalancedBCE(counts, tau=tau, test_prior="uniform"),
        "bce": BinaryCrossEntropy(whole=whole),
        "cb_bce": ClassBalancedBCE(counts),
        "bal_ce": LogitAdjusted(counts, tau=tau),
        "ce": CrossEntropy(),
        "cb": CrossEntropy(),
        "ldam": LDAM(counts, max_margin=0.5 * SCALE, scale=1.0),
        "lade": LADE(counts),
        "ib": InfluenceBalanced(counts),
    }
    weights = Deferred(effective_number(counts), start=0.0) if loss == "cb" else None
    if loss == "ldam":
        return losses[loss], Cosine(dim, len(counts), scale=SCALE), weights
    head = Linear(dim, len(counts))
    nn.init.trunc_normal_(head.weight, std=std)
    begin = -tau * math.log(len(counts) - 1) if loss == "bal_bce" and test_prior is None else 0.0
    nn.init.constant_(head.bias, begin)
    return losses[loss], head, weights
