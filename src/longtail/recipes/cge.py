"""Learn graph embeddings of pairs (CGE, Naeem et al., CVPR 2021), with and without BatchFormer."""

from __future__ import annotations

from typing import Any

from longtail.core import Labelled, Method
from longtail.data.dataset import Dataset
from longtail.engine.run import Run
from longtail.methods.pairs import MatchPairs, NeckAt, PairMethod
from longtail.nn import Embedded, Neck, Network
from longtail.nn.pairs import GraphPairs
from longtail.recipes.pairs import pairs_of, train_pairs, words_of, write_parts


def cge(
    run: Run,
    data: Dataset,
    *,
    graph_width: int = 4096,
    graph_dropout: float = 0.5,
    dim: int | None = None,
    word_dim: int = 300,
    **keywords: Any,
) -> Method[Labelled]:
    """Match images with embeddings of pairs, computed on a graph of attributes, objects and pairs.

        longtail train cge --data shapes-pairs --out runs/cge

    For data whose classes are pairs of an attribute and an object, of which some are never seen in
    training. Each pair is a node beside those of its attribute and its object; two graph
    convolutions turn their word vectors (`--word-vectors FILE`) into a row for each pair. The
    score of a pair is the product of its row with the features of the image, or with `dim` of them
    after one more layer. Only seen pairs compete in the loss. Without word vectors the nodes start
    from random vectors of width `word_dim`, which are learned. `--features frozen` keeps a
    pretrained backbone as it is, below a hidden layer of width `hidden`; feature vectors get that
    layer as well. The weights kept are those of the epoch with the best AUC on validation.

    `--batchformer on` stands on the pooled features, or on that hidden layer, before `dim`.
    Controls: "frozen" keeps BatchFormer's random initial weights, "self" lets each image attend to
    itself alone. With Adam, a scale of the loss changes next to nothing.

    Cost: with images, that of the network; the graph adds little for hundreds of pairs.
    Published: AUC 6.3 on MIT-States, 31.5 on UT-Zappos and 3.7 on C-GQA with ResNet-18; with
    BatchFormer 6.7, 34.6 and 3.8 (Hou et al. 2022).
    """
    pairs = pairs_of(data)
    attribute, obj, given = words_of(data, dim=word_dim)
    if given:
        run.ignore({"word_dim"}, given="--word-vectors")

    def layers(network: Network) -> Network:
        return network if dim is None else Embedded(network, [dim])

    def method(network: Network, neck: Neck, neck_at: NeckAt) -> PairMethod:
        graph = GraphPairs(
            pairs,
            attribute,
            obj,
            dim=network.dim,
            hidden=graph_width,
            dropout=graph_dropout,
            learned=not given,
        )
        return MatchPairs(network, graph, data.counts > 0, neck=neck, neck_at=neck_at)

    fitted = train_pairs(run, data, method=method, layers=layers, **keywords)
    assert isinstance(fitted, MatchPairs)
    write_parts(run, data, fitted)
    return fitted
