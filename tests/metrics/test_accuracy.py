from __future__ import annotations

import math
import statistics
import subprocess
import sys
import warnings

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from longtail.metrics.accuracy import (
    balanced,
    blocks,
    broken,
    by_group,
    g_mean,
    group_of,
    h_mean,
    hits,
    macro_f1,
    recall,
    top,
    zero_recall,
)
from longtail.records.groups import Groups


def sorted_by_hand(logits: NDArray[np.float64], target: NDArray[np.int64], k: int) -> list[bool]:
    """The slow reference: sort each row's classes by (highest logit, lowest index) and look."""
    return [
        t in sorted(range(len(row)), key=lambda c: (-row[c], c))[:k]
        for row, t in zip(logits.tolist(), target.tolist(), strict=True)
    ]


@pytest.mark.parametrize("k", [1, 2, 5, 7, 100])
@pytest.mark.parametrize("seed", range(4))
def test_hits_equal_sorting_also_with_ties(k: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    logits = rng.integers(0, 4, size=(200, 7)).astype(np.float64)  # few values: most rows have ties
    target = rng.integers(0, 7, size=200)
    expected = sorted_by_hand(logits, target, k)
    assert hits(logits, target, k=k).tolist() == expected
    assert top(logits, target, k) == pytest.approx(sum(expected) / 200)


def test_equal_logits_are_not_all_right() -> None:
    assert top(np.zeros((10, 10)), np.arange(10)) == pytest.approx(0.1)
    assert top(np.zeros((10, 10)), np.arange(10), 5) == pytest.approx(0.5)


def test_k_beyond_the_classes_is_always_right() -> None:
    assert top(np.array([[1.0, 0.0]]), np.array([1]), 5) == 1.0


def test_recall_by_hand() -> None:
    logits = np.eye(4)[[0, 0, 1, 2, 0, 2]]
    recalls = recall(logits, np.array([0, 0, 0, 2, 2, 2]), 4)
    np.testing.assert_allclose(recalls, [2 / 3, math.nan, 2 / 3, math.nan])


def test_recall_weighted_by_images_is_top1() -> None:
    rng = np.random.default_rng(0)
    logits, target = rng.normal(size=(300, 6)), rng.integers(0, 6, size=300)
    recalls = recall(logits, target, 6)
    assert float(recalls @ np.bincount(target, minlength=6)) / 300 == pytest.approx(
        top(logits, target)
    )


def test_balanced_counts_classes_not_images() -> None:
    logits = np.eye(2)[[0] * 99 + [0]]
    target = np.array([0] * 99 + [1])
    assert top(logits, target) == 0.99
    assert balanced(recall(logits, target, 2)) == 0.5


def test_groups_average_classes_that_have_images() -> None:
    groups = Groups("ranks: 2/2/1", {"many": (3, 0), "medium": (1, 2), "few": (4,)})
    assert by_group(np.array([0.5, 0.2, math.nan, 1.0, math.nan]), groups) == {
        "many": 0.75,
        "medium": 0.2,
        "few": None,
    }


def test_a_group_that_fails_everywhere_is_zero_and_not_none() -> None:
    assert by_group(np.array([0.0]), Groups("r", {"few": (0,)})) == {"few": 0.0}


@pytest.mark.parametrize(
    ("logits", "target", "message"),
    [
        (np.zeros((3, 2)), np.zeros(2, dtype=int), "one row for each image"),
        (np.zeros((0, 2)), np.zeros(0, dtype=int), "at least one image"),
        (np.zeros((2, 2)), np.zeros(2), "class indices"),
        (np.zeros((2, 2)), np.array([0, 2]), r"0\.\.1, got 0\.\.2"),
        (np.zeros((2, 2)), np.array([-1, 0]), r"got -1\.\.0"),
        (
            np.array([[0.0, math.nan], [0.0, 0.0]]),
            np.array([1, 0]),
            "NaN or infinity in 1 of 2 rows",
        ),
        (
            np.array([[0.0, math.inf], [0.0, 0.0]]),
            np.array([1, 0]),
            "NaN or infinity in 1 of 2 rows",
        ),
    ],
)
def test_bad_input_is_refused(
    logits: NDArray[np.float64], target: NDArray[np.int64], message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        top(logits, target)


@pytest.mark.parametrize("seed", range(4))
def test_means_of_recalls_equal_their_formulas(seed: int) -> None:
    rng = np.random.default_rng(seed)
    recalls = rng.uniform(0.01, 1, size=9)
    recalls[rng.integers(9)] = math.nan
    defined = [value for value in recalls.tolist() if not math.isnan(value)]
    assert h_mean(recalls) == pytest.approx(statistics.harmonic_mean(defined))
    assert g_mean(recalls) == pytest.approx(math.prod(defined) ** (1 / len(defined)))
    assert h_mean(recalls) <= g_mean(recalls) <= balanced(recalls)  # as of all positive numbers
    assert zero_recall(recalls) == 0


def test_a_class_that_is_never_recognised_makes_means_zero_and_is_counted() -> None:
    recalls = np.array([1.0, 0.0, 0.0, math.nan])
    assert (h_mean(recalls), g_mean(recalls), zero_recall(recalls)) == (0.0, 0.0, 2)


@pytest.mark.parametrize("seed", range(3))
def test_macro_f1_by_hand_and_by_torchmetrics(seed: int) -> None:
    rng = np.random.default_rng(seed)
    # Class 7 is predicted but has no images
    logits, target = (rng.normal(size=(300, 8)), rng.integers(0, 7, size=300))
    predicted = logits.argmax(1).tolist()
    scores = []
    for index in range(7):
        right = sum(a == t == index for a, t in zip(predicted, target.tolist(), strict=True))
        precision, share = (
            right / max(predicted.count(index), 1),
            right / target.tolist().count(index),
        )
        scores.append(2 * precision * share / (precision + share) if right else 0.0)
    assert macro_f1(logits, target) == pytest.approx(sum(scores) / 7)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of its imports
        from torchmetrics.classification import MulticlassF1Score
    theirs = MulticlassF1Score(num_classes=8, average=None)(
        torch.from_numpy(logits), torch.from_numpy(target)
    )
    assert macro_f1(logits, target) == pytest.approx(float(theirs[:7].mean()), abs=1e-6)


def test_groups_and_blocks() -> None:
    assert group_of(Groups("r", {"many": (2,), "few": (0,)}), 4).tolist() == [1, -1, 0, -1]
    logits = np.arange(70).reshape(10, 7)
    parts = list(blocks(logits, 21))
    assert len(parts) == 4
    assert np.array_equal(np.concatenate([block for _, block in parts]), logits)
    assert all(np.array_equal(logits[rows], block) for rows, block in parts)
    assert broken(np.array([[0.0, -math.inf], [-math.inf, -math.inf]])) == 1


def test_other_mistakes_are_refused() -> None:
    for mean in (h_mean, g_mean, zero_recall):
        with pytest.raises(ValueError, match="at least one class"):
            mean(np.array([math.nan]))
    with pytest.raises(ValueError, match="k of at least 1"):
        top(np.zeros((1, 2)), np.array([0]), 0)
    with pytest.raises(ValueError, match="expected 3 logits"):
        recall(np.zeros((1, 2)), np.array([0]), 3)
    with pytest.raises(ValueError, match="at least one class"):
        balanced(np.array([math.nan]))
    with pytest.raises(ValueError, match=r"got classes \[5\]"):
        by_group(np.array([1.0]), Groups("r", {"many": (0, 5)}))


def test_numbers_and_reports_need_no_torch() -> None:
    modules = (
        "metrics.accuracy, longtail.scoring.long_tail, longtail.records.predictions,"
        " longtail.report.comparison, longtail.report.rows"
    )
    code = f"import sys, longtail.{modules}; sys.exit('torch' in sys.modules)"
    assert (
        subprocess.run(
            [sys.executable, "-c", code], env={"PYTHONPATH": ":".join(sys.path)}, check=False
        ).returncode
        == 0
    )
