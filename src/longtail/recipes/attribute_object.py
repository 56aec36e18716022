"""Two classifiers, for attributes and for objects: the baseline of compositional zero-shot."""

from __future__ import annotations

from typing import Any

from longtail.core import Labelled, Method
from longtail.data.dataset import Dataset
from longtail.engine.run import Run
from longtail.methods.pairs import ClassifyParts, NeckAt, PairMethod
from longtail.nn import Neck, Network
from longtail.recipes.pairs import pairs_of, train_pairs, write_parts


def attribute_object(run: Run, data: Dataset, **keywords: Any) -> Method[Labelled]:
    """Train a classifier of attributes and one of objects; a pair has the product of both.

        longtail train attribute_object --data shapes-pairs --out runs/product

    For data whose classes are pairs of an attribute and an object, of which some are never seen in
    training: the baseline that any model of pairs should exceed. Both classifiers are linear, on
    the same features. It needs no word vectors. Other keywords are those of `cge`.

    Cost: that of the network.
    """
    pairs = pairs_of(data)

    def method(network: Network, neck: Neck, neck_at: NeckAt) -> PairMethod:
        assert neck_at == "network"
        return ClassifyParts(
            network,
            pairs,
            attributes=len(data.categories["attribute"]),
            objects=len(data.categories["object"]),
            neck=neck,
        )

    def layers(network: Network) -> Network:
        return network

    fitted = train_pairs(run, data, method=method, layers=layers, **keywords)
    assert isinstance(fitted, ClassifyParts)
    write_parts(run, data, fitted)
    return fitted
