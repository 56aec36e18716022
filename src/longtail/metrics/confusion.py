"""Which class, and which group, takes the images of another: the head eats the tail, and here is
which head.
"""

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
    """Give for each class the other class that takes most of its images, and the share of its
    images
    that this one takes.

    The class is -1 where no image is lost, and the share nan for a class without images. Of several
    that take the same number, the lower index is named.

    >>> by, share = most_confused(np.eye(3)[[0, 0, 0, 1, 2]], np.array([0, 1, 1, 1, 1]))
    >>> by.tolist(), share.tolist()
    ([-1, 0, -1], [0.0, 0.5, nan])
    """
    check(logits, target)
    classes = logits.shape[1]
    answer = logits.argmax(axis=1).astype(np.int64)
    wrong = answer != target
    pair, times = np.unique(
        target[wrong].astype(np.int64) * classes + answer[wrong], return_counts=True
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
    """Count the images of each group by the group of the class they were answered with, and those
    that
    were right.

    >>> from longtail.records.groups import Groups
    >>> groups = Groups("ranks: 2/0/1", {"many": (0, 1), "medium": (), "few": (2,)})
    >>> between_groups(np.eye(3)[[0, 1, 0, 2]], np.array([0, 0, 2, 2]), groups=groups)
    {'groups': ['many', 'medium', 'few'], 'matrix': [[2, 0, 0], [0, 0, 0], [1, 0, 1]], 'correct': [1, 0, 1]}
    """
    check(logits, target)
    position, number = group_of(groups, logits.shape[1]), len(groups.members)
    answer = logits.argmax(axis=1)
    of, by = position[target], position[answer]
    both = (of >= 0) & (by >= 0)
    matrix = np.bincount(of[both] * number + by[both], minlength=number * number).reshape(
        number, number
    )
    right = np.bincount(of[(answer == target) & both], minlength=number)
    return {"groups": list(groups.members), "matrix": matrix.tolist(), "correct": right.tolist()}
