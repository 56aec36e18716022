"""Generalised zero-shot learning with generated features (CE-GZSL, Han et al., CVPR 2021)."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Literal

import torch
import torch.nn.functional as F
from torch import Tensor

from longtail.core import Labelled, Method, Stage
from longtail.data.batches import StepsPerEpoch
from longtail.data.dataset import Dataset, Split
from longtail.data.images.stores import VectorRows
from longtail.data.loader import TrainLoader
from longtail.data.source import listing
from longtail.data.views import CropFlip
from longtail.engine.optim import adamw
from longtail.engine.run import Run
from longtail.errors import LongtailError
from longtail.losses import CrossEntropy
from longtail.methods.ce_gzsl import CeGzsl
from longtail.methods.classify import Classify
from longtail.methods.eszsl import CalibratedStacking
from longtail.nn import Embedded, Frozen, Linear, Streams, build
from longtail.recipes.batchformer import Mode, batchformer_neck, lr_scales
from longtail.recipes.builders import validation
from longtail.schedules import Steps

DROPS = 20
"""How often the learning rate falls during training: every 100 of the published 2,000 epochs."""


def ce_gzsl(
    run: Run,
    data: Dataset,
    *,
    network: Literal["vectors"] = "vectors",
    epochs: int = 4,
    lr: float = 1e-3,
    lr_drop: float = 0.99,
    batch: int = 64,
    hidden: int = 512,
    embedding: int = 128,
    generator: int = 512,
    noise: int | None = 16,
    critic: int = 512,
    comparator: int = 128,
    vector_norm: float = 10.0,
    critic_steps: int = 2,
    temperature: float = 0.1,
    share: float = 10.0,
    penalty: float = 10.0,
    init_std: float | None = 0.02,
    synthetic: int = 100,
    classifier_epochs: int = 15,
    classifier_lr: float = 1e-3,
    bias: float = 0.0,
    batchformer: Mode = "off",
    plain_weight: float = 0.5,
    batchformer_weight: float = 0.5,
    batchformer_layers: int = 1,
    batchformer_lr_scale: float = 1.0,
) -> Method[Labelled]:
    """Generate features of unseen classes from their descriptions, then train a softmax over all.

        longtail train ce_gzsl --data CUB --protocol paper --out runs/zero-shot

    For feature vectors with a vector that describes each class. A generator and a critic
    (WGAN-GP) alternate, `critic_steps` to one; an embedding of the features is trained with a
    supervised contrastive loss and with a comparison of each row with all seen classes. Then
    `synthetic` features of each unseen class are generated, and a softmax over all classes is
    trained on the embedding. Features are scaled to [0, 1] by the training rows; class vectors have
    norm `vector_norm`. The last epoch is kept. An epoch has as many generator steps as the data has
    batches. `bias` is added to the logits of unseen classes: choose it with `--protocol holdout`,
    whose row has the best one on validation classes.

    Sizes and weights are for a CPU, chosen on validation classes of CUB. Published: `--hidden 2048
    --embedding 512 --generator 4096 --noise none --critic 4096 --comparator 2048 --vector-norm 1
    --critic-steps 5 --share 0.001 --batch 2048 --lr 1e-4 --epochs 2000 --classifier-epochs 25`.

    `--batchformer on` puts BatchFormer on the hidden layer of the embedding: both streams enter the
    contrastive loss, the comparison and the final softmax, and it is removed at test. Its code is
    not released; this is our reading of the paper. "frozen" and "self" are controls. A scaled loss
    is not one here: Adam ignores the scale.

    Published: H 66.3 with ResNet-101 features of CUB, and 67.0 with BatchFormer (Hou et al. 2022).
    """
    vectors, seen = class_vectors(data, "ce_gzsl"), data.counts > 0
    rows = data.train.inputs.vectors()
    assert rows is not None
    low, span = _range(rows)
    neck = batchformer_neck(
        hidden,
        batchformer,
        plain_weight=plain_weight,
        batchformer_weight=batchformer_weight,
        layers=batchformer_layers,
    )
    method = CeGzsl(
        build({"name": network, "size": data.size}),
        vector_norm * F.normalize(vectors, dim=1),
        seen,
        hidden=hidden,
        embedding=embedding,
        generator=generator,
        noise=noise,
        critic=critic,
        comparator=comparator,
        critic_steps=critic_steps,
        temperature=temperature,
        share=share,
        penalty=penalty,
        init_std=init_std,
        neck=neck,
    )
    # Views do not apply to vectors, but a loader has one.
    view = CropFlip(data.size, pad=0, flip=False)
    scaled = replace(data.train, inputs=VectorRows((rows - low) / span))
    loader = TrainLoader(scaled, view=view, batch=batch, seed=run.view_seed)
    run.fit(
        Stage(
            name="generate",
            method=method,
            data=StepsPerEpoch(loader, steps=len(loader) * method.steps_per_round),
            epochs=epochs,
            optimizer=adamw(
                lr=lr,
                weight_decay=0.0,
                betas=(0.5, 0.999),
                scales=lr_scales(neck, batchformer_lr_scale, default=1.0),
            ),
            schedule=Steps(
                [number / DROPS for number in range(1, DROPS)],
                [lr_drop**number for number in range(1, DROPS)],
            ),
        )
    )
    unseen = (~seen).nonzero().flatten()
    with torch.no_grad():
        wanted = unseen.repeat_interleave(synthetic)
        device = method.head.vectors.device
        made = method.generate(wanted.to(device)).cpu() * span + low
    if isinstance(neck, Streams):
        neck.batchformer.requires_grad_(False)  # a part of the embedding, which is frozen now
    embed, head = _unscaled(method.embed, low, span), Linear(hidden, len(data.classes))
    classifier = run.fit(
        Stage(
            name="classify",
            method=Classify(Frozen(embed), head, CrossEntropy(), neck=neck),
            data=TrainLoader(
                _joined(data.train, made, wanted), view=view, batch=batch, seed=run.view_seed
            ),
            epochs=classifier_epochs,
            optimizer=adamw(lr=classifier_lr, weight_decay=0.0, betas=(0.5, 0.999)),
            evals=validation(data, data.size),
        )
    )
    if not bias:
        return classifier
    stacking = CalibratedStacking(embed, head, seen, bias=bias)
    run.machine.place_module(stacking)
    return stacking.eval()


def class_vectors(data: Dataset, recipe: str) -> Tensor:
    """The vectors (C, A) that describe the classes; refused where the data has none, or images."""
    if not data.has_vectors:
        raise LongtailError(
            f"{recipe} trains on feature vectors, and {data.name} has images: extract features"
            " with `longtail embed` first"
        )
    vectors = data.class_attributes.get("vector")
    if vectors is None or vectors.ndim != 2 or "vector" in data.categories:
        raise LongtailError(
            f"{recipe} needs a vector that describes each class, and {data.name} has none: add the"
            " array attribute.vector of numbers (classes, width) to the .npz"
        )
    if without := [data.classes[row] for row in (vectors == 0).all(1).nonzero().ravel().tolist()]:
        raise LongtailError(
            f"{data.name}: every number of the class vector is 0 for {listing(without)}: describe"
            " these classes, or remove them"
        )
    if not bool((data.counts == 0).any()):
        raise LongtailError(
            f"{recipe} is for data with unseen classes, and every class of {data.name} has"
            " training rows: use balanced_softmax, for instance"
        )
    return vectors.float()


def _range(rows: Tensor) -> tuple[Tensor, Tensor]:
    """The least value of each feature, and its range, or 1 where a feature is constant."""
    low, high = rows.amin(0), rows.amax(0)
    return low, torch.where(high > low, high - low, 1.0)


def _unscaled(embed: Embedded, low: Tensor, span: Tensor) -> Embedded:
    """An embedding of scaled features as one of the features themselves."""
    network = Embedded(embed.network, embed.spec["dims"])
    linear: Any = network.layers[0]
    linear.load_state_dict(embed.layers[0].state_dict())
    weight = linear.weight.detach()
    with torch.no_grad():
        linear.bias -= weight @ (low / span).to(weight)
        linear.weight /= span.to(weight)
    return network


def _joined(split: Split, made: Tensor, target: Tensor) -> Split:
    """Training rows and generated rows."""
    rows = split.inputs.vectors()
    assert rows is not None
    ids = tuple(f"generated {number}" for number in range(len(target)))
    return Split(
        VectorRows(torch.cat([rows, made])), torch.cat([split.target, target]), (*split.ids, *ids)
    )
