"""Zero-shot models predict at the bias of the best H on validation, which is on their row."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
import zero_shot_files

from longtail.data.open import open_data
from longtail.nn import Classifier, Linear, build
from longtail.records.predictions import SplitPredictions, read_predictions
from longtail.records.row import read_row
from longtail.runs import evaluate, load, train
from longtail.runs.operating_point import (
    bias_of,
    choose_bias,
    map_logits,
    shift_predictions,
    with_bias,
)
from longtail.scoring.long_tail import LongTailScorer
from longtail.scoring.zero_shot import ZeroShotScorer

SEEN = np.array([True, True, False])


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return zero_shot_files.write(tmp_path_factory.mktemp("mat"))


@pytest.fixture(scope="module")
def run(folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("runs") / "run"
    train("cross_entropy", folder, out, network="vectors", epochs=10, batch=16, threads=1, ema=0.0)
    return out


def classifier() -> Classifier:
    return Classifier(build({"name": "vectors", "size": 4}), Linear(4, 3)).eval()


def predictions(logits: list[list[float]], target: list[int]) -> SplitPredictions:
    values = np.array(logits, dtype=np.float32)
    return SplitPredictions({"logits": values}, np.array(target), np.arange(len(target)))


def test_the_bias_shifts_unseen_classes_alone_and_replaces_another() -> None:
    network, image = classifier(), torch.rand(2, 4)
    shifted = with_bias(with_bias(network, SEEN, 5.0), SEEN, 1.5)
    expected = network(image) + torch.tensor([0.0, 0.0, 1.5])
    assert torch.allclose(shifted(image), expected, atol=1e-6)
    assert bias_of(shifted, SEEN) == 1.5
    assert bias_of(network, SEEN) == 0.0
    rebuilt = build(shifted.spec)
    rebuilt.load_state_dict(shifted.state_dict())
    assert torch.equal(rebuilt.eval()(image), shifted(image))


def test_validation_chooses_the_bias_of_the_best_harmonic_mean() -> None:
    val = predictions([[3.0, 0, 0], [0, 3.0, 0], [2.0, 0, 1.0]], [0, 1, 2])
    point = choose_bias(ZeroShotScorer(SEEN), classifier(), {"val": val})
    assert point == {"bias": 2.0, "chosen_on": "validation", "harmonic_mean": 1.0}
    shifted = shift_predictions({"val": val}, SEEN, 2.0)["val"]
    assert shifted.logits["logits"].argmax(1).tolist() == [0, 1, 2]


def test_a_function_maps_the_logits_of_every_head() -> None:
    val = predictions([[3.0, 0, 0]], [0])
    two = replace(val, logits={"logits": val.logits["logits"], "cls": val.logits["logits"] + 1})
    mapped = map_logits({"val": two}, lambda logits: 2 * logits)["val"]
    assert mapped.logits["logits"].tolist() == [[6.0, 0, 0]]
    assert mapped.logits["cls"].tolist() == [[8.0, 2.0, 2.0]]


def test_without_a_choice_the_bias_of_the_recipe_stays() -> None:
    scorer, seen_only = ZeroShotScorer(SEEN), predictions([[3.0, 0, 0]], [0])
    never = predictions([[3.0, 0, 0], [0, 3.0, -9.0]], [0, 1])
    for split in ({}, {"val": seen_only}, {"val": never}):
        point = choose_bias(scorer, with_bias(classifier(), SEEN, 0.5), split)
        assert point == {"bias": 0.5, "chosen_on": "recipe", "harmonic_mean": None}
    point = choose_bias(scorer, classifier(), {})
    assert point is not None
    assert point["chosen_on"] == "nothing"
    assert choose_bias(None, classifier(), {}) is None
    groups = open_data("digits-lt").groups
    assert choose_bias(LongTailScorer(groups), classifier(), {}) is None


def test_row_predictions_and_model_agree_on_the_bias(run: Path, folder: Path) -> None:
    row, data, loaded = read_row(run), open_data(folder), load(run, device="cpu")
    point = row["operating_point"]
    assert point["chosen_on"] == "validation"
    assert row["val"] is not None
    assert point["val"] is not None
    assert row["val"]["scores"]["h"] == pytest.approx(point["harmonic_mean"])
    assert row["val"]["scores"]["h"] > (point["val"]["scores"]["h"] or 0.0)  # type: ignore[operator]
    vectors = data.test.inputs.vectors()
    assert vectors is not None
    stored, _ = read_predictions(run / "predictions" / "test.npz")
    assert np.allclose(loaded.logits(vectors).numpy(), stored.logits["logits"], atol=1e-5)
    repeated = evaluate(run, device="cpu", threads=1)
    assert repeated["test"] is not None
    assert row["test"] is not None
    assert repeated["test"]["scores"] == pytest.approx(row["test"]["scores"])


def test_the_report_states_the_bias_and_shows_unseen_classes_that_fail(run: Path) -> None:
    page = (run / "report.html").read_text(encoding="utf-8")
    point = read_row(run)["operating_point"]
    assert point["test"] is not None
    groups = point["test"]["groups"].items()
    before = {name: f"{100 * (value or 0.0):.1f}%" for name, value in groups}
    assert (
        f"{point['bias']:+.2f} is added to the logits of unseen classes, chosen on validation;"
        f" without, the accuracy is {before['seen']} on seen classes and"
        f" {before['unseen']} on unseen classes."
    ) in page
    assert "unseen" in page
    test = read_row(run)["test"]
    assert test is not None
    assert any(worst["group"] == "unseen" for worst in test["worst"])
