"""Assemble a `Dataset` from a source: checks, held-out splits, groups, hash and warnings."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np
import torch
from numpy.typing import NDArray

from longtail.data.dataset import Dataset, Split
from longtail.data.request import Protocol
from longtail.data.source import Rows, Source, listing
from longtail.data.splits import (
    hold_out,
    hold_out_classes,
    natural_groups,
    one_group,
    seen_groups,
    shared,
    split_hash,
)
from longtail.errors import LongtailError
from longtail.records.groups import Groups

LARGEST_CROPPED = 224
"""The largest size in pixels at which `Source.crop` applies.

Larger inputs use the full central square, as LiVT does at 384.
"""


def joined_labels(classes: Sequence[str]) -> list[str]:
    """The class names that consist of two or more other class names and a separator.

    >>> joined_labels(["cat", "dog", "cat|dog", "dog+cat", "black|white"])
    ['cat|dog', 'dog+cat']
    """
    known = set(classes)
    return [
        name
        for name in classes
        if any(
            separator in name and all(part.strip() in known for part in name.split(separator))
            for separator in "|;,+&/"
        )
    ]


def assemble(source: Source, *, protocol: Protocol = "holdout", split_seed: int = 0) -> Dataset:
    """Build a dataset from a source with digests, holding out the splits that it lacks."""
    _check_attributes(source)
    source = _classes_to_learn(source)
    classes, train, warnings = source.classes, source.splits["train"], list(source.warnings)
    test, val = source.splits.get("test"), source.splits.get("val")
    if _needs_validation_classes(source) and protocol == "holdout":
        train, val, held = hold_out_classes(train, classes, seed=split_seed)
        assert test is not None
        kept = np.flatnonzero(~np.isin(test.target, held))
        warnings.append(
            f"{len(held):,} classes are validation classes: they are not trained on, and their"
            f" {len(test) - len(kept):,} test images are left out. --protocol paper trains on"
            " all classes, without validation."
        )
        test = test.take(kept)
    source_counts = np.bincount(train.target, minlength=len(classes))
    domains = source.categories.get("domain", ())
    if test is None:
        train, test = hold_out(
            train, classes, share=5, seed=split_seed, purpose="test", domains=domains
        )
    if val is None and protocol != "paper":
        share = 10 if source.test_domain is None else 5  # a fifth, as for domains in the field
        train, val = hold_out(
            train, classes, share=share, seed=split_seed, purpose="val", domains=domains
        )
    if val is None:
        val = train.take(np.arange(0))

    if joined := joined_labels(classes):
        warnings.append(
            f"{len(joined):,} labels join others that also occur alone, and each is a separate"
            f" class here: {listing(joined)}. If these images have several labels, give each image"
            " the one that counts."
        )
    single = [classes[i] for i in np.flatnonzero(source_counts == 1)]
    if single:
        warnings.append(f"{len(single):,} classes have a single training image: {listing(single)}.")
    tested = np.bincount(test.target, minlength=len(classes)) > 0
    untested = [classes[i] for i in np.flatnonzero((source_counts > 0) & ~tested)]
    if untested:
        warnings.append(
            f"{len(untested):,} classes have no test image: they are trained, but not evaluated:"
            f" {listing(untested)}."
        )
    if duplicates := shared(train, test):
        warnings.append(duplicates)

    assert source.size is not None
    crop = evaluated_crop(source)
    # The name of a folder may not be valid UTF-8, but the name is written into files and pages
    return Dataset(
        name=source.name.encode(errors="replace").decode(),
        classes=classes,
        train=as_split(train, crop),
        val=as_split(val, crop),
        test=as_split(test, crop),
        counts=torch.bincount(torch.from_numpy(train.target), minlength=len(classes)),
        source_counts=torch.from_numpy(source_counts),
        groups=_grouping(source, source_counts)(source_counts.tolist()),
        size=source.size,
        hash=split_hash(
            {"train": train, "val": val, "test": test},
            categories=source.categories,
            class_attributes=source.class_attributes,
            word_vectors=source.word_vectors,
            pairs=source.pairs,
        ),
        protocol=protocol,
        native=source.native,
        mirror=source.mirror,
        geometry=source.geometry,
        caveats=source.caveats,
        warnings=tuple(warnings),
        categories=source.categories,
        class_attributes={
            name: torch.from_numpy(values) for name, values in source.class_attributes.items()
        },
        word_vectors={
            name: torch.from_numpy(values) for name, values in source.word_vectors.items()
        },
        pairs=source.pairs,
        pretraining=source.pretraining,
        backbone=source.backbone,
        scorer=source.scorer,
        test_domain=source.test_domain,
        unlabelled=_unlabelled(test, train, source, crop) if protocol == "adapt" else None,
    )


def _needs_validation_classes(source: Source) -> bool:
    """Whether unseen classes are tested, but none are in validation: for zero-shot learning.

    Only of classes that vectors describe: of pairs, validation needs pairs whose parts are seen.
    """
    if "vector" not in source.class_attributes or "attribute" in source.class_attributes:
        return False
    if "val" in source.splits or "test" not in source.splits:
        return False
    unseen = np.setdiff1d(source.splits["test"].target, source.splits["train"].target)
    return bool(len(unseen)) and len(np.unique(source.splits["train"].target)) >= 3


def _grouping(source: Source, counts: NDArray[np.int64]) -> Callable[[Sequence[int]], Groups]:
    """The source's rule for groups; the default rule is replaced for data without a tail."""
    if source.grouping is not natural_groups:
        return source.grouping
    if not counts.all():
        return seen_groups
    return one_group if "domain" in source.splits["train"].columns else natural_groups


def _check_attributes(source: Source) -> None:
    """Raise unless every class has a row of finite numbers in each class attribute."""
    for name, values in source.class_attributes.items():
        if len(values) != len(source.classes):
            raise LongtailError(
                f"{source.name}: class attribute {name!r} must have a row for each of"
                f" {len(source.classes)} classes, got {len(values)}."
            )
        if values.dtype.kind == "f" and not np.isfinite(values).all():
            broken = ~np.isfinite(values.reshape(len(values), -1)).all(axis=1)
            missing = listing(source.classes[i] for i in np.flatnonzero(broken))
            raise LongtailError(
                f"{source.name}: class attribute {name!r} is missing (NaN or infinite) for"
                f" {missing}: add it, or remove the classes."
            )


def _classes_to_learn(source: Source) -> Source:
    """Drop classes without training images.

    Raises if two names differ only in case, or if a class has no image in any split.
    """
    same_name = defaultdict(list)
    for name in source.classes:
        same_name[name.casefold()].append(name)
    clashes = [" and ".join(names) for names in same_name.values() if len(names) > 1]
    if clashes:
        raise LongtailError(
            f"{source.name}: expected class names that differ in more than case, got"
            f" {listing(clashes)}. Rename or merge them."
        )

    trained = np.bincount(source.splits["train"].target, minlength=len(source.classes)) > 0
    if trained.all() or source.class_attributes:
        return source
    has_images = np.zeros_like(trained)
    for rows in source.splits.values():
        has_images[rows.target] = True
    empty = [source.classes[i] for i in np.flatnonzero(~has_images)]
    if empty:
        raise LongtailError(
            f"{source.name}: expected a training image in every class, got none in"
            f" {listing(empty, shown=20)}. Add images or remove them."
        )
    index = np.cumsum(trained) - 1
    splits, dropped = {}, []
    for split, rows in source.splits.items():
        kept = rows.take(np.flatnonzero(trained[rows.target]))
        splits[split] = replace(kept, target=index[kept.target])
        if len(kept) < len(rows):
            dropped.append(f"{len(rows) - len(kept):,} {split} images")
    unseen = [source.classes[i] for i in np.flatnonzero(~trained)]
    warning = (
        f"{len(unseen):,} classes have no training image and were left out, with"
        f" {' and '.join(dropped)}: {listing(unseen)}."
    )
    classes = tuple(name for name, kept in zip(source.classes, trained, strict=True) if kept)
    return replace(source, classes=classes, splits=splits, warnings=(*source.warnings, warning))


def _unlabelled(test: Rows, train: Rows, source: Source, crop: float) -> Split:
    """The test images without their classes; refuse data whose two parts have other classes."""
    trained, tested = {*train.target.tolist()}, {*test.target.tolist()}
    if differ := sorted(trained ^ tested):
        where = source.test_domain or "the test images"
        names = listing(source.classes[label] for label in differ)
        raise LongtailError(
            f"{source.name}: --protocol adapt needs the same classes in training and in {where},"
            f" and only one of them has {names}. Remove these classes, or add images."
        )
    return replace(as_split(test, crop), target=torch.full((len(test),), -1))


def evaluated_crop(source: Source) -> float:
    """The share of the central square of an image that is evaluated."""
    assert source.size is not None
    return source.crop if source.geometry == "crop" and source.size <= LARGEST_CROPPED else 1.0


def as_split(rows: Rows, crop: float) -> Split:
    """Rows of a source as a split."""
    columns = {name: torch.from_numpy(values) for name, values in rows.columns.items()}
    return Split(rows.inputs, torch.from_numpy(rows.target), rows.ids, crop, columns)
