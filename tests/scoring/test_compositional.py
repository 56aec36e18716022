import numpy as np
import pytest

from longtail.records.predictions import SplitPredictions
from longtail.scoring.compositional import CompositionalScorer
from longtail.scoring.scorer import score

ATTRIBUTE, OBJECT = np.array([0, 0, 1, 1]), np.array([0, 1, 0, 1])
SEEN = np.array([True, True, True, False])


def predictions(logits: list[list[float]], target: list[int]) -> SplitPredictions:
    array = np.array(logits, dtype=np.float32)
    return SplitPredictions({"logits": array}, np.array(target), np.arange(len(target)))


def test_scores_by_hand() -> None:
    scorer = CompositionalScorer(SEEN, ATTRIBUTE, OBJECT)
    scores = score(
        scorer,
        predictions([[3, 0, 0, 1], [0, 2, 0, 1], [0, 5, 4, 4]], [0, 3, 2]),
    )
    # Seen images: the first is right until the bias is 2, the third never (1 beats 2).
    assert scores["auc"] == pytest.approx(0.5)
    assert scores["hm"] == pytest.approx(2 * 0.5 * 1 / 1.5)
    assert (scores["best_seen"], scores["best_unseen"]) == (0.5, 1.0)
    # Unbiased predictions are 0, 1 and 1, those of a large bias all 3.
    assert scores["attribute"] == pytest.approx(1 / 3)
    assert scores["object"] == pytest.approx(2 / 3)
    assert scores["attribute_biased"] == pytest.approx(2 / 3)
    assert scores["object_biased"] == pytest.approx(1 / 3)


def test_a_pair_of_another_split_is_a_candidate_in_the_open_world_only() -> None:
    seen = np.array([True, False, True, False])
    logits = [[3.0, 9.0, 0.0, 1.0], [0.0, 9.0, 0.0, 1.0]]
    closed, opened = (
        score(
            CompositionalScorer(seen, ATTRIBUTE, OBJECT, candidates),
            predictions(logits, [0, 3]),
        )
        for candidates in ("closed", "open")
    )
    assert closed["best_unseen"] == 1.0
    assert opened["best_unseen"] == 0.0


def test_without_unseen_images_only_the_parts_are_scored() -> None:
    scores = score(CompositionalScorer(SEEN, ATTRIBUTE, OBJECT), predictions([[3, 0, 0, 1]], [0]))
    assert scores["auc"] is None
    assert scores["attribute_biased"] is None
    assert scores["attribute"] == 1.0
