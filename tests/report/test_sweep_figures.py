"""A sweep is plotted as means over seeds, a search with every trial."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from longtail.records.row import read_row
from longtail.report import svg, sweep_figures
from longtail.report.rows import read_rows
from longtail.report.sweep_figures import Panel

from .test_svg import inside, tree

Finished = Callable[..., Path]


def with_journal(folder: Path, accuracies: Sequence[float], losses: Sequence[float]) -> Path:
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
    content = "".join(json.dumps(line) + "\n" for line in lines)
    (folder / "train" / "journal.jsonl").write_text(content)
    return folder


def test_seeds_are_averaged_over_a_keyword(finished: Finished) -> None:
    made = [
        finished(str(n), draw=n, keywords={"tau": tau}) for n, tau in enumerate((1.0, 0.0, 1.0))
    ]
    rows = read_rows(made)
    few = [row["test"]["groups"]["few"] for row in rows if row["test"] is not None]
    errors = [row["test"]["ece"] for row in rows if row["test"] is not None]
    lines: Any = sweep_figures.accuracy_by_keyword(rows, "tau")
    assert set(lines) == {"overall", "many", "medium", "few"}
    assert lines["few"] == [
        (0.0, pytest.approx(100 * (few[1] or 0))),
        (1.0, pytest.approx(50 * ((few[0] or 0) + (few[2] or 0)))),
    ]
    calibration: Any = sweep_figures.ece_by_keyword(rows, "tau")
    assert calibration == {
        "softmax": [(0.0, errors[1]), (1.0, pytest.approx((errors[0] + errors[2]) / 2))]
    }


def test_groups_without_classes_are_left_out_and_runs_without_test_images_refused(
    finished: Finished,
) -> None:
    row = read_row(finished("a", keywords={"tau": 1.0}))
    assert row["test"] is not None
    row["test"]["groups"]["few"] = None
    assert "few" not in sweep_figures.accuracy_by_keyword([row], "tau")
    row["test"] = None
    with pytest.raises(ValueError, match=r"expected runs with test images, got none in .*a"):
        sweep_figures.accuracy_by_keyword([row], "tau")


def test_a_sweep_over_epochs_plots_accuracy_and_loss(finished: Finished, tmp_path: Path) -> None:
    made = [
        with_journal(finished(str(n), keywords={"loss": loss}), accuracies, losses)
        for n, (loss, accuracies, losses) in enumerate(
            [
                ("bce", (0.1, 0.3), (4.0, 2.0)),
                ("bce", (0.3, 0.5), (6.0, 3.0)),
                ("ce", (0.2,), (2.0,)),
            ]
        )
    ]
    rows = read_rows(made)
    accuracy: Any = sweep_figures.by_epoch(rows, "loss", "val/balanced", scale=100)
    assert accuracy == {
        "loss=bce": [(1.0, pytest.approx(20.0)), (2.0, pytest.approx(40.0))],
        "loss=ce": [(1.0, pytest.approx(20.0))],
    }
    assert sweep_figures.by_epoch(rows, "loss", "loss")["loss=bce"] == [(1.0, 5.0), (2.0, 2.5)]
    plot, path = {"x": "epoch", "lines": "loss"}, tmp_path / "plots" / "livt-convergence"
    written = sweep_figures.write_sweep_figures(plot, made, path)
    assert [path.name for path in written] == ["livt-convergence.svg", "livt-convergence-loss.svg"]
    balanced = svg.line_file(accuracy, x="epoch", y="balanced accuracy on validation, %")
    assert written[0].read_text() == balanced, "and not of the frequent classes"
    assert "training loss" in written[1].read_text()


def test_without_validation_images_the_loss_is_plotted(finished: Finished, tmp_path: Path) -> None:
    folder = finished("a", keywords={"loss": "ce"})
    line = {"kind": "epoch", "epoch": 1, "step": 9, "terms/class": 2.0}
    (folder / "train" / "journal.jsonl").write_text(json.dumps(line) + "\n")
    plot = {"x": "epoch", "lines": "loss"}
    written = sweep_figures.write_sweep_figures(plot, [folder], tmp_path / "sweep")
    assert [path.name for path in written] == ["sweep-loss.svg"]


def test_a_sweep_over_a_keyword_plots_accuracy_and_calibration(
    finished: Finished, tmp_path: Path
) -> None:
    made = [finished(str(n), draw=n, keywords={"tau": tau}) for n, tau in enumerate((0.0, 1.0))]
    written = sweep_figures.write_sweep_figures({"x": "tau"}, made, tmp_path / "livt-tau")
    assert [path.name for path in written] == ["livt-tau.svg", "livt-tau-ece.svg"]
    assert "ECE on test images" in written[1].read_text()


def test_a_score_over_a_setting_with_a_line_per_recipe(finished: Finished, tmp_path: Path) -> None:
    made = [
        finished(f"{recipe}-{size}", recipe=recipe, parameters=size, draw=size)
        for recipe in ("livt", "vit")
        for size in (1_000_000, 2_000_000)
    ]
    rows = read_rows(made)
    lines = sweep_figures.score_by(rows, "parameters", "recipe", "few", scale=100)
    assert [[x for x, _ in points] for points in lines.values()] == [[1.0, 2.0]] * 2
    test = rows[0]["test"]
    assert test is not None
    assert lines["livt"][0][1] == pytest.approx(100 * float(test["groups"]["few"] or 0))
    assert sweep_figures.score_by(rows, "imbalance", "recipe", "few")["vit"][0][0] == 10.0
    plot = {"x": "parameters", "lines": "recipe", "score": "few"}
    (written,) = sweep_figures.write_sweep_figures(plot, made, tmp_path / "size")
    words = written.read_text()
    assert "livt" in words
    assert "accuracy of group few on test images, % over parameters, millions" in words


def test_every_trial_is_a_point_and_the_best_stands_out() -> None:
    points = [(0.01, 50.0), (0.1, 70.0), (1.0, 60.0)]
    names = [("a<b", 50.0), ("c", 70.0), ("c", 60.0)]
    root = tree(
        sweep_figures.search_plot(
            [Panel("lr", points, log=True), Panel("network", names)], y="val/balanced, %"
        )
    )
    discs = list(root.iter("circle"))
    assert [element.attrib["class"] for element in discs] == [
        "solid s1",
        "solid s2",
        "solid s1",
    ] * 2
    x, y = ([float(element.attrib[key]) for element in discs] for key in ("cx", "cy"))
    assert x[1] - x[0] == pytest.approx(x[2] - x[1]), "powers of ten lie at equal distances"
    assert x[2] > x[1]
    assert x[3] < x[4] == x[5], "a column for each name"
    assert y[2] == pytest.approx((y[0] + y[1]) / 2, abs=0.01)
    assert y[1] < y[0], "up is better"
    assert y[:3] == y[3:], "one scale for all panels"
    least = tree(sweep_figures.search_plot([Panel("lr", points)], y="NLL", higher_is_better=False))
    styles = [element.attrib["class"] for element in least.iter("circle")]
    assert styles == ["solid s2", "solid s1", "solid s1"]
    labels = {element.text: element.attrib for element in root.iter("text")}
    assert float(labels["50"]["y"]) - 4 == pytest.approx(y[0])
    assert {"0.01", "1", "a<b", "c", "lr", "network"} <= set(labels)
    inside(root)


def test_one_trial_and_values_that_are_missing_can_be_plotted() -> None:
    values = [1.0, None, True]
    panels = [Panel(str(value), [(value, 50.0)]) for value in values]
    root = tree(sweep_figures.search_plot([*panels, Panel("lr", [(0.1, 50.0)], log=True)], y="%"))
    assert len(list(root.iter("circle"))) == 4
    inside(root)
