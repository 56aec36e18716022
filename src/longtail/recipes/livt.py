"""LiVT: vision transformers from scratch on long-tailed data (Xu et al. 2023)."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

from longtail import processes
from longtail.core import Labelled, Method
from longtail.data.dataset import Dataset
from longtail.data.views import check_size
from longtail.engine.optim import adamw
from longtail.engine.run import Run
from longtail.nn import build
from longtail.nn.mae_files import Weights, load_encoder, read_weights, timm_layout, write_weights
from longtail.recipes.builders import Augment, KeepRule, mixing, scaled_lr, training_view, unused
from longtail.recipes.finetuning import Loss, finetune
from longtail.recipes.masked_autoencoder import BETAS, pretrained_encoder
from longtail.recipes.teachers import data_seen, minutes_of


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
    keep: KeepRule = "last",
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

    Cost: 38 to 47 minutes on one thread for 20 epochs of labels on CIFAR-10-LT (imbalance 100) with `vit_mini`, 29 for 20 of painting.
    Ours: 52.7% with these, `--pretrain-batch 64 --pretrain-lr 3e-3` and `--augment weak`, three seeds (livt_cifar10_lt/bal-bce).
    Paper: 800 epochs of pretraining at an effective batch of 4,096 and rate 1.5e-4, then 100 at 1,024 and 1e-3; decoder 512 wide, 8 blocks,
    16 heads. Published: ViT-B 60.9% on ImageNet-LT; on CIFAR-100-LT (imbalance 100) 58.2%, pretrained on ImageNet-1K.
    """
    size = size or data.size
    first: dict[str, Any] = {
        "mask": mask,
        "decoder_width": decoder_width,
        "decoder_depth": decoder_depth,
        "decoder_heads": decoder_heads,
    }
    first |= {
        "pretrain_epochs": pretrain_epochs,
        "pretrain_batch": pretrain_batch,
        "pretrain_accumulate": pretrain_accumulate,
    }
    first |= {"pretrain_lr": pretrain_lr, "pretrain_size": pretrain_size}
    if pretrained is not None:
        unused(run, livt, first, beside="--pretrained, which skips pretraining")
        weights = _given(run, data, pretrained)
        run.pretraining = None if data.hash[:12] in str(weights.data) else weights.data
        run.minutes_before["encoder"] = weights.minutes or 0.0
    else:
        if pretrain_size is not None:
            check_size(pretrain_size)
        seen = data if pretrain_size is None else data.at_native_resolution()
        encoder = pretrained_encoder(
            run,
            seen,
            seen.train,
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
    if patch is None and not network.startswith("timm:"):  # timm's names say their patch
        patch = weights.patch
    spec = {
        "name": network,
        "size": size,
        "patch": patch,
        "pool": "avg_norm",
        "drop_path": drop_path,
        **weights.statistics,
    }
    return finetune(
        run,
        data,
        load_encoder(build(spec), weights),
        stage="finetune",
        epochs=epochs,
        batch=batch,
        accumulate=accumulate,
        optimizer=adamw(
            lr=scaled_lr(lr, data.train, batch=batch, accumulate=accumulate),
            betas=BETAS,
            weight_decay=weight_decay,
            layer_decay=layer_decay,
        ),
        warmup=warmup,
        view=training_view(augment, size, erase=erase, flip=data.mirror),
        mix=mixing(len(data.classes), mixup=mixup, cutmix=cutmix, smoothing=smoothing),
        loss=loss,
        tau=tau,
        test_prior=test_prior,
        keep=keep,
    )


def _given(run: Run, data: Dataset, pretrained: Path) -> Weights:
    """The encoder to begin with, of which the run keeps a copy: what was given may be changed, or gone, when it is resumed.

    So `--pretrained` of a run that took an encoder gives the same, and not its network, which has learnt labels since. A run that has
    learnt nothing may be asked anew, with another encoder.
    """
    if run.files.encoder.is_complete and run.files.stage("finetune").checkpoint.exists():
        return read_weights(run.folder)
    weights = read_weights(pretrained)
    if weights.data is None:  # encoders of ours say it themselves
        here = f"{data.name}, {data.hash[:12]}"
        known = (
            pretrained.is_dir() or weights.spec is not None
        )  # a file beside its spec is one of a run
        learnt = (
            data_seen(str(weights.source), data, role="encoder") or here
            if known
            else f"the data of {pretrained.name}"
        )
        weights = replace(weights, data=learnt, minutes=minutes_of(str(weights.source)) or None)
    if not run.dry and processes.rank() == 0:
        write_weights(run.files.encoder.path, weights)
    return weights
