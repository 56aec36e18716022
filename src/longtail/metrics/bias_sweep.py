"""Accuracy on seen against unseen classes, over all biases that are added to unseen ones."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

LARGE = 1e3
"""The bias at which every prediction is an unseen class, as in released code."""
BINS = 20
"""About how many biases the released code tries."""
BELOW = 1e-4
"""How much lower than an image's turning point the released code sets its biases."""


@dataclass(frozen=True)
class BiasSweep:
    """The accuracies over images of seen and of unseen classes at each bias, in ascending order.

    With weights of images, they are weighted means.
    """

    bias: NDArray[np.float64]
    seen: NDArray[np.float64]
    unseen: NDArray[np.float64]

    @property
    def auc(self) -> float:
        """The area under the curve of seen over unseen accuracy, by trapezoids."""
        return float(np.trapezoid(self.seen, self.unseen))

    @property
    def harmonic(self) -> NDArray[np.float64]:
        """The harmonic mean of both accuracies at each bias; 0 where both are 0."""
        total = self.seen + self.unseen
        return 2 * self.seen * self.unseen / np.where(total > 0, total, 1.0)

    @property
    def hm(self) -> float:
        """The best harmonic mean."""
        return float(self.harmonic.max())

    @property
    def best_bias(self) -> float:
        """The bias of the best harmonic mean; of several the lowest."""
        return float(self.bias[self.harmonic.argmax()])


def bias_sweep(
    logits: NDArray[Any],
    target: NDArray[Any],
    seen: NDArray[np.bool_],
    *,
    candidates: NDArray[np.bool_] | None = None,
    weight: NDArray[Any] | None = None,
) -> BiasSweep | None:
    """Sweep over all biases at which a prediction changes; None without seen or unseen images.

    An image's prediction moves to unseen classes as soon as the bias exceeds the difference between
    its best seen and its best unseen logit. Sorting these differences gives the exact curve.

    Args:
        logits: (N, C).
        target: (N,), class indices.
        seen: (C,), whether a class has training images.
        candidates: (C,), the classes that can be predicted; all unless given.
        weight: (N,), of each image; 1 unless given. `class_weights` makes all classes count alike.

    Chao et al., "An Empirical Study and Analysis of Generalized Zero-Shot Learning", ECCV 2016;
    Purushwalkam et al., "Task-Driven Modular Networks", ICCV 2019.

    >>> logits = np.array([[3.0, 1.0], [3.0, 2.0]])
    >>> sweep = bias_sweep(logits, np.array([0, 1]), np.array([True, False]))
    >>> sweep.seen.tolist(), sweep.unseen.tolist(), sweep.auc, sweep.best_bias
    ([1.0, 1.0, 0.0], [0.0, 1.0, 1.0], 1.0, 1.5)
    """
    known, right, margin = _margins(logits, target, seen, candidates)
    if known.all() or not known.any():
        return None
    turns = np.unique(margin[right])
    turns = turns[np.isfinite(turns)]
    if not len(turns):
        turns = np.zeros(1)
    # A bias inside each interval in which no prediction changes, so that rounding changes none.
    bias = np.concatenate([turns[:1] - 1, (turns[1:] + turns[:-1]) / 2, turns[-1:] + 1])
    return _curve(bias, known, right, margin, weight)


def class_weights(target: NDArray[Any]) -> NDArray[np.float64]:
    """Weights of images (N,) with which accuracy is the mean of the accuracies of the classes.

    >>> class_weights(np.array([0, 0, 1])).tolist()
    [0.5, 0.5, 1.0]
    """
    _, row, images = np.unique(target, return_inverse=True, return_counts=True)
    return np.asarray(1 / images[row])


def binned_sweep(
    logits: NDArray[Any],
    target: NDArray[Any],
    seen: NDArray[np.bool_],
    *,
    candidates: NDArray[np.bool_] | None = None,
) -> BiasSweep | None:
    """The sweep of the released code of CGE and CompCos: at about 20 biases and a large one.

    The biases lie just below those at which an unseen image that is right at a large bias becomes
    right: every (n // 20)-th of these n in ascending order. For the arguments see `bias_sweep`.
    """
    known, right, margin = _margins(logits, target, seen, candidates)
    if known.all() or not known.any():
        return None
    goes = np.sort(margin[~known & right])
    bias = np.append((goes - BELOW)[:: max(len(goes) // BINS, 1)], LARGE)
    return _curve(bias, known, right, margin, None)


def predictions_at(
    logits: NDArray[Any],
    seen: NDArray[np.bool_],
    *,
    bias: float,
    candidates: NDArray[np.bool_] | None = None,
) -> NDArray[np.int64]:
    """The predicted classes (N,) with a bias on unseen classes; seen classes win ties."""
    best_seen, best_unseen = _best(logits, seen, candidates)
    moves = _difference(logits, best_seen, best_unseen) < bias
    return np.where(moves, best_unseen, best_seen)


def _margins(
    logits: NDArray[Any],
    target: NDArray[Any],
    seen: NDArray[np.bool_],
    candidates: NDArray[np.bool_] | None,
) -> tuple[NDArray[np.bool_], NDArray[np.bool_], NDArray[np.float64]]:
    """Which images are of seen classes, which are right among classes of their kind, and by how
    much the best seen logit exceeds the best unseen one.
    """
    best_seen, best_unseen = _best(logits, seen, candidates)
    known = seen[target]
    right = np.where(known, best_seen, best_unseen) == target
    return known, right, _difference(logits, best_seen, best_unseen)


def _best(
    logits: NDArray[Any], seen: NDArray[np.bool_], candidates: NDArray[np.bool_] | None
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """The best class of each row among seen and among unseen candidates; -1 if there is none."""
    allowed = np.ones_like(seen) if candidates is None else candidates
    best = []
    for kind in (seen & allowed, ~seen & allowed):
        classes = np.flatnonzero(kind)
        none = np.full(len(logits), -1)
        best.append(classes[logits[:, classes].argmax(1)] if len(classes) else none)
    return best[0], best[1]


def _difference(
    logits: NDArray[Any], best_seen: NDArray[np.int64], best_unseen: NDArray[np.int64]
) -> NDArray[np.float64]:
    rows = np.arange(len(logits))
    first, second = (logits[rows, best].astype(np.float64) for best in (best_seen, best_unseen))
    return np.where(best_seen < 0, -np.inf, np.where(best_unseen < 0, np.inf, first - second))


def _curve(
    bias: NDArray[np.float64],
    known: NDArray[np.bool_],
    right: NDArray[np.bool_],
    margin: NDArray[np.float64],
    weight: NDArray[Any] | None,
) -> BiasSweep:
    """Accuracies at each bias, from the differences of the images that can be right."""
    weight = np.ones(len(margin)) if weight is None else weight
    shares = []
    for kind in (known, ~known):
        order = np.argsort(margin[kind & right])
        moved = np.concatenate([[0.0], np.cumsum(weight[kind & right][order])])
        below = moved[np.searchsorted(margin[kind & right][order], bias, side="left")]
        shares.append((moved[-1] - below if kind is known else below) / weight[kind].sum())
    return BiasSweep(bias, shares[0], shares[1])
