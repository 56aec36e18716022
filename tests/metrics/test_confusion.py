from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray

from longtail.metrics.confusion import between_groups, most_confused
from longtail.records.groups import Groups

GROUPS = Groups("ranks: 2/2/2", {"many": (0, 1), "medium": (4, 3), "few": (2, 5)})


def sampled(seed: int) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
    rng = np.random.default_rng(seed)
    target = rng.integers(0, 5, size=60)  # class 5 has no images
    return (
        np.eye(6)[rng.integers(0, 6, size=60)]
        + 0.8 * np.eye(6)[target] * rng.integers(0, 3, size=(60, 1)),
        target,
    )


@pytest.mark.parametrize("seed", range(5))
def test_confused_classes_equal_counting_by_hand(seed: int) -> None:
    logits, target = sampled(seed)
    predicted = [row.index(max(row)) for row in logits.tolist()]
    by, share = most_confused(logits, target)
    for index in range(6):
        predictions = [a for a, t in zip(predicted, target.tolist(), strict=True) if t == index]
        lost = {
            other: predictions.count(other)
            for other in range(6)
            if other != index and other in predictions
        }
        if not predictions:
            assert (by[index], np.isnan(share[index])) == (-1, True)
        elif not lost:
            assert (by[index], share[index]) == (-1, 0)
        else:
            most = max(lost.values())
            assert by[index] == min(other for other, number in lost.items() if number == most)
            assert share[index] == pytest.approx(most / len(predictions))


@pytest.mark.parametrize("seed", range(3))
def test_groups_take_images_as_counted_by_hand(seed: int) -> None:
    logits, target = sampled(seed)
    confusions = between_groups(logits, target, groups=GROUPS)
    predicted = [row.index(max(row)) for row in logits.tolist()]
    pairs = list(zip(target.tolist(), predicted, strict=True))
    for row, members in enumerate(GROUPS.members.values()):
        assert confusions["correct"][row] == sum(t == a and t in members for t, a in pairs)
        for column, others in enumerate(GROUPS.members.values()):
            assert confusions["matrix"][row][column] == sum(
                t in members and a in others for t, a in pairs
            )
    assert sum(map(sum, confusions["matrix"])) == 60
    assert confusions["groups"] == ["many", "medium", "few"]


def test_the_head_that_eats_the_tail_is_named() -> None:
    by, share = most_confused(np.eye(3)[[0, 0, 0, 1, 2]], np.array([2, 2, 2, 2, 2]))
    assert by.tolist() == [-1, -1, 0]
    assert share[2] == pytest.approx(0.6)


def test_mistakes_are_refused() -> None:
    with pytest.raises(ValueError, match="at least one image"):
        most_confused(np.zeros((0, 2)), np.zeros(0, dtype=int))
    with pytest.raises(ValueError, match=r"got classes \[2, 3, 4, 5\]"):
        between_groups(np.zeros((1, 2)), np.array([0]), groups=GROUPS)
