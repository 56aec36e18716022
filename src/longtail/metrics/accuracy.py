"""How often the answer is right: overall, per class, and by group of classes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:  # numbers need no torch; only the name of the type comes from there
    from longtail.core import Groups


def _check(logits: NDArray[Any], target: NDArray[Any]) -> None:
    if logits.ndim != 2 or target.shape != logits.shape[:1]:
        raise ValueError(f"expected logits (N, C) and target (N,), got {logits.shape} and {target.shape}: pass one row for each image")
    if not len(target):
        raise ValueError("expected at least one image, got none: an accuracy over nothing is not a number")
    if not np.issubdtype(target.dtype, np.integer):
        raise ValueError(f"expected class indices as target, got {target.dtype}: use argmax(axis=1) if these are distributions")
    if target.min() < 0 or target.max() >= logits.shape[1]:
        got = f"{target.min()}..{target.max()}"
        raise ValueError(f"expected targets in 0..{logits.shape[1] - 1}, got {got}: logits and target must speak of the same classes")
    broken = np.isnan(logits).any(axis=1).sum()
    if broken:
        raise ValueError(f"expected numbers, got NaN in {broken} of {len(logits)} rows of logits: training diverged, lower the rate")


def hits(logits: NDArray[Any], target: NDArray[Any], *, k: int = 1) -> NDArray[np.bool_]:
    """Tell for each image whether its class is among the `k` highest logits; of equal logits the lower class index wins.

    >>> hits(np.array([[2.0, 1.0, 0.0], [1.0, 1.0, 0.0]]), np.array([1, 1])).tolist()
    [False, False]
    >>> hits(np.array([[2.0, 1.0, 0.0], [1.0, 1.0, 0.0]]), np.array([1, 1]), k=2).tolist()
    [True, True]
    """
    _check(logits, target)
    if k < 1:
        raise ValueError(f"expected k of at least 1, got {k}")
    own = logits[np.arange(len(target)), target][:, None]
    ahead = (logits > own) | ((logits == own) & (np.arange(logits.shape[1]) < target[:, None]))
    return np.asarray(ahead.sum(axis=1) < k)


def top(logits: NDArray[Any], target: NDArray[Any], k: int = 1) -> float:
    """Give the share of images whose class is among the `k` highest logits (all of them, when k reaches the number of classes).

    >>> top(np.array([[2.0, 1.0], [0.0, 1.0], [3.0, 0.0]]), np.array([0, 1, 1]))
    0.6666666666666666
    """
    return float(hits(logits, target, k=k).mean())


def recall(logits: NDArray[Any], target: NDArray[Any], classes: int) -> NDArray[np.float64]:
    """Give the share of each class's images that are recognised; nan for a class without images, which has no recall.

    >>> recall(np.array([[2.0, 1.0, 0.0], [0.0, 1.0, 0.0], [3.0, 0.0, 0.0]]), np.array([0, 1, 1]), 3).tolist()
    [1.0, 0.5, nan]
    """
    if logits.ndim == 2 and logits.shape[1] != classes:
        raise ValueError(f"expected {classes} logits for each image, got {logits.shape[1]}: build the network for these classes")
    right = np.bincount(target[hits(logits, target)], minlength=classes)
    images = np.bincount(target, minlength=classes)
    recalls = np.full(classes, np.nan)
    np.divide(right, images, out=recalls, where=images > 0)
    return recalls


def balanced(recalls: NDArray[Any]) -> float:
    """Average the recalls over the classes that have images: every class counts the same, however rare.

    >>> balanced(np.array([1.0, 0.5, np.nan]))
    0.75
    """
    seen = recalls[~np.isnan(recalls)]
    if not len(seen):
        raise ValueError("expected at least one class with images, got none: balanced accuracy is not defined")
    return float(seen.mean())


def by_group(recalls: NDArray[Any], groups: Groups) -> dict[str, float | None]:
    """Average the recalls over the classes of each group; None, never 0, for a group in which no class has images.

    The mean is unweighted over classes, as in OLTR (Liu et al. 2019) and all that follow it.

    >>> from longtail.core import Groups
    >>> by_group(np.array([1.0, 0.5, np.nan]), Groups("ranks: 2/1/0", {"many": (0, 1), "medium": (2,), "few": ()}))
    {'many': 0.75, 'medium': None, 'few': None}
    """
    unknown = sorted(index for members in groups.members.values() for index in members if not 0 <= index < len(recalls))
    if unknown:
        raise ValueError(f"expected groups over classes 0..{len(recalls) - 1}, got classes {unknown}: pass groups of the same classes")
    answer: dict[str, float | None] = {}
    for name, members in groups.members.items():
        own = recalls[np.asarray(members, dtype=np.int64)]
        answer[name] = None if np.isnan(own).all() else balanced(own)
    return answer
