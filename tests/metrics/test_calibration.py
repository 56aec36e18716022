from __future__ import annotations

import itertools
import warnings
from functools import partial

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from longtail.metrics import calibration
from longtail.metrics.accuracy import blocks, hits
from longtail.metrics.calibration import (
    CONFIDENCES,
    classwise_ece,
    confidence,
    ece,
    mce,
    reliability,
    sigmoid,
    softmax,
)


def guo(sure: NDArray[np.float64], correct: NDArray[np.bool_], bins: int) -> tuple[float, float]:
    """The slow reference: the loop over bins of Guo et al., section 2."""
    edges = np.linspace(0, 1, bins + 1)
    expected, largest = 0.0, 0.0
    for low, high in itertools.pairwise(edges):
        inside = (sure > low) & (sure <= high)
        if inside.any():
            gap = abs(float(correct[inside].mean()) - float(sure[inside].mean()))
            expected += float(inside.mean()) * gap
            largest = max(largest, gap)
    return expected, largest


@pytest.mark.parametrize("bins", [1, 10, 15])
@pytest.mark.parametrize("seed", range(3))
def test_equals_the_slow_reference(bins: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    # The edges too
    sure = np.concatenate([rng.uniform(1e-9, 1, size=400), np.linspace(0, 1, bins + 1)[1:]])
    correct = rng.uniform(size=len(sure)) < sure**2
    assert (ece(sure, correct, bins), mce(sure, correct, bins)) == pytest.approx(
        guo(sure, correct, bins), abs=1e-12
    )


@pytest.mark.parametrize("seed", range(2))
def test_equals_torchmetrics(seed: int) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of its imports
        from torchmetrics.classification import MulticlassCalibrationError

    rng = np.random.default_rng(seed)
    logits, target = 3 * rng.normal(size=(2000, 10)), rng.integers(0, 10, size=2000)
    sure, correct = confidence(logits, "softmax"), hits(logits, target)
    oracle_ece = MulticlassCalibrationError(num_classes=10, n_bins=15, norm="l1")
    oracle_mce = MulticlassCalibrationError(num_classes=10, n_bins=15, norm="max")
    for oracle, ours in ((oracle_ece, ece), (oracle_mce, mce)):
        theirs = oracle(torch.from_numpy(logits).float(), torch.from_numpy(target))
        assert ours(sure, correct) == pytest.approx(float(theirs), abs=2e-6)


def test_an_edge_belongs_to_the_bin_below() -> None:
    sure, correct = np.array([0.5, 0.6]), np.array([True, False])
    # Two bins; one bin would give |0.5 - 0.55|
    assert ece(sure, correct, 2) == pytest.approx(0.5 * 0.5 + 0.5 * 0.6)


def test_a_perfect_and_a_lying_network() -> None:
    ones = np.ones(4)
    assert ece(ones, np.full(4, True)) == mce(ones, np.full(4, True)) == 0
    assert ece(ones, np.full(4, False)) == mce(ones, np.full(4, False)) == 1
    # A confidence of exactly 0 is in the first bin, not lost
    assert ece(np.zeros(4), np.full(4, True)) == 1


def test_probabilities_equal_torch_and_do_not_overflow() -> None:
    logits = np.array([[1e4, 0.0, -1e4], [1.0, 2.0, 3.0]])
    np.testing.assert_allclose(softmax(logits), torch.from_numpy(logits).softmax(1).numpy())
    np.testing.assert_allclose(
        sigmoid(logits), torch.from_numpy(logits).sigmoid().numpy(), atol=1e-15
    )
    np.testing.assert_allclose(confidence(logits, "sigmoid"), [1.0, 1 / (1 + np.exp(-3.0))])


def test_mistakes_are_refused() -> None:
    with pytest.raises(ValueError, match=r"did you mean softmax.*Known: sigmoid, softmax"):
        confidence(np.zeros((1, 2)), "soft-max")
    with pytest.raises(ValueError, match=r"in \[0, 1\], got 2.0..2.0: turn logits"):
        ece(np.array([2.0]), np.array([True]))
    with pytest.raises(ValueError, match="in \\[0, 1\\]"):
        ece(np.array([np.nan]), np.array([True]))
    with pytest.raises(ValueError, match="at least 1 bin"):
        ece(np.array([0.5]), np.array([True]), 0)
    with pytest.raises(ValueError, match="one confidence and one correct"):
        mce(np.array([0.5]), np.array([True, False]))
    with pytest.raises(ValueError, match="one confidence and one correct"):
        mce(np.array([]), np.array([]))
    with pytest.raises(ValueError, match="at least 1 bin"):
        classwise_ece(np.zeros((1, 2)), np.array([0]), bins=0)
    with pytest.raises(ValueError, match="unknown confidence"):
        classwise_ece(np.zeros((1, 2)), np.array([0]), confidence="soft")


@pytest.mark.parametrize("seed", range(3))
def test_a_reliability_diagram_equals_looking_into_each_bin(seed: int) -> None:
    rng = np.random.default_rng(seed)
    sure = np.concatenate([rng.uniform(0.3, 1, size=200), np.linspace(0, 1, 11)])
    correct = rng.uniform(size=len(sure)) < sure
    diagram = reliability(sure, correct, bins=10)
    for index, (low, high) in enumerate(itertools.pairwise(np.linspace(0, 1, 11))):
        inside = [
            i for i, value in enumerate(sure) if low < value <= high or (index == 0 and value == 0)
        ]
        assert diagram["images"][index] == len(inside)
        if inside:
            assert diagram["confidence"][index] == pytest.approx(
                sum(sure[i] for i in inside) / len(inside)
            )
            assert diagram["accuracy"][index] == pytest.approx(
                sum(bool(correct[i]) for i in inside) / len(inside)
            )
    assert (diagram["ece"], diagram["mce"]) == (ece(sure, correct, 10), mce(sure, correct, 10))
    alone = reliability(np.array([0.95]), np.array([True]), bins=10)
    assert alone["confidence"][:9] == alone["accuracy"][:9] == [None] * 9


@pytest.mark.parametrize("name", ["softmax", "sigmoid"])
@pytest.mark.parametrize("seed", range(2))
def test_class_wise_calibration_equals_the_slow_reference(
    name: str, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    rng = np.random.default_rng(seed)
    # Class 4 has no images
    logits, target = (2 * rng.normal(size=(120, 5)), rng.integers(0, 4, size=120))
    probabilities = CONFIDENCES[name](logits)
    expected = []
    for index in range(5):
        total = 0.0
        for low, high in itertools.pairwise(np.linspace(0, 1, 8)):
            inside = [i for i in range(120) if low < probabilities[i, index] <= high]
            share = sum(target[i] == index for i in inside)
            total += abs(share - sum(probabilities[i, index] for i in inside)) / 120
        expected.append(total)
    assert classwise_ece(logits, target, confidence=name, bins=7) == pytest.approx(
        expected, abs=1e-12
    )
    monkeypatch.setattr(calibration, "blocks", partial(blocks, entries=33))  # in small pieces
    assert classwise_ece(logits, target, confidence=name, bins=7) == pytest.approx(
        expected, abs=1e-12
    )
    assert confidence(logits, name) == pytest.approx(probabilities.max(axis=1))


def test_a_network_that_says_the_prior_is_calibrated_for_every_class() -> None:
    target = np.repeat(np.arange(3), [70, 20, 10])
    logits = np.tile(np.log([0.7, 0.2, 0.1]), (100, 1))
    assert classwise_ece(logits, target) == pytest.approx([0, 0, 0], abs=1e-12)
