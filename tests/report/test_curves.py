"""Curves are those of the journal."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from longtail.report.curves import curves, judged_prefix, over_epochs
from longtail.report.folders import read_folder

Finished = Callable[..., Path]


def test_curves_have_every_term_the_groups_and_the_rate(finished: Finished) -> None:
    folder = finished("a")
    words = "\n".join(curves(read_folder(folder), "train"))
    for text in (
        "class goes from 2 to 0.5",
        "teacher goes from 0.5 to 0.5",
        "few goes from 10 to 40",
        "rate goes from 0.1 to 0.025",
    ):
        assert text in words
    with (folder / "train" / "journal.jsonl").open("a") as file:
        line = {
            "kind": "epoch",
            "epoch": 5,
            "step": 50,
            "notes/distance": 0.2,
            "val/cls/balanced": 0.5,
            "terms/class": float("nan"),
        }
        file.write(json.dumps(line) + "\n")
    words = "\n".join(curves(read_folder(folder), "train"))
    assert "Note: distance" in words
    assert "cls goes from 50 to 50" in words
    (folder / "train" / "journal.jsonl").write_text("")
    assert curves(read_folder(folder), "train") == []


@pytest.mark.parametrize(
    "selection", ["last epoch, ema, adjusted on validation", "best ema/val/balanced"]
)
def test_the_weights_that_were_kept_are_shown(finished: Finished, selection: str) -> None:
    folder = finished("a", selection=selection)
    assert judged_prefix(read_folder(folder), "train") == ""
    with (folder / "train" / "journal.jsonl").open("a") as file:
        file.write(
            json.dumps({"kind": "epoch", "epoch": 5, "step": 50, "ema/val/balanced": 0.9}) + "\n"
        )
    assert judged_prefix(read_folder(folder), "train") == "ema/"


def test_numbers_over_epochs_are_of_the_last_stage_and_the_loss_is_the_sum_of_its_terms(
    finished: Finished,
) -> None:
    folder = finished("a", epochs={"pretrain": 1, "train": 4})
    run = read_folder(folder)
    assert over_epochs(run, "val/few") == {1.0: 0.1, 2.0: 0.3, 3.0: 0.4, 4.0: 0.4}
    assert over_epochs(run, "loss") == {
        epoch: pytest.approx(2.0 / epoch + 0.5) for epoch in (1.0, 2.0, 3.0, 4.0)
    }
    (folder / "train" / "journal.jsonl").unlink()
    assert over_epochs(read_folder(folder), "loss") == {}
