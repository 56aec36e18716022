from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import torch

from longtail.metrics.conformal import Thresholds
from longtail.runs.predictions import read_thresholds, to_predictions

LOGITS = torch.tensor([[0.7, 0.2, 0.1], [0.45, 0.45, 0.1], [0.1, 0.3, 0.6]]).log()
ABC = ("a", "b", "c")


def test_the_best_come_first_and_ties_keep_their_order() -> None:
    predictions = to_predictions(LOGITS, classes=ABC, thresholds=None, abstain_below=None)
    assert predictions.labels == ("a", "a", "c")
    assert [[name for name, _ in row] for row in predictions.top(2)] == [
        ["a", "b"],
        ["a", "b"],
        ["c", "b"],
    ]
    assert len(predictions.top(9)[0]) == 3
    assert predictions.abstain == (False, False, False)
    assert predictions.sets is None
    assert predictions.level is None
    assert torch.allclose(predictions.probabilities.sum(1), torch.ones(3))
    with pytest.raises(ValueError, match="at least one class"):
        predictions.top(0)


def test_it_abstains_where_the_set_has_not_one_class_or_the_probability_is_low() -> None:
    thresholds = Thresholds(0.9, np.array([0.4, 0.6, 0.3]), {}, 9)
    predictions = to_predictions(LOGITS, classes=ABC, thresholds=thresholds, abstain_below=None)
    # 1 - 0.45 is more than 0.4; 1 - 0.6 is more than 0.3
    assert predictions.sets == (("a",), ("b",), ())
    assert predictions.abstain == (False, False, True)
    assert to_predictions(
        LOGITS, classes=ABC, thresholds=thresholds, abstain_below=0.5
    ).abstain == (False, True, True)
    assert to_predictions(LOGITS, classes=ABC, thresholds=None, abstain_below=0.65).abstain == (
        False,
        True,
        True,
    )
    records = json.loads(json.dumps(predictions.records(2)))
    assert records[0] == {
        "class": "a",
        "probability": 0.7,
        "abstain": False,
        "set": ["a"],
        "level": 0.9,
        "top": [{"class": "a", "probability": 0.7}, {"class": "b", "probability": 0.2}],
    }


def test_what_is_no_answer_is_refused() -> None:
    for bound in (-0.1, 1.1):
        with pytest.raises(ValueError, match="probability in"):
            to_predictions(LOGITS, classes=ABC, thresholds=None, abstain_below=bound)
    with pytest.raises(ValueError, match="finite"):
        to_predictions(LOGITS * torch.nan, classes=ABC, thresholds=None, abstain_below=None)
    with pytest.raises(ValueError, match="classifier of 2 classes"):
        to_predictions(LOGITS, classes=("a", "b"), thresholds=None, abstain_below=None)


def test_thresholds_come_from_their_file(tmp_path: Path) -> None:
    path = tmp_path / "conformal.json"
    assert read_thresholds(path, classes=2) is None
    path.write_text(
        json.dumps(
            {"format": 1, "level": 0.8, "score": "1 - softmax probability", "thresholds": [0.5, 1]}
        )
    )
    thresholds = read_thresholds(path, classes=2)
    assert thresholds is not None
    assert (thresholds.level, thresholds.values.tolist()) == (0.8, [0.5, 1.0])
    complete = path.read_text()
    for content in (
        "",
        "[]",
        "{}",
        '{"format": 1}',
        complete.replace("softmax", "sigmoid"),
        complete.replace('"format": 1', '"format": 3'),
    ):
        path.write_text(content)
        with pytest.raises(ValueError, match="expected"):
            read_thresholds(path, classes=2)
    path.write_text(
        json.dumps(
            {"format": 1, "level": 0.8, "score": "1 - softmax probability", "thresholds": [0.5]}
        )
    )
    with pytest.raises(ValueError, match="expected 2 thresholds"):
        read_thresholds(path, classes=2)
