"""One split's numbers, ready for `row.json`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from longtail.metrics.accuracy import balanced, by_group, hits, recall, top
from longtail.metrics.calibration import confidence as confidence_of
from longtail.metrics.calibration import ece, mce
from longtail.metrics.row import Summary

if TYPE_CHECKING:
    from longtail.core import Groups


def summarise(
    logits: NDArray[Any], target: NDArray[Any], *, classes: int, groups: Groups, confidence: str = "softmax", bins: int = 15
) -> Summary:
    """Sum up what a network answered: accuracy overall, by class and by group, and calibration.

    >>> from longtail.core import Groups
    >>> groups = Groups("ranks: 1/1/1", {"many": (0,), "medium": (1,), "few": (2,)})
    >>> numbers = summarise(np.array([[2.0, 1.0, 0.0], [0.0, 1.0, 0.0], [3.0, 0.0, 0.0]]), np.array([0, 1, 1]), classes=3, groups=groups)
    >>> numbers["balanced"], numbers["groups"], numbers["classes_without_test"]
    (0.75, {'many': 1.0, 'medium': 0.5, 'few': None}, {'count': 1, 'indices': [2]})
    """
    recalls = recall(logits, target, classes)
    sure, correct = confidence_of(logits, confidence), hits(logits, target)
    without = np.flatnonzero(np.isnan(recalls)).tolist()
    return {
        "top1": top(logits, target),
        "top5": top(logits, target, 5) if classes > 5 else None,
        "balanced": balanced(recalls),
        "groups": by_group(recalls, groups),
        "group_rule": groups.rule,
        "recall": [None if np.isnan(value) else float(value) for value in recalls],
        "classes_without_test": {"count": len(without), "indices": without},
        "ece": ece(sure, correct, bins),
        "mce": mce(sure, correct, bins),
        "bins": bins,
        "confidence": confidence,
        "images": len(target),
    }
