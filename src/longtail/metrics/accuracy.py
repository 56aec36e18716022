"""How often predictions are correct: overall, per class, and by group of classes."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from longtail.errors import LongtailError
from longtail.records.groups import Groups


def check(logits: NDArray[Any], target: NDArray[Any]) -> None:
    """Refuse logits and targets that cannot be scored: shapes that do not match, no images, targets
    that are not classes, or logits that are not finite.

    >>> check(np.array([[0.0, 1.0]]), np.array([2]))
    Traceback (most recent call last):
    longtail.errors.LongtailError: expected targets in 0..1, got 2..2: pass targets of these classes
    """
    if logits.ndim != 2 or target.shape != logits.shape[:1]:
        raise LongtailError(
            f"expected logits (N, C) and target (N,), got {logits.shape} and {target.shape}: pass"
            " one row for each image"
        )
    if not len(target):
        raise LongtailError(
            "expected at least one image, got none: an accuracy over nothing is not a number"
        )
    if not np.issubdtype(target.dtype, np.integer):
        raise LongtailError(
            f"expected class indices as target, got {target.dtype}: use argmax(axis=1) if these are"
            " distributions"
        )
    if target.min() < 0 or target.max() >= logits.shape[1]:
        got = f"{target.min()}..{target.max()}"
        raise LongtailError(
            f"expected targets in 0..{logits.shape[1] - 1}, got {got}: pass targets of these"
            " classes"
        )
    amount = broken(logits)
    if amount:
        raise LongtailError(
            f"expected numbers, got NaN or infinity in {amount} of {len(logits)} rows of logits:"
            " training diverged, lower the learning rate"
        )


def broken(logits: NDArray[Any]) -> int:
    """Count the rows of logits that predict no class: those with NaN or +inf, or with -inf alone.

    A single -inf is allowed: it rules out a class.

    >>> broken(np.array([[0.0, np.nan], [0.0, np.inf], [0.0, -np.inf], [-np.inf, -np.inf]]))
    3
    """
    return int((~np.isfinite(logits.max(axis=1))).sum())


def blocks(logits: NDArray[Any], entries: int = 4_000_000) -> Iterator[tuple[slice, NDArray[Any]]]:
    """Cut logits into blocks of rows, which limits the memory of what is computed from each.

    >>> [rows for rows, _ in blocks(np.zeros((5, 10)), entries=20)]
    [slice(0, 2, None), slice(2, 4, None), slice(4, 6, None)]
    """
    step = max(1, entries // logits.shape[1])
    for first in range(0, len(logits), step):
        yield slice(first, first + step), logits[first : first + step]


def hits(logits: NDArray[Any], target: NDArray[Any], *, k: int = 1) -> NDArray[np.bool_]:
    """Whether the class of each image is among its `k` highest logits.

    Of equal logits, the lower class index wins.

    >>> hits(np.array([[2.0, 1.0, 0.0], [1.0, 1.0, 0.0]]), np.array([1, 1])).tolist()
    [False, False]
    >>> hits(np.array([[2.0, 1.0, 0.0], [1.0, 1.0, 0.0]]), np.array([1, 1]), k=2).tolist()
    [True, True]
    """
    check(logits, target)
    if k < 1:
        raise LongtailError(f"expected k of at least 1, got {k}")
    correct = np.empty(len(target), dtype=bool)
    for rows, block in blocks(logits):
        label = target[rows, None]
        value = np.take_along_axis(block, label, 1)
        lower = np.arange(block.shape[1]) < label
        correct[rows] = ((block > value) | ((block == value) & lower)).sum(1) < k
    return correct


def top(logits: NDArray[Any], target: NDArray[Any], k: int = 1) -> float:
    """The share of images whose class is among the `k` highest logits.

    >>> top(np.array([[2.0, 1.0], [0.0, 1.0], [3.0, 0.0]]), np.array([0, 1, 1]))
    0.6666666666666666
    """
    return float(hits(logits, target, k=k).mean())


def recall(logits: NDArray[Any], target: NDArray[Any], classes: int) -> NDArray[np.float64]:
    """The share of each class's images that are recognised; nan for a class without images.

    >>> logits = np.array([[2.0, 1.0, 0.0], [0.0, 1.0, 0.0], [3.0, 0.0, 0.0]])
    >>> recall(logits, np.array([0, 1, 1]), 3).tolist()
    [1.0, 0.5, nan]
    """
    if logits.ndim == 2 and logits.shape[1] != classes:
        raise LongtailError(
            f"expected {classes} logits for each image, got {logits.shape[1]}: build the network"
            " for these classes"
        )
    return recall_of(hits(logits, target), target, classes)


def recall_of(right: NDArray[np.bool_], target: NDArray[Any], classes: int) -> NDArray[np.float64]:
    """The same, from whether each image was recognised.

    >>> recall_of(np.array([True, True, False]), np.array([0, 1, 1]), 3).tolist()
    [1.0, 0.5, nan]
    """
    recognised = np.bincount(target[right], minlength=classes)
    images = np.bincount(target, minlength=classes)
    recalls = np.full(classes, np.nan)
    np.divide(recognised, images, out=recalls, where=images > 0)
    return recalls


def balanced(recalls: NDArray[Any]) -> float:
    """Average the recalls over the classes that have images: every class counts the same, however
    rare.

    >>> balanced(np.array([1.0, 0.5, np.nan]))
    0.75
    """
    return float(_defined(recalls).mean())


def group_of(groups: Groups, classes: int) -> NDArray[np.int64]:
    """The position of each class's group in `groups.members`; -1 for a class of no group.

    >>> from longtail.records.groups import Groups
    >>> group_of(Groups("ranks: 1/0/2", {"many": (1,), "medium": (), "few": (0, 2)}), 3).tolist()
    [2, 0, 2]
    """
    unknown = sorted(
        index
        for members in groups.members.values()
        for index in members
        if not 0 <= index < classes
    )
    if unknown:
        raise LongtailError(
            f"expected groups over classes 0..{classes - 1}, got classes {unknown}: pass groups of"
            " the same classes"
        )
    position = np.full(classes, -1)
    for number, members in enumerate(groups.members.values()):
        position[np.asarray(members, dtype=np.int64)] = number
    return position


def by_group(recalls: NDArray[Any], groups: Groups) -> dict[str, float | None]:
    """Average the recalls over the classes of each group; None for a group without images.

    The mean is unweighted over classes, as in OLTR (Liu et al. 2019) and all that follow it.

    >>> from longtail.records.groups import Groups
    >>> groups = Groups("ranks: 2/1/0", {"many": (0, 1), "medium": (2,), "few": ()})
    >>> by_group(np.array([1.0, 0.5, np.nan]), groups)
    {'many': 0.75, 'medium': None, 'few': None}
    """
    group_of(groups, len(recalls))
    means: dict[str, float | None] = {}
    for name, members in groups.members.items():
        group_recalls = recalls[np.asarray(members, dtype=np.int64)]
        means[name] = None if np.isnan(group_recalls).all() else balanced(group_recalls)
    return means


def h_mean(recalls: NDArray[Any]) -> float:
    """The harmonic mean of the recalls, C / sum(1 / recall), over the classes that have images.

    It is 0 as soon as one class is never recognised: read it with `zero_recall` beside it.

    >>> h_mean(np.array([1.0, 0.5, np.nan])), h_mean(np.array([1.0, 0.0]))
    (0.6666666666666666, 0.0)
    """
    values = _defined(recalls)
    return 0.0 if (values == 0).any() else float(len(values) / (1 / values).sum())


def g_mean(recalls: NDArray[Any]) -> float:
    """The geometric mean of the recalls, over the classes that have images.

    It is 0 as soon as one class is never recognised.

    >>> round(g_mean(np.array([1.0, 0.25, np.nan])), 6), g_mean(np.array([1.0, 0.0]))
    (0.5, 0.0)
    """
    values = _defined(recalls)
    return 0.0 if (values == 0).any() else float(np.exp(np.log(values).mean()))


def zero_recall(recalls: NDArray[Any]) -> int:
    """Count the classes that have images of which none is recognised.

    >>> zero_recall(np.array([1.0, 0.0, np.nan]))
    1
    """
    return int((_defined(recalls) == 0).sum())


def macro_f1(logits: NDArray[Any], target: NDArray[Any]) -> float:
    """Average F1 = 2 TP / (2 TP + FP + FN) over the classes that have images.

    Unlike recall, it also falls where a class is predicted too often.

    >>> round(macro_f1(np.eye(3)[[0, 0, 1]], np.array([0, 1, 1])), 4)
    0.6667
    """
    check(logits, target)
    classes = logits.shape[1]
    predicted = logits.argmax(axis=1)
    images = np.bincount(target, minlength=classes)
    predictions = np.bincount(predicted, minlength=classes)
    correct = np.bincount(target[predicted == target], minlength=classes)
    present = images > 0
    return float((2 * correct[present] / (images[present] + predictions[present])).mean())


def _defined(recalls: NDArray[Any]) -> NDArray[np.float64]:
    """The recalls of the classes that have images."""
    values = recalls[~np.isnan(recalls)]
    if not len(values):
        raise LongtailError(
            "expected at least one class with images, got none: a mean over no class is not defined"
        )
    return np.asarray(values, dtype=np.float64)
