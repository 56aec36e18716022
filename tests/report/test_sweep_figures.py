"""Figures of sweeps show the means of their runs."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from longtail.records.row import read_row
from longtail.report import sweep_figures
from longtail.report.charts import chart
from longtail.report.rows import read_rows

Finished = Callable[..., Path]


def judged(folder: Path, accuracies: Sequence[float], losses: Sequence[float]) -> Path:
    """Give a run a journal with these numbers, the loss in two terms."""
    lines = [
        {
            "kind": "epoch",
            "epoch": epoch,
            "step": 10 * epoch,
            "val/balanced": accuracy,
            "val/top1": 1 - accuracy,
            "terms/a": loss - 1,
            "terms/b": 1.0,
        }
        for epoch, (accuracy, loss) in enumerate(zip(accuracies, losses, strict=True), 1)
    ]
    (folder / "train" / "journal.jsonl").write_text(
        "".join(json.dumps(line) + "\n" for line in lines)
    )
    return folder


def test_seeds_are_averaged_over_a_keyword(finished: Finished) -> None:
    made = [
        finished(str(n), draw=n, keywords={"tau": tau}) for n, tau in enumerate((1.0, 0.0, 1.0))
    ]
    rows = read_rows(made)
    few = [row["test"]["groups"]["few"] for row in rows if row["test"] is not None]
    errors = [row["test"]["ece"] for row in rows if row["test"] is not None]
    lines: Any = sweep_figures.over_keyword(rows, "tau")
    assert set(lines) == {"overall", "many", "medium", "few"}
    assert lines["few"] == [
        (0.0, pytest.approx(100 * (few[1] or 0))),
        (1.0, pytest.approx(50 * ((few[0] or 0) + (few[2] or 0)))),
    ]
    calibration: Any = sweep_figures.calibration(rows, "tau")
    assert calibration == {
        "softmax": [(0.0, errors[1]), (1.0, pytest.approx((errors[0] + errors[2]) / 2))]
    }


def test_groups_without_classes_are_left_out_and_runs_without_test_images_refused(
    finished: Finished,
) -> None:
    row = read_row(finished("a", keywords={"tau": 1.0}))
    assert row["test"] is not None
    row["test"]["groups"]["few"] = None
    assert "few" not in sweep_figures.over_keyword([row], "tau")
    row["test"] = None
    with pytest.raises(ValueError, match=r"expected runs with test images, got none in .*a"):
        sweep_figures.over_keyword([row], "tau")


def test_a_sweep_over_epochs_draws_accuracy_and_loss(finished: Finished, tmp_path: Path) -> None:
    made = [
        judged(finished(str(n), keywords={"loss": loss}), accuracies, losses)
        for n, (loss, accuracies, losses) in enumerate(
            [
                ("bce", (0.1, 0.3), (4.0, 2.0)),
                ("bce", (0.3, 0.5), (6.0, 3.0)),
                ("ce", (0.2,), (2.0,)),
            ]
        )
    ]
    rows = read_rows(made)
    accuracy: Any = sweep_figures.over_epochs(rows, "loss", "val/balanced", scale=100)
    assert accuracy == {
        "bce": [(1.0, pytest.approx(20.0)), (2.0, pytest.approx(40.0))],
        "ce": [(1.0, pytest.approx(20.0))],
    }
    assert sweep_figures.over_epochs(rows, "loss", "loss")["bce"] == [(1.0, 5.0), (2.0, 2.5)]
    written = sweep_figures.write(
        {"x": "epoch", "lines": "loss"}, made, tmp_path / "drawn" / "livt-convergence"
    )
    assert [path.name for path in written] == ["livt-convergence.svg", "livt-convergence-loss.svg"]
    assert written[0].read_text() == chart(
        accuracy, x="epoch", y="balanced validation accuracy, %"
    )  # and not of the frequent classes
    assert "training loss" in written[1].read_text()


def test_without_validation_images_the_loss_is_drawn(finished: Finished, tmp_path: Path) -> None:
    folder = finished("a", keywords={"loss": "ce"})
    (folder / "train" / "journal.jsonl").write_text(
        json.dumps({"kind": "epoch", "epoch": 1, "step": 9, "terms/class": 2.0}) + "\n"
    )
    written = sweep_figures.write({"x": "epoch", "lines": "loss"}, [folder], tmp_path / "sweep")
    assert [path.name for path in written] == ["sweep-loss.svg"]


def test_a_sweep_over_a_keyword_draws_accuracy_and_calibration(
    finished: Finished, tmp_path: Path
) -> None:
    made = [finished(str(n), draw=n, keywords={"tau": tau}) for n, tau in enumerate((0.0, 1.0))]
    written = sweep_figures.write({"x": "tau"}, made, tmp_path / "livt-tau")
    assert [path.name for path in written] == ["livt-tau.svg", "livt-tau-ece.svg"]
    assert "ECE on test images" in written[1].read_text()
