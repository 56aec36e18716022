"""One column for each value of a data flag, against the numbers of the rows."""

from __future__ import annotations

import csv
import io
import statistics
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from longtail.records.row import Row, read_row
from longtail.report.columns import ColumnTable, compare_by
from longtail.report.formats import to_csv, to_latex, to_markdown

Finished = Callable[..., Path]
RECIPES = ("cross_entropy", "balanced_softmax")


def data(imbalance: float, **other: Any) -> dict[str, Any]:
    return {"imbalance": imbalance, "hash": f"{imbalance:g}" * 16, **other}


def grid(finished: Finished, *, leave_out: str = "") -> list[Row]:
    folders = {
        f"{recipe}-{imbalance:g}-{seed}": finished(
            f"{recipe}-{imbalance:g}-{seed}",
            recipe=recipe,
            seed=seed,
            draw=seed + int(imbalance) + 7 * len(recipe),
            data=data(imbalance),
        )
        for recipe in RECIPES
        for imbalance in (100.0, 10.0)
        for seed in (0, 1, 2)
    }
    return [read_row(folder) for name, folder in folders.items() if name != leave_out]


def balanced(rows: list[Row], recipe: str, imbalance: float, seed: int) -> float:
    (row,) = [
        row
        for row in rows
        if (row["recipe"], row["data"].get("imbalance"), row["seed"]) == (recipe, imbalance, seed)
    ]
    assert row["test"] is not None
    return row["test"]["balanced"]


def line(table: ColumnTable, recipe: str) -> Any:
    return next(line for line in table.lines if line.label == recipe)


def test_cells_are_means_over_seeds_and_the_last_one_is_over_columns(finished: Finished) -> None:
    rows = grid(finished)
    table = compare_by(rows, ["imbalance"])
    assert table.columns() == ("method", "imbalance 10", "imbalance 100", "mean", "seeds")
    for recipe in RECIPES:
        scores = line(table, recipe).scores
        for imbalance in (10.0, 100.0):
            values = [balanced(rows, recipe, imbalance, seed) for seed in range(3)]
            assert scores[f"{imbalance:g}"].mean == pytest.approx(statistics.fmean(values))
            assert scores[f"{imbalance:g}"].deviation == pytest.approx(statistics.stdev(values))
        per_seed = [
            (balanced(rows, recipe, 10.0, seed) + balanced(rows, recipe, 100.0, seed)) / 2
            for seed in range(3)
        ]
        assert scores["mean"].mean == pytest.approx(statistics.fmean(per_seed))
        assert scores["mean"].deviation == pytest.approx(statistics.stdev(per_seed))
    means = [line.scores["mean"].mean for line in table.lines]  # type: ignore[union-attr]
    assert means == sorted(means, reverse=True)
    assert "split" not in table.agreed
    assert table.agreed["protocol"] == "holdout"
    assert not table.notes


def test_a_missing_seed_leaves_the_mean_without_a_deviation(finished: Finished) -> None:
    table = compare_by(grid(finished, leave_out="cross_entropy-10-2"), ["imbalance"])
    assert line(table, "cross_entropy").scores["mean"].deviation is None
    assert line(table, "balanced_softmax").scores["mean"].deviation is not None
    assert any("cross_entropy" in note for note in table.notes)


def test_a_missing_column_is_a_dash(finished: Finished) -> None:
    rows = [
        read_row(finished("a", data=data(10.0))),
        read_row(finished("b", data=data(100.0))),
        read_row(finished("c", recipe="balanced_softmax", data=data(10.0))),
    ]
    table = compare_by(rows, ["imbalance"])
    cells = {cell[0]: cell[1:] for cell in table.cells()}
    assert cells["balanced_softmax"][1:3] == ("-", "-")
    assert "-" not in cells["cross_entropy"]


def test_within_a_column_runs_have_to_agree(finished: Finished) -> None:
    rows = [
        read_row(finished("a", data=data(10.0))),
        read_row(finished("b", recipe="balanced_softmax", data=data(10.0, hash="f" * 64))),
    ]
    with pytest.raises(ValueError, match="split"):
        compare_by(rows, ["imbalance"])
    with pytest.raises(ValueError, match=r"unknown data flag 'imbalanse': did you mean imbalance"):
        compare_by(rows, ["imbalanse"])
    with pytest.raises(ValueError, match="at least one folder"):
        compare_by([], ["imbalance"])


def test_several_flags_are_one_column_for_each_combination(finished: Finished) -> None:
    rows = [
        read_row(finished(f"{k}{s}", data=data(k, hash=f"{k}{s}" * 20), split_seed=s))
        for k in (10.0, 50.0)
        for s in (0, 1)
    ]
    table = compare_by(rows, ["imbalance", "split_seed"])
    assert tuple(table.labels) == ("10, 0", "10, 1", "50, 0", "50, 1", "mean")


def test_runs_that_start_from_others_on_the_same_cut_are_one_line(finished: Finished) -> None:
    rows = [
        read_row(
            finished(
                f"{k}{s}",
                recipe="deit_lt",
                keywords={"teacher": f"runs/first/flat-imbalance={k}-seed={s}"},
                data=data(k),
                seed=s,
            )
        )
        for k in (10.0, 50.0)
        for s in (0, 1)
    ]
    (one,) = compare_by(rows, ["imbalance"]).lines
    assert one.label == "deit_lt"
    assert one.seeds == (0, 1)
    with pytest.raises(ValueError, match="remove one of them"):
        compare_by([*rows, read_row(Path(rows[0]["folder"]))], ["imbalance"])


def test_the_table_can_be_written(finished: Finished) -> None:
    table = compare_by(grid(finished), ["imbalance"])
    first = next(csv.DictReader(io.StringIO(to_csv(table))))
    assert float(first["mean"]) == table.lines[0].scores["mean"].mean  # type: ignore[union-attr]
    assert first["seeds"] == "0 1 2"
    assert "imbalance 10 & imbalance 100 & mean & seeds" in to_latex(table)
    assert to_latex(table).count(r"\textbf") >= 3
    assert "| method | imbalance 10 | imbalance 100 | **mean** | seeds |" in to_markdown(table)


def test_columns_that_different_scores_rank_are_refused(finished: Finished) -> None:
    rows = [read_row(finished(f"{value:g}", data=data(value))) for value in (10.0, 100.0)]
    rows[1]["headline"] = {"name": "few", "higher_is_better": True}
    with pytest.raises(ValueError, match="ranked by different scores"):
        compare_by(rows, ["imbalance"])
