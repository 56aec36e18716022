"""The transformers that LiVT is compared with (tables 1 to 4 of Xu et al. 2023)."""

from __future__ import annotations

from functools import partial
from typing import Any

from torch import nn

from longtail.core import Labelled, Method
from longtail.data.augmentations import ThreeAugment
from longtail.data.dataset import Dataset
from longtail.engine.optim import clipped, from_timm
from longtail.engine.run import Run
from longtail.errors import LongtailError
from longtail.nn import Network, PassThrough, build
from longtail.nn.mae import transformer
from longtail.recipes.builders import ERASE, TRANSFORMER_ROWS
from longtail.recipes.finetuning import Loss, finetune, loss_and_head
from longtail.recipes.vit import vit

SEPARATE_ROWS = TRANSFORMER_ROWS


def vit_scratch(
    run: Run,
    data: Dataset,
    *,
    epochs: int = 100,
    warmup: float = 0.1,
    smoothing: float = 0.0,
    **keywords: Any,
) -> Method[Labelled]:
    """Train a vision transformer with labels alone, as LiVT fine-tunes it: LiVT's baseline.

        longtail train vit_scratch --data cifar100-lt --root DATA --loss bal_ce --out runs/scratch

    `vit` with `--pool avg_norm`: LiVT's second stage from the weights that its first stage starts
    from, and one learning rate for all layers; `lr` is for 256 images per step and is scaled with
    them.

    Cost: 42 to 50 minutes on one thread for CIFAR-10-LT (imbalance 100), `vit_mini` and 20 epochs,
    beside other work.
    Ours: 49.0% with these, `--loss bal_ce` and `--augment weak`, three seeds
    (livt_cifar10_lt/scratch-bal-ce-epochs).
    Published: ViT-B 31.6% on ImageNet-LT after 800 epochs (Xu et al. 2023, table 2).
    """
    return vit(
        run,
        data,
        pool="avg_norm",
        epochs=epochs,
        warmup=warmup,
        smoothing=smoothing,
        repeats=1,
        mix_until=1.0,
        crop="part",  # LiVT's code has no other
        **keywords,
    )


def deit3(
    run: Run,
    data: Dataset,
    *,
    network: str = "vit_mini",
    lr: float = 3e-3,
    weight_decay: float = 0.02,
    warmup: float = 0.05,
    drop_path: float = 0.1,
    layer_scale: float = 1e-4,
    loss: Loss = "bce",
    patch: int | None = None,
    size: int | None = None,
    **finetuning: Any,
) -> Method[Labelled]:
    """Train a vision transformer as DeiT III does: LAMB, three augmentations, binary cross entropy.

        longtail train deit3 --data cifar100-lt --root DATA --out runs/deit3

    Touvron et al. 2022, as for ImageNet-1K: class token, layer scales, one drop path for all
    blocks, LAMB (learning rate 3e-3 whatever the batch, clipped at norm 1; weight decay 0.02 as in
    the paper, 0.05 in the released commands), random resized crops, one of grey, solarize and blur,
    Mixup and CutMix; with `bce`, every class of a mixed image is a full positive; binary losses are
    means over classes too, as the clipping expects. Without its repeated augmentation, which shows
    a third of the images per epoch.

    Cost: not measured yet; `--dry-run` estimates it.
    Published: ViT-B 48.4% on ImageNet-LT after 800 epochs (Xu et al. 2023, table 2).
    """
    size = size or data.size
    spec: dict[str, Any] = {"name": network, "size": size, "patch": patch, "drop_path": drop_path}
    if not network.startswith("timm:"):  # a model of timm has layer scales or not by its name
        spec["layer_scale"] = layer_scale
    backbone = _set_blocks(build(spec, trust=True), layer_scale=layer_scale, drop_path=drop_path)
    return finetune(
        run,
        data,
        backbone,
        stage="train",
        optimizer=clipped(from_timm("lamb", lr=lr, weight_decay=weight_decay), norm=1.0),
        warmup=warmup,
        view=ThreeAugment(size, flip=data.mirror, scale=(0.08, 1.0)),
        augment="threeaugment",
        erase=ERASE,
        crop="part",
        smoothing=0.0,
        loss=loss,
        # LAMB's steps are in proportion to the weights: a head near zero would stay there.
        build_loss=partial(loss_and_head, binarize_targets=True, std=0.02),
        neck=PassThrough(1 / len(data.classes) if loss.endswith("bce") else 1.0),
        **finetuning,
    )


def _set_blocks(network: Network, *, layer_scale: float, drop_path: float) -> Network:
    """Give all blocks one drop path and one initial layer scale, as DeiT III does.

    timm's drop path rises from block to block, and its layer scales begin at 1e-6.
    """
    from timm.layers.drop import DropPath  # here, because timm takes seconds to import
    from timm.models.vision_transformer import LayerScale

    for block in transformer(network).blocks:
        if not isinstance(block.ls1, LayerScale):
            raise LongtailError(
                f"expected a transformer with layer scales, got {network.spec['name']}, which has "
                "none: take vit_mini, vit_tiny, or one of timm's such as "
                "timm:deit3_base_patch16_224"
            )
        nn.init.constant_(block.ls1.gamma, layer_scale)
        nn.init.constant_(block.ls2.gamma, layer_scale)
        block.drop_path1, block.drop_path2 = DropPath(drop_path), DropPath(drop_path)
    return network
