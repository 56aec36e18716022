"""Long-tailed cuts, held-out splits, groups of classes, and the hash of a split."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from hashlib import sha256
from typing import Any

import numpy as np
from numpy.typing import NDArray

from longtail.data.columns import Columns
from longtail.data.request import Profile
from longtail.data.source import Rows, several
from longtail.errors import LongtailError
from longtail.records.groups import Groups


def tail_counts(
    largest: float, classes: int, *, imbalance: float, profile: Profile = "exp"
) -> list[int]:
    """How many images each class keeps, from `largest` in class 0 down to `largest / imbalance` in
    the
    last.

    `exp` and `step` are those of Cao et al. 2019 (LDAM): `int(largest * f ** (i / (C - 1)))` with f
    = 1 / imbalance, in this power form because it decides the rounding; `step` keeps all of the
    first half and the share f of the second. `pareto` follows the quantiles of the Pareto
    distribution with power 6 from which Liu et al. 2019 drew ImageNet-LT, `q_i = ((i + 1/2) / C) **
    (-1/6)`, scaled to the same ends: steeper than `exp` at the head, flatter in the tail.

    >>> tail_counts(5000, 10, imbalance=100)
    [5000, 2997, 1796, 1077, 645, 387, 232, 139, 83, 50]
    >>> tail_counts(5000, 10, imbalance=100, profile="step")
    [5000, 5000, 5000, 5000, 5000, 50, 50, 50, 50, 50]
    >>> tail_counts(5000, 10, imbalance=100, profile="pareto")
    [5000, 2864, 1997, 1464, 1086, 795, 560, 363, 196, 50]
    """
    if not 1 <= imbalance < float("inf"):
        raise LongtailError(
            "expected an imbalance of at least 1 (largest class / smallest class), got"
            f" {imbalance}. The field uses 10 to 200."
        )
    share = 1 / imbalance
    if profile == "exp":
        counts = [int(largest * share ** (i / (classes - 1.0))) for i in range(classes)]
    elif profile == "step":
        counts = [
            int(largest) if i < classes // 2 else int(largest * share) for i in range(classes)
        ]
    elif profile == "pareto":
        quantiles = [((i + 0.5) / classes) ** (-1 / 6) for i in range(classes)]
        spread = quantiles[0] - quantiles[-1]
        counts = [
            int(largest * (share + (1 - share) * (q - quantiles[-1]) / spread)) for q in quantiles
        ]
    else:
        raise LongtailError(f"expected the profile exp, step or pareto, got {profile!r}.")
    if counts[-1] < 1:
        raise LongtailError(
            "expected at least one training image in every class, got none at imbalance"
            f" {imbalance:g}. Use at most {largest:g}."
        )
    return counts


def tail_rows(target: NDArray[np.int64], counts: Sequence[int]) -> NDArray[np.int64]:
    """Which rows a long-tailed cut keeps, by the field's convention: class by class, the first of a
    shuffle of its rows.

    Cao et al. 2019: numpy's legacy generator with seed 0, one stream over the classes in ascending
    order. The counts do not move the stream, so a cut with higher imbalance is contained in one
    with lower."""
    stream = np.random.RandomState(0)  # another generator gives other images than everybody's
    kept = []
    for label, count in enumerate(counts):
        rows = np.flatnonzero(target == label)
        stream.shuffle(rows)
        kept.append(rows[:count])
    return np.concatenate(kept).astype(np.int64)


def held_out(n: int, *, share: int) -> int:
    """How many of a class's n images are held out: one in `share`, rounded; at least 1 from 5
    images
    on, none below.

    >>> [held_out(n, share=10) for n in (1, 4, 5, 14, 16, 500)]
    [0, 0, 1, 1, 2, 50]
    """
    return max(1, round(n / share)) if n >= 5 else 0


def hold_out(
    rows: Rows,
    classes: Sequence[str],
    *,
    share: int,
    seed: int,
    purpose: str,
    domains: Sequence[str] = (),
) -> tuple[Rows, Rows]:
    """Split rows in two, class by class: those that stay, and those held out. Classes are split
    domain
    by domain where rows have one.

    Which rows depends on the seed, the purpose, the names of class and domain and the images in
    them, but not on any order.

    Args:
        rows: With digests.
        classes: The name of each class.
        share: One row in so many is held out.
        seed: Another seed holds out other rows.
        purpose: "val" or "test": two draws from the same rows are independent.
        domains: The name of each domain, where the column "domain" has names.
    """
    chosen = np.zeros(len(rows), dtype=bool)
    strata: dict[tuple[int, int | None], list[int]] = {}
    domain = rows.columns.get("domain")
    for row, label in enumerate(rows.target.tolist()):
        strata.setdefault((label, None if domain is None else int(domain[row])), []).append(row)
    for (label, number), own in strata.items():
        name = classes[label]
        if number is not None:
            name += f"\0{domains[number] if domains else number}"
        members = sorted(own, key=lambda row: (rows.digests[row], rows.ids[row]))
        key = int.from_bytes(sha256(f"{purpose}\0{name}".encode()).digest()[:8])
        draw = np.random.default_rng([seed, key]).permutation(len(members))
        chosen[[members[i] for i in draw[: held_out(len(members), share=share)]]] = True
    return rows.take(np.flatnonzero(~chosen)), rows.take(np.flatnonzero(chosen))


def threshold_groups(counts: Sequence[int]) -> Groups:
    """Many above 100 training images, few below 20, medium between: the rule of most papers. A
    group
    may be empty.

    >>> threshold_groups([101, 100, 20, 19]).members
    {'many': (0,), 'medium': (1, 2), 'few': (3,)}
    """
    members = {
        "many": tuple(i for i, n in enumerate(counts) if n > 100),
        "medium": tuple(i for i, n in enumerate(counts) if 20 <= n <= 100),
        "few": tuple(i for i, n in enumerate(counts) if n < 20),
    }
    return Groups("threshold: many > 100, few < 20", members)


def rank_groups(counts: Sequence[int], cuts: tuple[int, int, int]) -> Groups:
    """Fixed cuts of the classes sorted by training count, ties by class index: CIFAR-10's 3/4/3.

    >>> rank_groups([5, 50, 7, 50], (1, 2, 1)).members
    {'many': (1,), 'medium': (2, 3), 'few': (0,)}
    """
    if sum(cuts) != len(counts):
        raise LongtailError(f"expected cuts that sum to {len(counts)} classes, got {cuts}.")
    ranked = sorted(range(len(counts)), key=lambda i: (-counts[i], i))
    many, medium, _ = cuts
    parts = {
        "many": ranked[:many],
        "medium": ranked[many : many + medium],
        "few": ranked[many + medium :],
    }
    return Groups(
        f"ranks: {'/'.join(map(str, cuts))}",
        {name: tuple(sorted(part)) for name, part in parts.items()},
    )


def natural_groups(counts: Sequence[int]) -> Groups:
    """The threshold rule where it fills all three groups or all classes are equal, else ranks in
    thirds: what one's own data gets.

    >>> natural_groups([500, 60, 8]).rule, natural_groups([500, 400, 300, 200]).rule
    ('threshold: many > 100, few < 20', 'ranks: 1/2/1')
    """
    groups = threshold_groups(counts)
    if all(groups.members.values()) or min(counts) == max(counts):
        return groups
    third = round(len(counts) / 3)
    return rank_groups(counts, (third, len(counts) - 2 * third, third))


def one_group(counts: Sequence[int]) -> Groups:
    """All classes in one group: for data in which rare classes are not the question.

    >>> one_group([5, 5]).members
    {'all': (0, 1)}
    """
    return Groups("none: all classes alike", {"all": tuple(range(len(counts)))})


def seen_groups(counts: Sequence[int]) -> Groups:
    """Classes with training images, and those without.

    >>> seen_groups([4, 0, 2]).members
    {'seen': (0, 2), 'unseen': (1,)}
    """
    members = {
        "seen": tuple(i for i, n in enumerate(counts) if n),
        "unseen": tuple(i for i, n in enumerate(counts) if not n),
    }
    return Groups("training images: seen > 0, unseen = 0", members)


def split_hash(
    splits: Mapping[str, Rows],
    *,
    categories: Mapping[str, Sequence[str]] | None = None,
    class_attributes: Columns | None = None,
) -> str:
    """The identity of a split: a hash of all (split, image content, label), whatever their order
    and
    file names.

    Columns of rows, their categories and attributes of classes count where there are any, and
    change nothing where there are none."""
    rows = [
        split.encode() + digest + int(label).to_bytes(4) + _cells(part.columns, row)
        for split, part in splits.items()
        for row, (digest, label) in enumerate(zip(part.digests, part.target, strict=True))
    ]
    hashed = sha256(b"".join(sorted(rows)))
    for name, words in sorted((categories or {}).items()):
        hashed.update("\0".join(["categories", name, *words]).encode())
    for name, values in sorted((class_attributes or {}).items()):
        hashed.update(f"class attribute\0{name}\0{values.shape}\0".encode() + _canonical(values))
    return hashed.hexdigest()


def _cells(columns: Columns, row: int) -> bytes:
    return b"".join(
        f"\0{name}\0".encode() + _canonical(columns[name][row]) for name in sorted(columns)
    )


def _canonical(values: Any) -> bytes:
    """The bytes of numbers, whatever the machine and the width of its integers."""
    array = np.asarray(values)
    return array.astype("<f4" if array.dtype.kind == "f" else "<i8").tobytes()


def shared(train: Rows, test: Rows) -> str | None:
    """Say which test images are also in training, by content."""
    seen = dict(zip(train.digests, train.ids, strict=True))
    both = [
        f"{name} = {seen[digest]}"
        for digest, name in zip(test.digests, test.ids, strict=True)
        if digest in seen
    ]
    return (
        f"{len(both):,} test images are also in training (same content): {several(both, shown=3)}."
        if both
        else None
    )
