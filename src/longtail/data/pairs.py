"""Classes that are pairs of an attribute and an object: the class attributes of these names.

Such data is compositional: a pair may have no training image if its attribute and its object have
some.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from hashlib import sha256
from itertools import product

import numpy as np

from longtail.data.request import DataRequest
from longtail.data.source import Rows, Source, listing
from longtail.data.splits import held_out, seen_groups
from longtail.data.words import word_vectors
from longtail.errors import LongtailError
from longtail.naming import expand_user

PARTS = ("attribute", "object")


def has_pairs(source: Source) -> bool:
    """Whether the classes of a source are pairs of an attribute and an object."""
    return {*PARTS} <= {*source.class_attributes}


def pair_name(attribute: str, obj: str) -> str:
    """The name of a pair as a class.

    >>> pair_name("red", "shirt")
    'red shirt'
    """
    return f"{attribute} {obj}"


def requested_pairs(source: Source, request: DataRequest) -> Source:
    """Apply the data flags for pairs to a source: word vectors, and all pairs as candidates."""
    if not has_pairs(source):
        if request.word_vectors is not None or request.pairs != "closed":
            raise LongtailError(
                "--word-vectors and --pairs apply only to data whose classes are pairs of an"
                f" attribute and an object: remove them for {source.name}."
            )
        return source
    check_pairs(source)
    if set(source.splits) == {"train"}:
        source = hold_out_pairs(source, seed=request.split_seed)
    if request.word_vectors is not None:
        names = {part: source.categories[part] for part in PARTS}
        vectors = word_vectors(expand_user(request.word_vectors), names)
        source = replace(source, word_vectors=vectors)
    return all_pairs(source) if request.pairs == "open" else source


def check_pairs(source: Source) -> None:
    """Raise if an attribute or an object has no training image, or if a pair is there twice."""
    columns = [source.class_attributes[part] for part in PARTS]
    for part, values in zip(PARTS, columns, strict=True):
        if values.dtype.kind not in "iu" or values.ndim != 1:
            raise LongtailError(
                f"{source.name}: the class attribute {part} must be one category for each class,"
                f" got {values.dtype} {values.shape}."
            )
        names = source.categories.get(part)
        if names is None or values.min() < 0 or values.max() >= len(names):
            raise LongtailError(
                f"{source.name}: the class attribute {part} must have a name for each of its"
                f" numbers, got {0 if names is None else len(names)} names."
            )
        trained = set(values[source.splits["train"].target].tolist())
        missing = [name for number, name in enumerate(names) if number not in trained]
        if missing:
            raise LongtailError(
                f"{source.name}: expected training images of every {part}, got none of"
                f" {listing(missing, shown=20)}. An unseen pair needs training images of both its"
                " parts, in other pairs: add some, or remove these pairs."
            )
    pairs = [tuple(pair) for pair in np.stack(columns, axis=1).tolist()]
    if len(set(pairs)) < len(pairs):
        twice = [source.classes[i] for i, pair in enumerate(pairs) if pair in pairs[:i]]
        raise LongtailError(f"{source.name}: expected each pair once, got {listing(twice)} twice.")


def all_pairs(source: Source) -> Source:
    """The source with every pair of an attribute and an object as a class: the open world.

    The classes that the source has keep their numbers; the others follow.
    """
    attribute, obj = (source.class_attributes[part] for part in PARTS)
    known = {*zip(attribute.tolist(), obj.tolist(), strict=True)}
    names = [source.categories[part] for part in PARTS]
    others = [
        pair
        for pair in product(*(range(len(categories)) for categories in names))
        if pair not in known
    ]
    unexpected = [name for name in source.class_attributes if name not in PARTS]
    if unexpected and others:
        raise LongtailError(
            f"{source.name}: --pairs open needs pairs that are described by attribute and object"
            f" alone, got the class attributes {listing(unexpected)} as well."
        )
    more = np.array(others, dtype=np.int64).reshape(-1, 2)
    return replace(
        source,
        classes=(*source.classes, *(pair_name(names[0][a], names[1][o]) for a, o in others)),
        class_attributes={
            **source.class_attributes,
            **{
                part: np.concatenate([values, more[:, number]])
                for number, (part, values) in enumerate(zip(PARTS, (attribute, obj), strict=True))
            },
        },
        pairs="open",
    )


def hold_out_pairs(source: Source, *, seed: int) -> Source:
    """Split a source that has training rows only: unseen pairs, and images of seen ones.

    A tenth of the pairs, and at least one, is unseen in validation, as many others in test; every
    attribute and every object keeps at least one seen pair. Of the images of a seen pair, a fifth
    is for test and a tenth of the rest for validation. The choice depends on the seed, the names of
    the pairs and the ids of their rows.
    """
    rows = source.splits["train"]
    target = rows.target
    columns = [source.class_attributes[part] for part in PARTS]
    present = np.unique(target).tolist()
    seen = np.zeros(len(source.classes), dtype=bool)
    seen[present] = True
    amount = max(1, round(len(present) / 10))
    kinds: dict[int, str] = {}
    for label in _shuffled(present, [source.classes[label] for label in present], seed=seed):
        if len(kinds) == 2 * amount:
            break
        seen[label] = False
        if all((seen & (values == values[label])).any() for values in columns):
            kinds[label] = "test" if len(kinds) % 2 else "val"
        else:
            seen[label] = True
    if len(kinds) < 2:
        raise LongtailError(
            f"{source.name}: expected a split, or enough pairs to leave two of them unseen, got"
            f" {len(present)} pairs. Add a column split (train, val, test)."
        )
    parts: dict[str, list[int]] = {"train": [], "val": [], "test": []}
    for label in present:
        members = np.flatnonzero(target == label).tolist()
        if label in kinds:
            parts[kinds[label]] += members
            continue
        members = _shuffled(members, [rows.ids[row] for row in members], seed=seed)
        test = held_out(len(members), share=5)
        val = test + held_out(len(members) - test, share=10)
        for name, part in (
            ("test", members[:test]),
            ("val", members[test:val]),
            ("train", members[val:]),
        ):
            parts[name] += part
    splits: dict[str, Rows] = {
        name: rows.take(np.array(sorted(part), dtype=np.int64)) for name, part in parts.items()
    }
    warning = (
        f"there is no split: {len(kinds)} of {len(present)} pairs were chosen to be unseen (seed"
        f" {seed})."
    )
    return replace(source, splits=splits, warnings=(*source.warnings, warning))


def pair_source(
    name: str,
    pairs: Sequence[tuple[str, str]],
    rows: dict[str, tuple[Rows, list[tuple[str, str]]]],
    *,
    warnings: Sequence[str] = (),
) -> Source:
    """A source whose classes are these pairs of names.

    Args:
        name: of the data.
        pairs: attribute and object of each class.
        rows: the rows of each split, whose targets are ignored, and the pair of each row.
    """
    number = {pair: label for label, pair in enumerate(pairs)}
    categories = {part: tuple(sorted({pair[i] for pair in pairs})) for i, part in enumerate(PARTS)}
    indices = {
        part: np.array([categories[part].index(pair[i]) for pair in pairs], dtype=np.int64)
        for i, part in enumerate(PARTS)
    }
    splits = {
        split: replace(part, target=np.array([number[pair] for pair in labels], dtype=np.int64))
        for split, (part, labels) in rows.items()
    }
    return Source(
        name,
        tuple(pair_name(*pair) for pair in pairs),
        splits,
        seen_groups,
        categories=categories,
        class_attributes=indices,
        warnings=tuple(warnings),
    )


def _shuffled(items: list[int], names: Sequence[str], *, seed: int) -> list[int]:
    keys = [sha256(f"pairs\0{seed}\0{name}".encode(errors="surrogateescape")) for name in names]
    order = np.argsort([key.hexdigest() for key in keys], kind="stable")
    return [items[i] for i in order.tolist()]
