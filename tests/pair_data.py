"""Features of pairs in memory, for tests of recipes."""

import numpy as np
import torch

from longtail.data.assembly import assemble
from longtail.data.dataset import Dataset
from longtail.data.images.stores import VectorRows
from longtail.data.pairs import all_pairs
from longtail.data.source import Rows, Source
from longtail.data.splits import seen_groups

ATTRIBUTES, OBJECTS = ("dotted", "plain", "striped"), ("disc", "ring", "square")
WIDTH = 8


def pair_features(*, words: bool = True, open_world: bool = False, each: int = 8) -> Dataset:
    """Nine pairs of which five are seen, two unseen in validation and two in test."""
    pairs = np.array([(a, o) for a in range(3) for o in range(3)])
    kind = np.array(["train", "val", "train", "train", "train", "test", "val", "test", "train"])
    generator = np.random.default_rng(0)
    parts = generator.normal(size=(2, 3, WIDTH))
    splits = {}
    for split in ("train", "val", "test"):
        target = np.flatnonzero((kind == "train") | (kind == split)).repeat(each)
        means = parts[0][pairs[target, 0]] + parts[1][pairs[target, 1]]
        features = (means + 0.3 * generator.normal(size=means.shape)).astype(np.float32)
        splits[split] = Rows(
            VectorRows(torch.from_numpy(features)),
            target,
            tuple(f"{split}/{row}" for row in range(len(target))),
            tuple(row.tobytes()[:32] for row in features),
        )
    known = np.flatnonzero(np.arange(9) != 6) if open_world else np.arange(9)
    if open_world:  # pair 6 is nowhere, until all pairs are candidates
        number = np.cumsum(np.arange(9) != 6) - 1
        for split, rows in splits.items():
            kept = rows.take(np.flatnonzero(rows.target != 6))
            splits[split] = Rows(kept.inputs, number[kept.target], kept.ids, kept.digests)
    vectors = {
        part: generator.normal(size=(3, 6)).astype(np.float32) for part in ("attribute", "object")
    }
    source = Source(
        "pairs",
        tuple(f"{ATTRIBUTES[a]} {OBJECTS[o]}" for a, o in pairs[known].tolist()),
        splits,
        seen_groups,
        size=WIDTH,
        categories={"attribute": ATTRIBUTES, "object": OBJECTS},
        class_attributes={"attribute": pairs[known, 0], "object": pairs[known, 1]},
        word_vectors=vectors if words else {},
    )
    return assemble(all_pairs(source) if open_world else source)
