"""How often the answer is right: overall, per class, and by group of classes."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from longtail.errors import LongtailError
from longtail.records.groups import Groups


def check(logits: NDArray[Any], target: NDArray[Any]) -> None:
    """Refuse what no number can be made of: shapes that do not match, no images, targets that are
    not
    classes, broken logits.

    >>> check(np.array([[0.0, np.nan]]), np.array([1]))
    Traceback (most recent call last):
    longtail.errors.LongtailError: expected numbers, got NaN or infinity in 1 of 1 rows of logits: training diverged, lower the rate
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
            f"expected targets in 0..{logits.shape[1] - 1}, got {got}: logits and target must speak"
            " of the same classes"
        )
    amount = broken(logits)
    if amount:
        raise LongtailError(
            f"expected numbers, got NaN or infinity in {amount} of {len(logits)} rows of logits:"
            " training diverged, lower the rate"
        )


def broken(logits: NDArray[Any]) -> int:
    """Count the rows of logits that are no answers. -inf is one: a class that is ruled out; but not
    for every class.

    >>> broken(np.array([[0.0, np.nan], [0.0, np.inf], [0.0, -np.inf], [-np.inf, -np.inf]]))
    3
    """
    return int((~np.isfinite(logits.max(axis=1))).sum())


def blocks(logits: NDArray[Any], entries: int = 4_000_000) -> Iterator[tuple[slice, NDArray[Any]]]:
    """Cut logits into blocks of rows, so that what is computed from each stays small however many
    classes there are.

    >>> [rows for rows, _ in blocks(np.zeros((5, 10)), entries=20)]
    [slice(0, 2, None), slice(2, 4, None), slice(4, 6, None)]
    """
    step = max(1, entries // logits.shape[1])
    for first in range(0, len(logits), step):
        yield slice(first, first + step), logits[first : first + step]


def hits(logits: NDArray[Any], target: NDArray[Any], *, k: int = 1) -> NDArray[np.bool_]:
    """Tell for each image whether its class is among the `k` highest logits; of equal logits the
    lower
    class index wins.

    >>> hits(np.array([[2.0, 1.0, 0.0], [1.0, 1.0, 0.0]]), np.array([1, 1])).tolist()
    [False, False]
    >>> hits(np.array([[2.0, 1.0, 0.0], [1.0, 1.0, 0.0]]), np.array([1, 1]), k=2).tolist()
    [True, True]
    """
    check(logits, target)
    if k < 1:
        raise LongtailError(f"expected k of at least 1, got {k}")
    found = np.empty(len(target), dtype=bool)
    for rows, some in blocks(logits):
        wanted = target[rows, None]
        own = np.take_along_axis(some, wanted, 1)
        found[rows] = ((some > own) | ((some == own) & (np.arange(some.shape[1]) < wanted))).sum(
            1
        ) < k
    return found


def top(logits: NDArray[Any], target: NDArray[Any], k: int = 1) -> float:
    """Give the share of images whose class is among the `k` highest logits (all of them, when k
    reaches the number of classes).

    >>> top(np.array([[2.0, 1.0], [0.0, 1.0], [3.0, 0.0]]), np.array([0, 1, 1]))
    0.6666666666666666
    """
    return float(hits(logits, target, k=k).mean())


def recall(logits: NDArray[Any], target: NDArray[Any], classes: int) -> NDArray[np.float64]:
    """Give the share of each class's images that are recognised; nan for a class without images,
    which
    has no recall.

    >>> recall(np.array([[2.0, 1.0, 0.0], [0.0, 1.0, 0.0], [3.0, 0.0, 0.0]]), np.array([0, 1, 1]), 3).tolist()
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
    return float(_seen(recalls).mean())


def group_of(groups: Groups, classes: int) -> NDArray[np.int64]:
    """Give for each class the position of its group in `groups.members`; -1 for a class of none.

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
    """Average the recalls over the classes of each group; None, never 0, for a group in which no
    class
    has images.

    The mean is unweighted over classes, as in OLTR (Liu et al. 2019) and all that follow it.

    >>> from longtail.records.groups import Groups
    >>> by_group(np.array([1.0, 0.5, np.nan]), Groups("ranks: 2/1/0", {"many": (0, 1), "medium": (2,), "few": ()}))
    {'many': 0.75, 'medium': None, 'few': None}
    """
    group_of(groups, len(recalls))
    answer: dict[str, float | None] = {}
    for name, members in groups.members.items():
        own = recalls[np.asarray(members, dtype=np.int64)]
        answer[name] = None if np.isnan(own).all() else balanced(own)
    return answer


def h_mean(recalls: NDArray[Any]) -> float:
    """Give the harmonic mean of the recalls, over the classes that have images: C / sum(1 /
    recall).

    It is 0 as soon as one class is never recognised: read it with `zero_recall` beside it.

    >>> h_mean(np.array([1.0, 0.5, np.nan])), h_mean(np.array([1.0, 0.0]))
    (0.6666666666666666, 0.0)
    """
    seen = _seen(recalls)
    return 0.0 if (seen == 0).any() else float(len(seen) / (1 / seen).sum())


def g_mean(recalls: NDArray[Any]) -> float:
    """Give the geometric mean of the recalls, over the classes that have images; 0 as soon as one
    class is never recognised.

    >>> round(g_mean(np.array([1.0, 0.25, np.nan])), 6), g_mean(np.array([1.0, 0.0]))
    (0.5, 0.0)
    """
    seen = _seen(recalls)
    return 0.0 if (seen == 0).any() else float(np.exp(np.log(seen).mean()))


def zero_recall(recalls: NDArray[Any]) -> int:
    """Count the classes that have images of which none is recognised.

    >>> zero_recall(np.array([1.0, 0.0, np.nan]))
    1
    """
    return int((_seen(recalls) == 0).sum())


def macro_f1(logits: NDArray[Any], target: NDArray[Any]) -> float:
    """Average F1 = 2 TP / (2 TP + FP + FN) over the classes that have images; a class that is
    answered
    too often loses, too.

    >>> round(macro_f1(np.eye(3)[[0, 0, 1]], np.array([0, 1, 1])), 4)
    0.6667
    """
    check(logits, target)
    classes = logits.shape[1]
    answer = logits.argmax(axis=1)
    images, answered = (
        np.bincount(target, minlength=classes),
        np.bincount(answer, minlength=classes),
    )
    right = np.bincount(target[answer == target], minlength=classes)
    seen = images > 0
    return float((2 * right[seen] / (images[seen] + answered[seen])).mean())


def _seen(recalls: NDArray[Any]) -> NDArray[np.float64]:
    seen = recalls[~np.isnan(recalls)]
    if not len(seen):
        raise LongtailError(
            "expected at least one class with images, got none: a mean over no class is not defined"
        )
    return np.asarray(seen, dtype=np.float64)
