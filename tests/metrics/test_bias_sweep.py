"""The sweep against a slow one, which predicts every image again at every bias."""

import itertools
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from longtail.metrics.bias_sweep import bias_sweep, binned_sweep, predictions_at

Array = NDArray[Any]


def random_case(seed: int) -> tuple[Array, Array, Array, Array]:
    """Logits with ties, targets, which classes are seen, and which are candidates."""
    generator = np.random.default_rng(seed)
    classes, images = int(generator.integers(4, 15)), int(generator.integers(10, 120))
    seen = np.arange(classes) < generator.integers(1, classes)
    generator.shuffle(seen)
    target = generator.integers(0, classes, images)
    target[:2] = seen.argmax(), seen.argmin()  # at least one image of each kind
    logits = generator.normal(size=(images, classes)).astype(np.float32)
    logits[np.arange(images), target] += 1.0
    if seed % 2:
        logits = np.round(logits, 1)
    candidates = seen.copy()
    candidates[target] = True
    return logits, target, seen, candidates


def accuracies(
    logits: Array, target: Array, seen: Array, candidates: Array, bias: float
) -> tuple[float, float]:
    """Accuracy over seen and unseen images, image by image; of equal logits a seen one wins."""
    hits: dict[bool, list[bool]] = {True: [], False: []}
    for row, label in zip(logits.astype(np.float64), target.tolist(), strict=True):
        scored = [
            (value + (0.0 if seen[number] else bias), seen[number], -number)
            for number, value in enumerate(row.tolist())
            if candidates[number]
        ]
        hits[bool(seen[label])].append(-max(scored)[2] == label)
    return float(np.mean(hits[True])), float(np.mean(hits[False]))


def area(points: list[tuple[float, float]]) -> float:
    return sum(
        (first[0] + second[0]) / 2 * (second[1] - first[1])
        for first, second in itertools.pairwise(points)
    )


@pytest.mark.parametrize("seed", range(12))
def test_the_exact_sweep_equals_a_slow_one(seed: int) -> None:
    logits, target, seen, candidates = random_case(seed)
    sweep = bias_sweep(logits, target, seen, candidates=candidates)
    assert sweep is not None
    wide = logits.astype(np.float64)
    turns = sorted(
        {
            float(row[seen & candidates].max() - row[~seen & candidates].max())
            for row in wide  # every image, also those that are never right
        }
    )
    tried = [turns[0] - 5, *((a + b) / 2 for a, b in itertools.pairwise(turns))]
    points = [
        accuracies(logits, target, seen, candidates, bias) for bias in [*tried, turns[-1] + 5]
    ]
    harmonic = [2 * s * u / (s + u) if s + u else 0.0 for s, u in points]
    assert sweep.auc == pytest.approx(area(points), abs=1e-9)
    assert sweep.hm == pytest.approx(max(harmonic), abs=1e-9)
    assert sweep.seen.max() == pytest.approx(max(s for s, _ in points), abs=1e-9)
    assert sweep.unseen.max() == pytest.approx(max(u for _, u in points), abs=1e-9)
    s, u = accuracies(logits, target, seen, candidates, sweep.best_bias)
    assert 2 * s * u / (s + u) == pytest.approx(max(harmonic), abs=1e-9)


@pytest.mark.parametrize("seed", range(12))
def test_twenty_biases_equal_those_of_the_released_protocol(seed: int) -> None:
    logits, target, seen, candidates = random_case(seed)
    sweep = binned_sweep(logits, target, seen, candidates=candidates)
    assert sweep is not None
    wide = np.where(candidates, logits.astype(np.float64), -1e10)
    differences = []
    for row, label in zip(wide, target.tolist(), strict=True):
        if not seen[label] and (row + 1e3 * ~seen).argmax() == label:
            differences.append(row[seen].max() - row[label] - 1e-4)
    biases = [*sorted(differences)[:: max(len(differences) // 20, 1)], 1000.0]
    points = [accuracies(logits, target, seen, candidates, bias) for bias in biases]
    assert len(sweep.bias) == len(biases)
    assert sweep.auc == pytest.approx(area(points), abs=1e-9)


def test_predictions_at_a_bias() -> None:
    logits = np.array([[1.0, 0.5, 0.0], [1.0, 0.0, 0.9]])
    seen = np.array([True, False, False])
    assert predictions_at(logits, seen, bias=0.0).tolist() == [0, 0]
    assert predictions_at(logits, seen, bias=0.2).tolist() == [0, 2]
    assert predictions_at(logits, seen, bias=9.0).tolist() == [1, 2]
    only = np.array([True, True, False])
    assert predictions_at(logits, seen, bias=9.0, candidates=only).tolist() == [1, 1]


def test_without_seen_or_unseen_images_there_is_no_sweep() -> None:
    logits, seen = np.eye(2), np.array([True, False])
    assert bias_sweep(logits, np.array([0, 0]), seen) is None
    assert binned_sweep(logits, np.array([1, 1]), seen) is None
