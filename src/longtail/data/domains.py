"""Domains: which of them are trained on, and which one is the test set."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from longtail.data.source import Rows, Source, listing
from longtail.errors import LongtailError
from longtail.naming import unknown


def leave_domain_out(source: Source, test_domain: str, *, train: Sequence[str] = ()) -> Source:
    """Make one domain the test set, and train on the domains `train`, by default all others.

    All images of the test domain are test images, in whatever split the source has them. Images of
    the training domains keep the splits train and val; those in a test split are left out, and so
    are the images of all other domains.
    """
    source = with_domain_names(source)
    names = source.categories["domain"]
    for name in (test_domain, *train):
        if name == "all" and name not in names:
            raise LongtailError(
                "a run has one test domain: leave out each domain in turn with `longtail sweep"
                " RECIPES --set test_domain=all`, or pass one of"
                f" {listing(names)}."
            )
        if name not in names:
            raise unknown(f"domain of {source.name}", name, names)
    if test_domain in train:
        raise LongtailError(
            f"--train-domain names the test domain {test_domain}: remove it there, or test on"
            " another domain."
        )
    if len(names) < 2:
        raise LongtailError(
            f"{source.name}: expected at least two domains, got only {listing(names)}: add images"
            " of another domain to train on."
        )
    trained = tuple(name for name in names if (name in train if train else name != test_domain))
    target = _all_rows(source, names.index(test_domain))
    splits = {
        split: _of_domains(rows, [names.index(name) for name in trained])
        for split, rows in source.splits.items()
    }
    counts = np.bincount(splits["train"].columns["domain"], minlength=len(names))
    if missing := [name for name in trained if not counts[names.index(name)]]:
        raise LongtailError(
            f"{source.name}: expected training images in every domain, got none in"
            f" {listing(missing)}: add some, or name the domains to train on with --train-domain."
        )
    if not len(target):
        raise LongtailError(
            f"{source.name}: expected images of the test domain, got none of {test_domain}."
        )
    warnings, unused = list(source.warnings), splits.pop("test", None)
    if unused is not None and len(unused):
        warnings.append(
            f"{len(unused):,} images of {listing(trained)} are in the test split and were left out:"
            f" the test images are those of {test_domain}."
        )
    chosen = replace(
        source,
        splits={**{split: rows for split, rows in splits.items() if len(rows)}, "test": target},
        warnings=tuple(warnings),
        test_domain=test_domain,
    )
    return _used(_check_classes(chosen, trained), (*trained, test_domain))


def with_domain_names(source: Source) -> Source:
    """Name the domains, also where they are a column of numbers; raise if there are none."""
    columns = {split: rows.columns.get("domain") for split, rows in source.splits.items()}
    known = [values for values in columns.values() if values is not None]
    if len(known) < len(columns):
        raise LongtailError(
            f"--test-domain needs data with domains, and {source.name} has none: give a folder of"
            " domain/class/image, a folder of lists with one list per domain, or a .csv, parquet or"
            " .npz with a column domain."
        )
    if "domain" in source.categories:
        if any(not name.strip() for name in source.categories["domain"]):
            raise LongtailError(
                f"{source.name}: expected a domain for every image, got empty cells."
            )
        return source
    values = np.unique(np.concatenate(known))
    if np.isnan(values.astype(float)).any():
        raise LongtailError(f"{source.name}: expected a domain for every image, got empty cells.")
    splits = {
        split: replace(
            rows,
            columns={**rows.columns, "domain": np.searchsorted(values, rows.columns["domain"])},
        )
        for split, rows in source.splits.items()
    }
    names = tuple(f"{value:g}" for value in values.tolist())
    return replace(source, splits=splits, categories={**source.categories, "domain": names})


def _of_domains(rows: Rows, numbers: Sequence[int]) -> Rows:
    return rows.take(np.flatnonzero(np.isin(rows.columns["domain"], numbers)))


def _all_rows(source: Source, number: int) -> Rows:
    """The rows of a domain in all splits."""
    first, *others = (_of_domains(rows, [number]) for rows in source.splits.values())
    for rows in others:
        first = first.join(rows)
    return first


def _check_classes(source: Source, trained: Sequence[str]) -> Source:
    """Raise if the training domains lack classes of the test domain, or one of them has none."""
    counts = np.bincount(source.splits["train"].target, minlength=len(source.classes))
    tested = np.bincount(source.splits["test"].target, minlength=len(source.classes))
    lacking = np.flatnonzero((counts == 0) & (tested > 0))
    if len(lacking) and not source.class_attributes:
        raise LongtailError(
            f"{source.name}: expected the same classes in all domains, but {source.test_domain} has"
            f" classes without training images in {listing(trained)}:"
            f" {listing(source.classes[label] for label in lacking.tolist())}. Rename or remove"
            " them, or choose other domains with --train-domain."
        )
    train, names = source.splits["train"], source.categories["domain"]
    shared = train.columns["domain"][tested[train.target] > 0]
    if unrelated := [name for name in trained if names.index(name) not in shared]:
        raise LongtailError(
            f"{source.name}: expected classes of {source.test_domain} in every training domain, got"
            f" none in {listing(unrelated)}: name the domains to train on with --train-domain."
        )
    return source


def _used(source: Source, domains: Sequence[str]) -> Source:
    """Drop the names of domains and classes that only images of other domains have."""
    names = source.categories["domain"]
    kept_names = tuple(name for name in names if name in domains)
    new_domain = np.array([kept_names.index(name) if name in domains else -1 for name in names])
    kept = np.full(len(source.classes), bool(source.class_attributes))
    for rows in source.splits.values():
        kept[rows.target] = True
    new_class = np.cumsum(kept) - 1
    splits = {
        split: replace(
            rows,
            target=new_class[rows.target],
            columns={**rows.columns, "domain": new_domain[rows.columns["domain"]]},
        )
        for split, rows in source.splits.items()
    }
    return replace(
        source,
        classes=tuple(name for name, used in zip(source.classes, kept, strict=True) if used),
        splits=splits,
        categories={**source.categories, "domain": kept_names},
    )
