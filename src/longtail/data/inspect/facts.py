"""Statistics of a dataset before training: class counts, imbalance, precision of evaluation."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from torch import Tensor

from longtail.data.dataset import Dataset, Split
from longtail.data.pairs import PARTS

BETA = 0.9999  # of the effective numbers, as in the class-balanced losses
Z = 1.959963984540054  # a 95% interval of a normal distribution is +- Z standard deviations


def facts(data: Dataset) -> dict[str, Any]:
    """Class histogram, imbalance, groups, and how precisely each class can be evaluated, for JSON.

    Imbalance, Gini and effective numbers are of the training images before holdout, of the classes
    that have some; `classes` are in the dataset's class order. `known_to` is the largest half-width
    of a 95% interval, for a recall (Wilson's) or for a mean of recalls.
    """
    per_split = {
        name: _counts(data, part)
        for name, part in (("train", data.train), ("val", data.val), ("test", data.test))
    }
    source = [int(n) for n in data.source_counts]
    trained = [n for n in source if n]  # unseen classes have no training image
    group_of = {label: group for group, members in data.groups.members.items() for label in members}
    tested = per_split["test"]
    classes = [
        {
            "name": name,
            "source": source[i],
            **{split: counts[i] for split, counts in per_split.items()},
            "group": group_of[i],
            "effective": effective_number(source[i]),
            "known_to": recall_known_to(tested[i]),
        }
        for i, name in enumerate(data.classes)
    ]
    return {
        "name": data.name,
        "hash": data.hash,
        "protocol": data.protocol,
        "size": data.size,
        "images": {split: sum(counts) for split, counts in per_split.items()},
        "largest": max(trained),
        "smallest": min(trained),
        "imbalance": max(trained) / min(trained),
        "gini": gini(data.source_counts[data.source_counts > 0]),
        "equal_classes": equal_classes(source),
        "effective": {
            "beta": BETA,
            "largest": effective_number(max(trained)),
            "smallest": effective_number(min(trained)),
            "imbalance": effective_number(max(trained)) / effective_number(min(trained)),
        },
        "groups": {
            "rule": data.groups.rule,
            "members": {
                group: {
                    "classes": len(members),
                    "images": sum(source[i] for i in members),
                    "known_to": mean_known_to([tested[i] for i in members]),
                }
                for group, members in data.groups.members.items()
            },
        },
        "unseen": unseen_classes(data, per_split),
        "known_to": mean_known_to(tested),
        "classes": classes,
        "domains": _domains(data),
        "not_validated": _without(data.classes, source, per_split["val"]),
        "not_tested": _without(data.classes, source, tested),
        **({"pairs": pair_facts(data)} if {*PARTS} <= {*data.class_attributes} else {}),
        "caveats": list(data.caveats),
        "warnings": list(data.warnings),
    }


def pair_facts(data: Dataset) -> dict[str, Any]:
    """Seen and unseen pairs, and how often each attribute and object is seen, fewest pairs first.

    `share` is the number of pairs over that of all combinations.
    """
    seen, classes = data.counts > 0, len(data.classes)
    names = {part: data.categories[part] for part in PARTS}
    parts = {}
    for part in PARTS:
        of_class = data.class_attributes[part]
        rows = [
            {
                "name": name,
                "pairs": int((seen & (of_class == number)).sum()),
                "images": int(data.counts[of_class == number].sum()),
            }
            for number, name in enumerate(names[part])
        ]
        parts[part] = sorted(rows, key=lambda row: (row["pairs"], row["images"], row["name"]))
    unseen = {
        split: len(set(rows.target[~seen[rows.target]].tolist()))
        for split, rows in (("val", data.val), ("test", data.test))
    }
    return {
        "seen": int(seen.sum()),
        "unseen": unseen,
        "candidates": classes,
        "share": classes / (len(names["attribute"]) * len(names["object"])),
        **parts,
    }


def unseen_classes(data: Dataset, per_split: Mapping[str, Sequence[int]]) -> dict[str, Any] | None:
    """How many classes have no training images, where they are evaluated, and what describes them.

    `vector` has the width of the class vectors, and how many of their numbers differ from 0 for
    some unseen class, but for no seen one: nothing can be learnt about these. None if all classes
    have training images.
    """
    unseen = [i for i, count in enumerate(data.counts.tolist()) if count == 0]
    if not unseen:
        return None
    result: dict[str, Any] = {
        "classes": len(unseen),
        "seen": len(data.classes) - len(unseen),
        "val": sum(per_split["val"][i] > 0 for i in unseen),
        "test": sum(per_split["test"][i] > 0 for i in unseen),
        "vector": None,
    }
    vectors = data.class_attributes.get("vector")
    if vectors is not None and vectors.ndim == 2:
        used = vectors != 0
        only_unseen = used[unseen].any(0) & ~used[data.counts > 0].any(0)
        result["vector"] = {"width": vectors.shape[1], "only_unseen": int(only_unseen.sum())}
    return result


def gini(counts: Tensor) -> float:
    """Gini coefficient of class counts: 0 if all are equal, near 1 if one class has everything.

    >>> import torch
    >>> gini(torch.tensor([5, 5, 5])), gini(torch.tensor([0, 0, 0, 8]))
    (0.0, 0.75)
    """
    ordered = sorted(counts.tolist())
    n = len(ordered)
    return float(
        sum((2 * i - n - 1) * x for i, x in enumerate(ordered, start=1)) / (n * sum(ordered))
    )


def equal_classes(counts: Sequence[int]) -> float:
    """The perplexity of the class prior: the number of equal classes with the same entropy.

    >>> equal_classes([5, 5, 5]), round(equal_classes([98, 1, 1]), 2)
    (3.0, 1.12)
    """
    total = sum(counts)
    return round(math.exp(-sum(n / total * math.log(n / total) for n in counts if n)), 10)


def effective_number(count: int, *, beta: float = BETA) -> float:
    """Effective number of images of a class, (1 - beta^n) / (1 - beta) (Cui et al. 2019, eq. 2).

    >>> round(effective_number(2, beta=0.5), 10), round(effective_number(10_000), 1)
    (1.5, 6321.4)
    """
    return -math.expm1(count * math.log(beta)) / (1 - beta)


def recall_known_to(images: int) -> float | None:
    """Half-width of Wilson's 95% interval of a recall on `images` test images, at its widest.

    The interval is widest at a recall of one half. None without test images.

    >>> [round(recall_known_to(n), 2) for n in (1, 3, 20, 100)]
    [0.45, 0.37, 0.2, 0.1]
    """
    return Z / (2 * math.sqrt(images + Z * Z)) if images else None


def mean_known_to(images: Sequence[int]) -> float | None:
    """Largest half-width of the 95% interval of a mean recall, given test images per class.

    Classes without test images are ignored. For a single class it is `recall_known_to`.

    >>> round(mean_known_to([3]), 2), round(mean_known_to([3, 3, 0]), 2)
    (0.37, 0.26)
    """
    tested = [n for n in images if n]
    return (
        Z * math.sqrt(sum(1 / (4 * (n + Z * Z)) for n in tested)) / len(tested) if tested else None
    )


def _without(classes: Sequence[str], source: Sequence[int], images: Sequence[int]) -> list[str]:
    """The classes that have training images, and none of these."""
    rows = zip(classes, source, images, strict=True)
    return [name for name, trained, count in rows if trained and not count]


def _domains(data: Dataset) -> dict[str, Any] | None:
    """Images of all splits by domain and class; None where the data has no named domains."""
    if "domain" not in data.categories:
        return None
    names, classes = data.categories["domain"], len(data.classes)
    cells = sum(
        (split.columns["domain"] * classes + split.target).bincount(minlength=len(names) * classes)
        for split in (data.train, data.val, data.test)
    )
    assert isinstance(cells, Tensor)
    counts = cells.reshape(len(names), classes).tolist()
    return {"names": list(names), "test": data.test_domain, "counts": counts}


def _counts(data: Dataset, split: Split) -> list[int]:
    return [int(n) for n in split.target.bincount(minlength=len(data.classes))]
