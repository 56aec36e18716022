"""LiVT: vision transformers from scratch on long-tailed data (Xu et al. 2023)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from longtail.core import Labelled, Method
from longtail.data.dataset import Dataset
from longtail.data.views import check_size
from longtail.engine.run import Run
from longtail.nn import build
from longtail.nn.encoders import Weights, encoder_weights, load_encoder
from longtail.recipes.builders import (
    TRANSFORMER_ROWS,
    OptimizerName,
    adamw_or_muon,
    scaled_lr,
)
from longtail.recipes.encoders import read_encoder
from longtail.recipes.finetuning import Loss, finetune
from longtail.recipes.masked_autoencoder import BETAS, pretrain

SEPARATE_ROWS = TRANSFORMER_ROWS
PRETRAINING = (
    *("mask", "decoder_width", "decoder_depth", "decoder_heads", "pretrain_epochs"),
    *("pretrain_batch", "pretrain_accumulate", "pretrain_lr", "pretrain_size"),
)
"""The keywords of the first stage, which have no effect without it."""


def livt(
    run: Run,
    data: Dataset,
    *,
    network: str = "auto",
    weights: Path | None = None,
    pretrain_epochs: int = 200,
    pretrain_batch: int = 256,
    pretrain_accumulate: int = 1,
    pretrain_lr: float = 1e-3,
    pretrain_size: int | None = None,
    mask: float = 0.75,
    decoder_width: int = 128,
    decoder_depth: int = 2,
    decoder_heads: int = 4,
    batch: int = 128,
    accumulate: int = 1,
    lr: float = 2e-3,
    weight_decay: float = 0.05,
    optimizer: OptimizerName = "default",
    layer_decay: float = 0.75,
    drop_path: float = 0.1,
    loss: Loss = "bal_bce",
    patch: int | None = None,
    size: int | None = None,
    **finetuning: Any,
) -> Method[Labelled]:
    """Pretrain a vision transformer by masked autoencoding, then fine-tune it with Balanced BCE.

        longtail train livt --data cifar100-lt --root DATA --out runs/livt
        longtail train livt --data cifar100-lt --root DATA --loss ce --weights runs/livt

    LiVT (Xu et al. 2023), on the long-tailed data alone. `weights` takes the encoder of another
    run, which may be of other data, or of a public MAE checkpoint, and skips the first stage (of a
    run that took one itself, it takes the same); width, depth, heads and patch must be the
    network's, the image size may differ. Learning rates are for 256 images per step and are scaled
    with them; with `layer_decay` d, the last of n blocks has d of the learning rate, the first d^n.
    `erase` is a part of randaugment. `loss` is any of the paper's table 7: ce is the paper's MAE,
    bal_bce its LiVT (`test_prior` uniform adds equation 10's log(C - 1)), the others are its
    baselines.

    Cost: 38 to 47 minutes on one thread for 20 epochs of labels on CIFAR-10-LT (imbalance 100) with
    `vit_mini`, 29 for 20 of pretraining.
    Ours: 52.7% with these, `--pretrain-batch 64 --pretrain-lr 3e-3` and `--augment weak`, three
    seeds (livt_cifar10_lt/bal-bce).
    Paper: 800 epochs of pretraining at an effective batch of 4,096 and learning rate 1.5e-4, then
    100 at 1,024 and 1e-3; decoder 512 wide, 8 blocks, 16 heads.
    Published: ViT-B 60.9% on ImageNet-LT; on CIFAR-100-LT (imbalance 100) 58.2%, pretrained on
    ImageNet-1K.
    """
    size = size or data.size
    if weights is not None:
        run.ignore(PRETRAINING, given="--weights")
        encoder = read_encoder(run, data, weights, stage="finetune")
    else:
        if pretrain_size is not None:
            check_size(pretrain_size)
        images = data if pretrain_size is None else data.at_native_resolution()
        network_before = pretrain(
            run,
            images,
            split=images.train,
            network=network,
            epochs=pretrain_epochs,
            batch=pretrain_batch,
            accumulate=pretrain_accumulate,
            lr=pretrain_lr,
            mask=mask,
            decoder_width=decoder_width,
            decoder_depth=decoder_depth,
            decoder_heads=decoder_heads,
            patch=patch,
            size=pretrain_size or size,
        )
        encoder = Weights(run.folder, encoder_weights(network_before), network_before.spec)
    trust = run.trust or network != "auto"  # the spec of another run may name any function
    if network == "auto":  # a public checkpoint has no name
        network = str((encoder.spec or {}).get("name", "vit_mini"))
    # The names of timm's say their patch, and fast_vit has none
    if patch is None and not network.startswith(("timm:", "fast_vit")):
        patch = encoder.patch
    spec = {
        "name": network,
        "size": size,
        "patch": patch,
        "pool": "avg_norm",
        "drop_path": drop_path,
        **encoder.statistics,
    }
    return finetune(
        run,
        data,
        load_encoder(build(spec, trust=trust), encoder),
        stage="finetune",
        batch=batch,
        accumulate=accumulate,
        optimizer=adamw_or_muon(
            optimizer,
            lr=scaled_lr(lr, data.train, batch=batch, accumulate=accumulate),
            betas=BETAS,
            weight_decay=weight_decay,
            layer_decay=layer_decay,
        ),
        loss=loss,
        **finetuning,
    )
