"""Adjust the logits of a model from any framework so that rare classes are predicted as often as
they occur.

    python examples/adjust_logits.py

You need logits and labels of validation images, and how many training images each class had.
Nothing is trained: tau and a temperature are chosen on validation (Menon et al., ICLR 2021,
equation 9).
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from longtail.metrics.accuracy import balanced, recall
from longtail.metrics.calibration import confidence, ece
from longtail.posthoc import adjustment

COUNTS = np.array([900, 300, 90, 30])
"""Training images of each class."""


def logits_of_another_framework(
    images: int, *, seed: int
) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
    """Logits and labels in place of `numpy.load("yours.npz")`; they favour frequent classes."""
    rng = np.random.default_rng(seed)
    target = rng.integers(len(COUNTS), size=images)
    logits = 3.0 * (2.0 * np.eye(len(COUNTS))[target] + rng.normal(size=(images, len(COUNTS))))
    return (logits + 2.0 * np.log(COUNTS / COUNTS.sum())).astype(np.float32), target


def main() -> tuple[float, float]:
    """Print and return balanced accuracy on test images before and after."""
    val_logits, val_target = logits_of_another_framework(400, seed=0)
    test_logits, test_target = logits_of_another_framework(4000, seed=1)

    adjust = adjustment(val_logits, val_target, COUNTS)  # chooses on validation
    print(f"tau {adjust.tau:g}, temperature {adjust.temperature:.2f}")

    scores = []
    for name, logits in (("before", test_logits), ("after", adjust(test_logits))):
        score = balanced(recall(logits, test_target, len(COUNTS)))
        correct = logits.argmax(1) == test_target
        error = ece(confidence(logits, "softmax"), correct, 15)
        print(f"{name:6}: balanced accuracy {score:.1%}, calibration error {error:.3f}")
        scores.append(score)
    return scores[0], scores[1]


if __name__ == "__main__":
    main()
