"""Match images and pairs by cosines (CompCos, Mancini et al., CVPR 2021), closed or open world."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any, Literal

import numpy as np
import torch

from longtail.core import Labelled, Method
from longtail.data.dataset import Dataset
from longtail.data.loader import EvalLoader
from longtail.engine.predicting import predictor
from longtail.engine.run import Run
from longtail.methods.pairs import EXCLUDED, MatchOpenPairs, MatchPairs, NeckAt, PairMethod
from longtail.metrics.bias_sweep import bias_sweep
from longtail.nn import Embedded, Neck, Network
from longtail.nn.pairs import ComposedPairs
from longtail.recipes.pairs import pairs_of, train_pairs, words_of, write_parts
from longtail.scoring.evaluators import collect

THRESHOLDS = 20  # quantiles of the feasibility that are tried


def compcos(
    run: Run,
    data: Dataset,
    *,
    dim: int = 300,
    embedder: Sequence[int] = (768, 1024),
    embedder_dropout: float = 0.5,
    cosine_scale: float = 20.0,
    words: Literal["learned", "fixed"] = "learned",
    word_dim: int = 300,
    feasibility_margin: float = 0.4,
    feasibility_ramp: float = 0.3,
    **keywords: Any,
) -> Method[Labelled]:
    """Match images with pairs by the cosine of two embeddings, in the closed or the open world.

        longtail train compcos --data shapes-pairs --out runs/compcos

    For data whose classes are pairs of an attribute and an object, of which some are never seen in
    training. The pair's embedding is one linear layer on the word vectors of attribute and object
    (`--word-vectors FILE`), which are trained further unless `--words fixed`; without a file they
    are random ones of width `word_dim`. The image's embedding are layers of the widths `embedder`
    with layer norm and dropout, then one to `dim`. The loss is cross entropy of `cosine_scale` *
    cosine over the seen pairs.

    With `--pairs open` all pairs of an attribute and an object are candidates. Then unseen pairs
    compete in the loss, with a margin of `feasibility_margin` times their feasibility, which grows
    in the first `feasibility_ramp` of training; and pairs with a feasibility below a threshold,
    chosen by AUC on validation, are not predicted.

    `--batchformer on` stands on the pooled features, or on the hidden layer of feature vectors,
    before the embedder. Its controls are those of `cge`.

    Cost: that of the network.
    Published: AUC 4.5 on MIT-States and 28.7 on UT-Zappos with ResNet-18 (Mancini et al.
    2021).
    """
    pairs, seen = pairs_of(data), data.counts > 0
    attribute, obj, given = words_of(data, dim=word_dim)
    if given:
        run.ignore({"word_dim"}, given="--word-vectors")
    else:
        run.ignore({"words"}, given="random vectors: pass --word-vectors FILE")
    if data.pairs == "closed":
        run.ignore({"feasibility_margin", "feasibility_ramp"}, given="--pairs closed")

    def layers(network: Network) -> Network:
        widths = [*embedder, dim]
        return Embedded(network, widths, norm="layer", dropout=embedder_dropout, last="unit")

    def method(network: Network, neck: Neck, neck_at: NeckAt) -> PairMethod:
        learned = not given or words == "learned"
        composed = ComposedPairs(pairs, attribute, obj, dim=dim, learned=learned)
        if data.pairs == "closed":
            return MatchPairs(
                network, composed, seen, scale=cosine_scale, neck=neck, neck_at=neck_at
            )
        return MatchOpenPairs(
            network,
            composed,
            seen,
            scale=cosine_scale,
            margin=feasibility_margin,
            ramp=feasibility_ramp,
            neck=neck,
            neck_at=neck_at,
        )

    fitted = train_pairs(run, data, method=method, layers=layers, **keywords)
    assert isinstance(fitted, PairMethod)
    if isinstance(fitted, MatchOpenPairs):
        fitted.update_feasibility()  # of the weights that were kept
        if len(data.val):
            size = keywords.get("size") or data.size
            choose = partial(choose_threshold, fitted, run, data, size=size)
            run.compute(choose, dry=lambda: None)
    write_parts(run, data, fitted)
    return fitted


def choose_threshold(method: MatchOpenPairs, run: Run, data: Dataset, *, size: int) -> None:
    """Set the threshold of the feasibility that has the best AUC on the validation images."""
    method.threshold.fill_(-torch.inf)
    loader = EvalLoader(data.val, size=size, batch=256, workers=run.machine.workers)
    predictions = collect(loader, predictor(method, run.machine))
    logits, seen = predictions.logits["logits"], (data.counts > 0).numpy()
    scores = method.feasibility.cpu().numpy()
    quantiles = np.quantile(scores[~seen], np.arange(THRESHOLDS) / THRESHOLDS)
    best = -1.0
    for threshold in [-np.inf, *quantiles.tolist()]:
        allowed = np.where(scores < threshold, np.float32(method.scale * EXCLUDED), np.float32(0))
        sweep = bias_sweep(logits + allowed, predictions.target, seen)
        if sweep is not None and sweep.auc > best:
            best = sweep.auc
            method.threshold.fill_(threshold)
