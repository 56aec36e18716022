"""Masked autoencoding (He et al. 2022): LiVT's first stage, alone or within `livt`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image

from longtail.core import Labelled, Method, Stage
from longtail.data.augmentations import ResizedCrop
from longtail.data.dataset import Dataset, Split
from longtail.data.loader import TrainLoader, load_images
from longtail.data.splits import tail_rows
from longtail.data.views import CropFlip
from longtail.engine.optim import adamw
from longtail.engine.run import Run
from longtail.errors import LongtailError
from longtail.losses import LogitAdjusted
from longtail.methods.classify import Classify
from longtail.methods.masked_autoencode import MaskedAutoencode
from longtail.nn import Frozen, Linear, Network, build
from longtail.nn.mae import MaskedAutoencoder, initialise
from longtail.recipes.builders import (
    TRANSFORMER_ROWS,
    choose_transformer,
    fit_stage,
    scaled_lr,
)
from longtail.recipes.encoders import write_encoder
from longtail.records.files import atomic_write
from longtail.schedules import Cosine

SEPARATE_ROWS = TRANSFORMER_ROWS
BETAS = (0.9, 0.95)


def masked_autoencoder(
    run: Run,
    data: Dataset,
    *,
    batch: int = 256,
    images: int | None = None,
    probe_epochs: int = 10,
    size: int | None = None,
    **pretraining: Any,
) -> Method[Labelled]:
    """Pretrain an encoder without labels, by reconstructing masked patches.

        longtail train masked_autoencoder --data cifar100-lt --root DATA --out runs/mgp
        longtail train livt --data cifar100-lt --root DATA --weights runs/mgp --out runs/livt

    The first stage of LiVT alone, masked generative pretraining (He et al. 2022). The encoder is
    left in `encoder/` of the run, with originals, masked and reconstructed images in
    `analysis/reconstructions.png`. The row is that of a linear classifier on the frozen features,
    trained with balanced softmax for `probe_epochs`. `lr` is for 256 images per step and is scaled
    with them. `images` takes a number of training images, the same number of each class: how LiVT's
    table 5 makes balanced data of the size of long-tailed data.

    Cost: 37 minutes on one thread for CIFAR-10-LT (imbalance 100), `vit_mini` and 20 epochs of
    `--batch 64`; 8 are the classifier's.
    Ours: 42.5% with these and `--lr 3e-3`, three seeds (livt_cifar10_lt/mgp).
    Paper: 800 epochs, effective batch 4,096, learning rate 1.5e-4, warmup 40 epochs, mask 0.75,
    decoder 512 wide with 8 blocks and 16 heads.
    """
    size = size or data.size
    split = data.train if images is None else _balanced(data.train, images, len(data.classes))
    encoder = pretrain(run, data, split=split, batch=batch, size=size, **pretraining)
    head = Linear(encoder.dim, len(data.classes))
    return fit_stage(
        run,
        data,
        Classify(Frozen(encoder), head, LogitAdjusted(data.counts)),
        name="probe",
        view=CropFlip(size, pad=size // 8, flip=data.mirror),
        epochs=probe_epochs,
        batch=batch,
        optimizer=adamw(lr=1e-2, weight_decay=0.0),
        schedule=Cosine(0.05),
        ema=0.0,
    )


def pretrain(
    run: Run,
    data: Dataset,
    *,
    split: Split,
    network: str = "auto",
    epochs: int = 200,
    batch: int,
    accumulate: int = 1,
    lr: float = 1e-3,
    weight_decay: float = 0.05,
    warmup: float = 0.05,
    mask: float = 0.75,
    decoder_width: int = 128,
    decoder_depth: int = 2,
    decoder_heads: int = 4,
    patch: int | None = None,
    size: int,
) -> Network:
    """Train an encoder to reconstruct hidden patches, in stage `pretrain`.

    The encoder is written into the run's folder, with an image of some reconstructions.

    Args:
        data: says what the images are, and has test images to reconstruct, which choose nothing.
        split: the images to train on.
    """
    name = choose_transformer(network, size, patch=patch)
    spec = {"name": name, "size": size, "patch": patch, "pool": "avg"}
    encoder = initialise(build(spec, trust=True))
    autoencoder = MaskedAutoencoder(
        encoder, ratio=mask, width=decoder_width, depth=decoder_depth, heads=decoder_heads
    )
    run.fit(
        Stage(
            name="pretrain",
            method=MaskedAutoencode(autoencoder),
            data=TrainLoader(
                split,
                view=ResizedCrop(size, flip=data.mirror),
                batch=batch,
                seed=run.view_seed,
                workers=run.machine.workers,
            ),
            epochs=epochs,
            accumulate=accumulate,
            # Class and mask tokens decay here, as in the released code.
            optimizer=adamw(
                lr=scaled_lr(lr, split, batch=batch, accumulate=accumulate),
                betas=BETAS,
                weight_decay=weight_decay,
                undecayed=(),
            ),
            schedule=Cosine(warmup),
        )
    )

    def write(_: Path) -> None:
        # Those of the test are the same for training on other images of the same data
        shown = next(split for split in (data.test, data.val, data.train) if len(split))
        draw_reconstructions(autoencoder, shown, run.files.analysis.reconstructions)
        write_encoder(run, encoder, data=data, images=len(split))

    run.write(run.files.encoder.spec, write)
    return encoder


def _balanced(split: Split, images: int, classes: int) -> Split:
    """Take a number of images from a split, the same number of each class, or one more."""
    if images < classes:
        raise LongtailError(
            f"--images {images} is fewer than one for each of {classes} classes: "
            f"pass {classes} or more"
        )
    counts = [images // classes + (c < images % classes) for c in range(classes)]
    have = torch.bincount(split.target, minlength=classes)
    short = [c for c in range(classes) if have[c] < counts[c]]
    if short:
        raise LongtailError(
            f"--images {images} needs {counts[0]} images of each of {classes} classes, got "
            f"{int(have.min())} of the smallest: take fewer, or balanced data"
        )
    return split.take(tail_rows(split.target.numpy(), counts))


def draw_reconstructions(
    autoencoder: MaskedAutoencoder, split: Split, path: Path, *, columns: int = 8
) -> None:
    """Write an image with originals, visible patches and reconstructions, from top to bottom.

    The run's random generators stay as they are.
    """
    chosen = np.linspace(0, len(split) - 1, min(columns, len(split))).astype(int).tolist()
    size, device = int(autoencoder.network.spec["size"]), next(autoencoder.parameters()).device
    image = load_images(split, chosen, size).to(device)
    with torch.random.fork_rng(devices=[device] if device.type == "cuda" else []):
        torch.manual_seed(0)
        masked, painted = autoencoder.eval().show(image)
    larger, gap = max(1, 64 // size), 2
    side = size * larger + gap
    sheet = Image.new("RGB", (side * len(chosen) + gap, side * 3 + gap), "white")
    for line, row in enumerate((image, masked, painted)):
        for column, one in enumerate(row.mul(255).round().byte().permute(0, 2, 3, 1).cpu().numpy()):
            tile = Image.fromarray(one).resize(
                (size * larger, size * larger), Image.Resampling.NEAREST
            )
            sheet.paste(tile, (gap + column * side, gap + line * side))
    with atomic_write(path) as part:
        sheet.save(part, "PNG")
