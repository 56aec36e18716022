"""Results of a trained method: scores, adjustment, and the best epoch of the kept weights."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from finished import QUICK
from recipe_sources import RECIPES

from longtail.core import NonFinite
from longtail.posthoc import adjustment
from longtail.records.predictions import read_predictions
from longtail.records.scores import Headline
from longtail.runs import evaluate, results, train


def test_an_adjusted_run_differs_from_the_plain_one_by_its_adjustment_only(
    adjusted: Path, tmp_path: Path
) -> None:
    train("ride", "digits-lt", tmp_path / "plain", **QUICK)
    plain, row = (
        json.loads((folder / "row.json").read_text()) for folder in (tmp_path / "plain", adjusted)
    )
    assert row["selection"] == f"{plain['selection']}, adjusted on validation"
    assert row["parameters"] == plain["parameters"]
    for split in ("val", "test"):
        assert row["adjustment"][split]["recall"] == plain[split]["recall"]
        assert row["adjustment"][split]["ece"] == plain[split]["ece"]
        before, _ = read_predictions(tmp_path / "plain" / "predictions" / f"{split}.npz")
        after, _ = read_predictions(adjusted / "predictions" / f"{split}.npz")
        if split == "val":
            chosen = adjustment(
                before.logits["logits"], before.target, np.array(row["data"]["counts_after"])
            )
            assert (chosen.tau, chosen.temperature) == (
                row["adjustment"]["tau"],
                row["adjustment"]["temperature"],
            )
        assert set(after.logits) == {"logits", "expert1", "expert2", "expert3"}
        for head, logits in before.logits.items():
            assert np.array_equal(chosen(logits), after.logits[head])
    assert "adjustment" not in plain


def test_the_best_epoch_is_that_of_the_weights_that_were_kept(tmp_path: Path) -> None:
    row: Any = train(
        "cross_entropy",
        "digits-lt",
        tmp_path / "run",
        **{**QUICK, "epochs": 4},
        keep="best",
        lr=0.5,
    ).row
    lines = [
        json.loads(line)
        for line in (tmp_path / "run" / "train" / "journal.jsonl").read_text().splitlines()
    ]
    scores = {
        line["epoch"]: line["ema/val/balanced"] for line in lines if "ema/val/balanced" in line
    }
    best = min(scores, key=lambda epoch: (-scores[epoch], epoch))
    assert row["best_validation"] == {"epoch": best, "value": scores[best]}
    assert row["val"]["balanced"] == pytest.approx(scores[best])
    history = [
        {
            "name": "train",
            "keep": "best ema/val/balanced",
            "best": {"metric": "ema/val/balanced", "epoch": 3, "value": 0.65},
        }
    ]
    (tmp_path / "train").mkdir()
    (tmp_path / "train" / "journal.jsonl").write_text('{"epoch": 1, "val/balanced": 0.7}\n')
    headline: Headline = {"name": "balanced", "higher_is_better": True}
    assert results._best(tmp_path, history, headline) == {
        "epoch": 3,
        "value": 0.65,
    }, "not that of the raw weights"


def test_a_network_of_a_binary_loss_is_evaluated_by_its_sigmoid(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "binary_recipes.py").write_text(RECIPES)
    monkeypatch.syspath_prepend(str(tmp_path))
    result = train("binary_recipes:binary", "digits-lt", tmp_path / "run", device="cpu", threads=1)
    assert result.row is not None
    for summary in (result.row["val"], result.row["test"]):
        assert summary is not None
        assert summary["confidence"] == "sigmoid"
        assert (
            summary["ece"]
            == summary["calibration"]["sigmoid"]["ece"]
            != summary["calibration"]["softmax"]["ece"]
        )
    row = json.loads((tmp_path / "run" / "row.json").read_text())
    evaluate(tmp_path / "run", rewrite=True, device="cpu", threads=1)
    repeated = json.loads((tmp_path / "run" / "row.json").read_text())
    assert repeated["test"]["confidence"] == "sigmoid"
    assert repeated["test"] == row["test"]
    card = (tmp_path / "run" / "model" / "README.md").read_text(encoding="utf-8")
    assert (
        "(by sigmoid; by softmax, as probabilities are given,"
        f" {row['test']['calibration']['softmax']['ece']:.3f})" in card
    )


def test_nonfinite_predictions_end_a_run_as_diverged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "our_diverging_recipes.py").write_text(RECIPES)
    monkeypatch.syspath_prepend(str(tmp_path))
    with pytest.raises(NonFinite, match="training diverged"):
        train(
            "our_diverging_recipes:diverging",
            "digits-lt",
            tmp_path / "run",
            device="cpu",
            threads=1,
        )
    assert not (tmp_path / "run" / "row.json").exists()
