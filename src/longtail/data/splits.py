"""Long-tailed subsets, held-out splits, groups of classes, and the hash of a split."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from hashlib import sha256
from typing import Any

import numpy as np
from numpy.typing import NDArray

from longtail.data.columns import Columns
from longtail.data.request import Pairs, Profile
from longtail.data.source import Rows, listing
from longtail.errors import LongtailError
from longtail.records.groups import Groups


def tail_counts(
    largest: float, classes: int, *, imbalance: float, profile: Profile = "exp"
) -> list[int]:
    """Images per class, from `largest` in class 0 down to `largest / imbalance` in the last.

    `exp` and `step` are those of Cao et al. 2019 (LDAM): `int(largest * f ** (i / (C - 1)))` with f
    = 1 / imbalance, in this form because it determines the rounding; `step` keeps all of the
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
    """Rows of the conventional long-tailed subset: the first of each class's shuffled rows.

    As in Cao et al. 2019, one numpy legacy generator with seed 0 shuffles the classes in ascending
    order. The shuffles do not depend on the counts, so a subset with a higher imbalance is
    contained in one with a lower imbalance.
    """
    stream = np.random.RandomState(0)  # the published subsets use this generator
    kept = []
    for label, count in enumerate(counts):
        rows = np.flatnonzero(target == label)
        stream.shuffle(rows)
        kept.append(rows[:count])
    return np.concatenate(kept).astype(np.int64)


def held_out(n: int, *, share: int) -> int:
    """How many of a class's n images are held out: n / share, rounded.

    At least 1 if the class has 5 images or more, else none.

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
    """Split rows into those that stay and those held out, stratified by class.

    Rows with a column "domain" are stratified by class and domain. The choice depends on the seed,
    the purpose, the names of class and domain and the image contents, but not on their order.

    Args:
        rows: The rows, with digests.
        classes: Names of the classes.
        share: One row in `share` is held out: 10 holds out a tenth.
        seed: The random seed.
        purpose: "val" or "test"; the two choices from the same rows are independent.
        domains: Names of the domains, where the column "domain" has names.
    """
    chosen = held_out_rows(rows, classes, share=share, seed=seed, purpose=purpose, domains=domains)
    return rows.take(np.flatnonzero(~chosen)), rows.take(np.flatnonzero(chosen))


def held_out_rows(
    rows: Rows,
    classes: Sequence[str],
    *,
    share: int,
    seed: int,
    purpose: str,
    domains: Sequence[str] = (),
) -> NDArray[np.bool_]:
    """Which rows `hold_out` holds out, (N,).

    Args:
        rows: The rows to divide.
        classes: Names of the classes.
        share: One of so many rows of each class is held out.
        seed: Of the choice.
        purpose: The split that they become, "val" or "test".
        domains: Names of the domains, each of which is divided alike.
    """
    chosen = np.zeros(len(rows), dtype=bool)
    strata: dict[tuple[int, int | None], list[int]] = {}
    domain = rows.columns.get("domain")
    for row, label in enumerate(rows.target.tolist()):
        strata.setdefault((label, None if domain is None else int(domain[row])), []).append(row)
    for (label, number), stratum in strata.items():
        name = classes[label]
        if number is not None:
            name += f"\0{domains[number] if domains else number}"
        members = sorted(stratum, key=lambda row: (rows.digests[row], rows.ids[row]))
        key = int.from_bytes(sha256(f"{purpose}\0{name}".encode()).digest()[:8])
        order = np.random.default_rng([seed, key]).permutation(len(members))
        chosen[[members[i] for i in order[: held_out(len(members), share=share)]]] = True
    return chosen


def validation_classes(names: Sequence[str], *, seed: int) -> set[str]:
    """A third of the classes, to be held out: 50 of the 150 seen classes of CUB, as is usual.

    The choice depends on the seed and the names, not on their order.

    >>> sorted(validation_classes(["a", "b", "c", "d", "e", "f"], seed=0))
    ['a', 'f']
    """
    key = int.from_bytes(sha256(b"val\0classes").digest()[:8])
    order = np.random.default_rng([seed, key]).permutation(len(names))
    return {sorted(names)[number] for number in order[: round(len(names) / 3)]}


def hold_out_classes(
    rows: Rows, classes: Sequence[str], *, seed: int
) -> tuple[Rows, Rows, NDArray[np.int64]]:
    """Split rows for validation of zero-shot learning: rows that stay, held-out rows, and classes.

    All rows of `validation_classes` are held out, and a tenth of the rows of each other class.
    """
    names = [classes[label] for label in np.unique(rows.target).tolist()]
    held = validation_classes(names, seed=seed)
    unseen = np.array([name in held for name in classes])
    chosen = unseen[rows.target]
    stay = np.flatnonzero(~chosen)
    chosen[stay] = held_out_rows(rows.take(stay), classes, share=10, seed=seed, purpose="val")
    return (
        rows.take(np.flatnonzero(~chosen)),
        rows.take(np.flatnonzero(chosen)),
        np.flatnonzero(unseen),
    )


def threshold_groups(counts: Sequence[int]) -> Groups:
    """The rule of most papers: many above 100 training images, few below 20, medium between.

    A group may be empty.

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
    """Groups of fixed sizes of the classes sorted by count, ties by index: CIFAR-10's 3/4/3.

    >>> rank_groups([5, 50, 7, 50], (1, 2, 1)).members
    {'many': (1,), 'medium': (2, 3), 'few': (0,)}
    """
    if sum(cuts) != len(counts):
        raise LongtailError(f"cuts must sum to {len(counts)}, the number of classes, got {cuts}.")
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
    """The default rule for user data: thresholds if they fill all three groups, else rank thirds.

    If all classes are equally large, the thresholds also apply.

    >>> natural_groups([500, 60, 8]).rule, natural_groups([500, 400, 300, 200]).rule
    ('threshold: many > 100, few < 20', 'ranks: 1/2/1')
    """
    groups = threshold_groups(counts)
    if all(groups.members.values()) or min(counts) == max(counts):
        return groups
    third = round(len(counts) / 3)
    return rank_groups(counts, (third, len(counts) - 2 * third, third))


def one_group(counts: Sequence[int]) -> Groups:
    """All classes in one group, for data without a long tail.

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
    word_vectors: Columns | None = None,
    pairs: Pairs = "closed",
) -> str:
    """Hash all (split, image content, label) triples, independent of their order and file names.

    Columns, their categories, class attributes and word vectors enter the hash only if there are
    any, `pairs` only if it is not "closed".

    Args:
        splits: The rows by name of the split.
        categories: Words of columns and class attributes.
        class_attributes: Arrays with a row for each class.
        word_vectors: A row for each word.
        pairs: Which pairs can be predicted.
    """
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
    for name, values in sorted((word_vectors or {}).items()):
        hashed.update(f"word vectors\0{name}\0{values.shape}\0".encode() + _canonical(values))
    if pairs != "closed":
        hashed.update(f"pairs\0{pairs}".encode())
    return hashed.hexdigest()


def _cells(columns: Columns, row: int) -> bytes:
    return b"".join(
        f"\0{name}\0".encode() + _canonical(columns[name][row]) for name in sorted(columns)
    )


def _canonical(values: Any) -> bytes:
    """Bytes of an array that do not depend on the machine or on the width of its integers."""
    array = np.asarray(values)
    return array.astype("<f4" if array.dtype.kind == "f" else "<i8").tobytes()


def shared(train: Rows, test: Rows) -> str | None:
    """A warning that names test images whose content is also in training, or None."""
    trained = dict(zip(train.digests, train.ids, strict=True))
    both = [
        f"{name} = {trained[digest]}"
        for digest, name in zip(test.digests, test.ids, strict=True)
        if digest in trained
    ]
    return (
        f"{len(both):,} test images are also in training (same content): {listing(both, shown=3)}."
        if both
        else None
    )
