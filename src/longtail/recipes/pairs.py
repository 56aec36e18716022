"""What recipes for pairs of an attribute and an object share: network, words, stage, new pairs."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Literal

import numpy as np
import torch
from torch import Tensor

from longtail.core import Labelled, Method, constant
from longtail.data.augmentations import ResizedCrop
from longtail.data.dataset import Dataset
from longtail.data.views import View
from longtail.engine.optim import adamw
from longtail.engine.run import Run
from longtail.errors import LongtailError
from longtail.methods.pairs import NeckAt, PairMethod
from longtail.nn import Embedded, Neck, Network
from longtail.nn.networks import Vectors
from longtail.recipes.batchformer import Mode, Scope, batchformer_neck, lr_scales
from longtail.recipes.builders import (
    Augment,
    KeepRule,
    Weights,
    build_backbone,
    fit_stage,
    training_view,
)
from longtail.records.files import atomic_write
from longtail.schedules import Cosine

PARTS = ("attribute", "object")
Features = Literal["learned", "frozen"]
PairAugment = Literal["crop", "weak", "cutout", "autoaugment", "randaugment", "threeaugment"]


def pairs_of(data: Dataset) -> Tensor:
    """The numbers of attribute and object of each class (C, 2)."""
    if not {*PARTS} <= {*data.class_attributes}:
        raise LongtailError(
            f"the classes of {data.name} are no pairs of an attribute and an object: pass a .csv"
            " with path,attribute,object, or choose another recipe"
        )
    return torch.stack([data.class_attributes[part].long() for part in PARTS], dim=1)


def words_of(data: Dataset, *, dim: int) -> tuple[Tensor, Tensor, bool]:
    """Vectors of the attributes and of the objects, and whether they are word vectors.

    Data without word vectors has random ones of width `dim`, which must be learned.
    """
    if data.word_vectors:
        return data.word_vectors["attribute"], data.word_vectors["object"], True
    attribute, obj = (torch.randn(len(data.categories[part]), dim) for part in PARTS)
    return attribute, obj, False


def train_pairs(
    run: Run,
    data: Dataset,
    *,
    method: Callable[[Network, Neck, NeckAt], PairMethod],
    layers: Callable[[Network], Network],
    network: str = "fast_cnn",
    weights: Weights = "random",
    features: Features = "learned",
    hidden: int = 512,
    epochs: int = 40,
    batch: int = 128,
    accumulate: int = 1,
    lr: float = 1e-3,
    backbone_lr_scale: float = 1.0,
    weight_decay: float = 5e-5,
    schedule: Literal["constant", "cosine"] = "cosine",
    augment: PairAugment = "weak",
    batchformer: Mode = "off",
    plain_weight: float = 0.5,
    batchformer_weight: float = 0.5,
    loss_scale: float = 1.0,
    batchformer_layers: int = 1,
    batchformer_lr_scale: float = 1.0,
    batchformer_scope: Scope = "local",
    ema: float = 0.0,
    keep: KeepRule = "best",
    size: int | None = None,
) -> Method[Labelled]:
    """Train a method for pairs, and write what new pairs are made from.

    Args:
        method: builds the method from a network, a neck and where that stands.
        layers: adds the image embedder to a network; the neck stands before it.
    """
    size = size or data.size
    if keep == "best" and len(data.val) and bool((data.counts[data.val.target] > 0).all()):
        raise LongtailError(
            f"the validation images of {data.name} have no unseen pair, so that AUC cannot choose"
            " the best epoch: pass --keep last, or put unseen pairs into the split val"
        )
    body, trained = trained_body(
        run, data, network, weights, features=features, hidden=hidden, size=size
    )
    if data.has_vectors:
        run.ignore({"augment"}, given="feature vectors")
    neck = batchformer_neck(
        body.dim,
        batchformer,
        plain_weight=plain_weight,
        batchformer_weight=batchformer_weight,
        loss_scale=loss_scale,
        layers=batchformer_layers,
        scope=batchformer_scope,
    )
    embedded = layers(body)
    made = method(embedded, neck, "network" if embedded is body else "layers")
    scales = lr_scales(neck, batchformer_lr_scale, default=1.0)
    if backbone_lr_scale != 1.0:
        if not trained:
            raise LongtailError("--backbone-lr-scale has no effect on frozen features: remove it")
        scales["network.network" if embedded is not body else "network"] = backbone_lr_scale
    fitted = fit_stage(
        run,
        data,
        made,
        name="train",
        view=_view(augment, size, flip=data.mirror),
        epochs=epochs,
        batch=batch,
        accumulate=accumulate,
        optimizer=adamw(lr=lr, weight_decay=weight_decay, scales=scales),
        schedule=constant if schedule == "constant" else Cosine(0.0),
        ema=ema,
        keep=keep,
    )
    return fitted


def trained_body(
    run: Run,
    data: Dataset,
    network: str,
    weights: Weights,
    *,
    features: Features,
    hidden: int,
    size: int,
) -> tuple[Network, bool]:
    """The network before the neck, and whether its backbone is trained.

    It ends with a trained layer. Frozen features and feature vectors get a hidden layer.

    Args:
        run: Where it is trained.
        data: The dataset.
        network: A name of `longtail.nn.build`.
        weights: What it starts from.
        features: Whether the network is trained or frozen.
        hidden: Width of the hidden layer.
        size: Side of the images in pixels.
    """
    backbone = build_backbone(run, network, weights, data=data, size=size)
    if isinstance(backbone, Vectors):
        run.ignore({"features"}, given="feature vectors")
        return Embedded(backbone, [hidden]), False
    if features == "learned":
        run.ignore({"hidden"}, given="--features learned")
        return backbone, True
    if weights == "random":
        raise LongtailError(
            "--features frozen needs a network that was trained: pass --weights timm, or train the"
            " features with --features learned"
        )
    return Embedded(Vectors(backbone.dim, backbone=backbone), [hidden]), False


def write_parts(run: Run, data: Dataset, method: PairMethod) -> None:
    """Write what the embedding of any pair of known parts is computed from into the run folder."""

    def write(path: Path) -> None:
        with torch.no_grad():
            parts = method.parts()
        arrays = {
            name: tensor.detach().float().cpu().numpy()
            for name, tensor in (
                ("attribute", parts.attribute),
                ("object", parts.object),
                ("attribute_bias", parts.attribute_bias),
                ("object_bias", parts.object_bias),
                *(
                    zip(
                        ("attribute_hidden", "object_hidden", "hidden_weight"),
                        parts.hidden,
                        strict=True,
                    )
                    if parts.hidden
                    else ()
                ),
            )
        }
        names = {f"{part}_names": np.array(data.categories[part], dtype=np.str_) for part in PARTS}
        path.parent.mkdir(parents=True, exist_ok=True)
        with atomic_write(path) as place, place.open("wb") as file:
            np.savez(file, allow_pickle=False, unit=np.array(parts.unit), **names, **arrays)

    run.write(run.files.model.pairs, write, replace=True)


def _view(augment: PairAugment, size: int, *, flip: bool) -> View:
    if augment == "crop":
        return ResizedCrop(size, scale=(0.08, 1.0), flip=flip)
    known: Augment = augment
    return training_view(known, size, flip=flip)
