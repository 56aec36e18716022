"""Which class, and which group of classes, the images of each class are confused with."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from longtail.metrics.accuracy import check, group_of
from longtail.records.groups import Groups
from longtail.records.row import Confusions


def most_confused(
    logits: NDArray[Any], target: NDArray[Any]
) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """The class that each class is most often confused with, and the share of images concerned.

    The class is -1 where every image is recognised, and the share nan for a class without images.
    Of several with the same number of images, the lower index is given.

    >>> by, share = most_confused(np.eye(3)[[0, 0, 0, 1, 2]], np.array([0, 1, 1, 1, 1]))
    >>> by.tolist(), share.tolist()
    ([-1, 0, -1], [0.0, 0.5, nan])
    """
    check(logits, target)
    classes = logits.shape[1]
    predicted = logits.argmax(axis=1).astype(np.int64)
    wrong = predicted != target
    pair, times = np.unique(
        target[wrong].astype(np.int64) * classes + predicted[wrong], return_counts=True
    )
    by, taken = np.full(classes, -1), np.zeros(classes)
    # The last to be written has most images, and of those the lowest index
    order = np.lexsort((-pair, times))
    by[pair[order] // classes], taken[pair[order] // classes] = pair[order] % classes, times[order]
    images = np.bincount(target, minlength=classes)
    share = np.full(classes, np.nan)
    np.divide(taken, images, out=share, where=images > 0)
    return by, share


def between_groups(logits: NDArray[Any], target: NDArray[Any], *, groups: Groups) -> Confusions:
    """Count the images of each group by the group of their predicted class, and the correct ones.

    >>> from longtail.records.groups import Groups
    >>> groups = Groups("ranks: 2/0/1", {"many": (0, 1), "medium": (), "few": (2,)})
    >>> result = between_groups(np.eye(3)[[0, 1, 0, 2]], np.array([0, 0, 2, 2]), groups=groups)
    >>> result["groups"], result["matrix"], result["correct"]
    (['many', 'medium', 'few'], [[2, 0, 0], [0, 0, 0], [1, 0, 1]], [1, 0, 1])
    """
    check(logits, target)
    position, number = group_of(groups, logits.shape[1]), len(groups.members)
    predicted = logits.argmax(axis=1)
    of, by = position[target], position[predicted]
    both = (of >= 0) & (by >= 0)
    matrix = np.bincount(of[both] * number + by[both], minlength=number * number).reshape(
        number, number
    )
    correct = np.bincount(of[(predicted == target) & both], minlength=number)
    return {"groups": list(groups.members), "matrix": matrix.tolist(), "correct": correct.tolist()}
