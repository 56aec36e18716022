"""What there is to know about a dataset before training on it."""

from __future__ import annotations

from typing import Any

from torch import Tensor

from longtail.data.dataset import Dataset, Split


def facts(data: Dataset) -> dict[str, Any]:
    """The class histogram, imbalance factor, Gini coefficient, groups, and classes too small to evaluate; ready for JSON.

    Imbalance and Gini are of the training images before holdout; `classes` are in the dataset's class order.
    """
    per_split = {name: _counts(data, part) for name, part in (("train", data.train), ("val", data.val), ("test", data.test))}
    source = data.source_counts.tolist()
    group_of = {label: group for group, members in data.groups.members.items() for label in members}
    classes = [
        {"name": name, "source": source[i], **{split: counts[i] for split, counts in per_split.items()}, "group": group_of[i]}
        for i, name in enumerate(data.classes)
    ]
    return {
        "name": data.name,
        "hash": data.hash,
        "protocol": data.protocol,
        "size": data.size,
        "images": {split: sum(counts) for split, counts in per_split.items()},
        "largest": max(source),
        "smallest": min(source),
        "imbalance": max(source) / min(source),
        "gini": gini(data.source_counts),
        "groups": {
            "rule": data.groups.rule,
            "members": {
                group: {"classes": len(members), "images": sum(source[i] for i in members)}
                for group, members in data.groups.members.items()
            },
        },
        "classes": classes,
        "not_validated": [entry["name"] for entry in classes if entry["val"] == 0],
        "not_tested": [entry["name"] for entry in classes if entry["test"] == 0],
        "marks": list(data.marks),
        "warnings": list(data.warnings),
    }


def gini(counts: Tensor) -> float:
    """How unequal class counts are: 0 when all are equal, near 1 when one class has everything.

    >>> import torch
    >>> gini(torch.tensor([5, 5, 5])), gini(torch.tensor([0, 0, 0, 8]))
    (0.0, 0.75)
    """
    ordered = sorted(counts.tolist())
    n = len(ordered)
    return float(sum((2 * i - n - 1) * x for i, x in enumerate(ordered, start=1)) / (n * sum(ordered)))


def _counts(data: Dataset, split: Split) -> list[int]:
    return [int(n) for n in split.target.bincount(minlength=len(data.classes))]
