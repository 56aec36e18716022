"""Curves show what the journals of a run say."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from longtail.records.scores import label
from longtail.report import curves
from longtail.report.folders import read_folder

from .test_svg import tree

Finished = Callable[..., Path]


def test_curves_have_every_term_the_groups_and_the_rate(finished: Finished) -> None:
    folder = finished("a")
    words = "\n".join(curves.training_curves(read_folder(folder), "train"))
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
    words = "\n".join(curves.training_curves(read_folder(folder), "train"))
    assert "Note: distance" in words
    assert "cls goes from 50 to 50" in words
    (folder / "train" / "journal.jsonl").write_text("")
    assert curves.training_curves(read_folder(folder), "train") == []


@pytest.mark.parametrize(
    "selection", ["last epoch, ema, adjusted on validation", "best ema/val/balanced"]
)
def test_the_weights_that_were_selected_are_shown(finished: Finished, selection: str) -> None:
    folder = finished("a", selection=selection)
    assert curves.metric_prefix(read_folder(folder), "train") == ""
    with (folder / "train" / "journal.jsonl").open("a") as file:
        line = {"kind": "epoch", "epoch": 5, "step": 50, "ema/val/balanced": 0.9}
        file.write(json.dumps(line) + "\n")
    assert curves.metric_prefix(read_folder(folder), "train") == "ema/"


def test_a_headline_that_is_no_share_is_plotted_as_it_is(finished: Finished) -> None:
    labels = {"nll": label("NLL", format="plain"), "few": label("few"), "top1": label("overall")}
    headline = {"name": "nll", "higher_is_better": False}
    folder = finished("a", headline=headline, labels=labels)
    line = {"kind": "epoch", "epoch": 1, "step": 5, "val/nll": 2.5, "val/few": 0.5, "val/top1": 0.9}
    line |= {"val/cls/nll": 1.5}
    (folder / "train" / "journal.jsonl").write_text(json.dumps(line) + "\n")
    shown = curves.training_curves(read_folder(folder), "train")
    assert [tree(plot).findtext("desc") for plot in shown] == [
        "NLL over epoch: NLL goes from 2.5 to 2.5.",
        "validation accuracy, % over epoch: few goes from 50 to 50.",
        "NLL over epoch: cls goes from 1.5 to 1.5.",
    ]


def test_numbers_by_epoch_are_of_the_last_stage_and_the_loss_is_the_sum_of_its_terms(
    finished: Finished,
) -> None:
    folder = finished("a", epochs={"pretrain": 1, "train": 4})
    run = read_folder(folder)
    assert curves.metric_by_epoch(run, "val/few") == {1.0: 0.1, 2.0: 0.3, 3.0: 0.4, 4.0: 0.4}
    assert curves.metric_by_epoch(run, "loss") == {
        epoch: pytest.approx(2.0 / epoch + 0.5) for epoch in (1.0, 2.0, 3.0, 4.0)
    }
    (folder / "train" / "journal.jsonl").unlink()
    assert curves.metric_by_epoch(read_folder(folder), "loss") == {}
