from __future__ import annotations

import csv
import io
import statistics
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from longtail.metrics.intervals import paired
from longtail.records.predictions import read_predictions
from longtail.records.row import Row, read_row
from longtail.report.comparison import Comparison, compare, differing_fields
from longtail.report.formats import to_csv

Finished = Callable[..., Path]
GOOD = (0.9, 0.8, 0.7)


def rows(*folders: Path) -> list[Row]:
    return [read_row(folder) for folder in folders]


def correct(folders: Sequence[Path]) -> Any:
    predictions = [read_predictions(folder / "predictions" / "test.npz")[0] for folder in folders]
    return (
        np.mean(
            [
                run_predictions.logits["logits"].argmax(1) == run_predictions.target
                for run_predictions in predictions
            ],
            axis=0,
        ),
        predictions[0].target,
    )


def balanced(row: Row) -> float:
    assert row["test"] is not None
    return row["test"]["balanced"]


def three_seeds(finished: Finished) -> tuple[list[Path], list[Path]]:
    plain = [finished(f"ce{seed}", seed=seed, draw=seed, minutes=1.0 + seed) for seed in range(3)]
    even = [
        finished(f"bs{seed}", recipe="balanced_softmax", seed=seed, draw=10 + seed, right=GOOD)
        for seed in range(3)
    ]
    return plain, even


def test_seeds_become_mean_and_sample_deviation(finished: Finished) -> None:
    plain, even = three_seeds(finished)
    table = compare(rows(*plain, *even))
    # Best balanced first
    assert [line.label for line in table.lines] == ["balanced_softmax", "cross_entropy"]
    assert table.reference == "cross_entropy"
    numbers = [balanced(row) for row in rows(*plain)]
    score = table.lines[1].scores["balanced"]
    assert score is not None
    assert score.mean == pytest.approx(sum(numbers) / 3)
    assert score.deviation == pytest.approx(statistics.stdev(numbers))
    assert table.lines[1].seeds == (0, 1, 2)
    assert table.lines[1].minutes == pytest.approx(2.0)
    assert table.lines[1].folders == tuple(map(str, plain))


def test_the_best_balanced_accuracy_comes_first_whatever_its_name(finished: Finished) -> None:
    worse = finished("a", recipe="a", right=(1.0, 0.6, 0.0))  # better overall, worse balanced
    better = finished("z", recipe="z", right=(0.6, 0.8, 1.0))
    table = compare(rows(worse, better))
    assert [line.label for line in table.lines] == ["z", "a"]


def test_the_paired_difference_is_over_the_first_line(finished: Finished) -> None:
    plain, even = three_seeds(finished)
    table = compare(rows(*plain, *even))
    first, target = correct(plain)
    second, _ = correct(even)
    assert table.lines[0].difference == paired(first, second, target)
    assert table.lines[1].difference is None
    turned = compare(rows(*even, *plain))
    assert turned.lines[0].difference is None
    assert turned.lines[1].difference == paired(second, first, target)


def test_differences_pair_the_seeds_that_both_have(finished: Finished) -> None:
    plain, even = three_seeds(finished)
    first, target = correct(plain[1:2])
    second, _ = correct(even[1:2])
    table = compare(rows(*plain[:2], *even[1:]))
    assert table.lines[0].difference == paired(first, second, target)
    assert any("different seeds" in note for note in table.notes)
    alone = compare(rows(plain[0], *even[1:]))
    assert alone.lines[0].difference == paired(correct(plain[:1])[0], correct(even[1:])[0], target)


def test_images_are_paired_by_name_not_by_place(finished: Finished) -> None:
    plain, even = finished("a"), finished("b", recipe="balanced_softmax", right=GOOD, draw=1)
    before = compare(rows(plain, even)).lines[0].difference
    path = even / "predictions" / "test.npz"
    with np.load(path) as archive:
        order = np.random.default_rng(0).permutation(len(archive["ids"]))
        np.savez(path, **{name: archive[name][order] for name in archive.files})
    assert compare(rows(plain, even)).lines[0].difference == before


def test_the_order_of_the_rows_changes_nothing_but_the_reference(finished: Finished) -> None:
    plain, even = three_seeds(finished)
    table = compare(rows(plain[0], *even, *plain[1:]))
    repeated = compare(rows(plain[0], plain[2], even[1], even[0], plain[1], even[2]))
    assert table.cells() == repeated.cells()
    assert table.columns() == repeated.columns()


@pytest.mark.parametrize("field", ["parameters", "minutes", "epochs"])
def test_cost_is_shown_and_never_blocks(finished: Finished, field: str) -> None:
    other = {"parameters": 99, "minutes": 7.0, "epochs": {"pretrain": 3, "finetune": 2}}
    table = compare(rows(finished("a"), finished("b", recipe="livt", **{field: other[field]})))
    column = table.columns().index(field)
    assert {cells[column] for cells in table.cells()} == {
        "parameters": {"1,234", "99"},
        "minutes": {"0.5", "7.0"},
        "epochs": {"4", "3 + 2"},
    }[field]


def test_minutes_of_earlier_runs_are_shown_separately(finished: Finished) -> None:
    arms = [
        finished(f"arm{seed}", recipe="arm", seed=seed, draw=seed, minutes_before=2.0 + seed)
        for seed in range(2)
    ]
    table = compare(rows(finished("whole", recipe="whole"), *arms))
    shown = {cells[0]: cells[table.columns().index("minutes")] for cells in table.cells()}
    assert shown == {"whole": "0.5", "arm": "0.5 + 2.5"}
    written = {
        line["method"]: (line["minutes"], line["minutes_before"])
        for line in csv.DictReader(io.StringIO(to_csv(table)))
    }
    assert written == {"whole": ("0.5", "0.0"), "arm": ("0.5", "2.5")}


def labels(table: Comparison) -> set[str]:
    return {line.label for line in table.lines}


def test_labels_show_only_the_keywords_that_tell_lines_apart(finished: Finished) -> None:
    a = finished("a", keywords={"epochs": 4, "network": "resnet32"})
    b = finished("b", keywords={"epochs": 4, "network": "fast_cnn"})
    c = finished(
        "c", recipe="logit_adjustment", keywords={"epochs": 4, "network": "fast_cnn", "tau": 1.0}
    )
    assert labels(compare(rows(a))) == {"cross_entropy"}
    assert labels(compare(rows(a, b))) == {
        "cross_entropy network=resnet32",
        "cross_entropy network=fast_cnn",
    }
    # Tau is not a question for cross_entropy
    assert labels(compare(rows(b, c))) == {"cross_entropy", "logit_adjustment"}
    d = finished(
        "d", recipe="logit_adjustment", keywords={"epochs": 4, "network": "fast_cnn", "tau": 2.0}
    )
    e = finished(
        "e", recipe="logit_adjustment", keywords={"epochs": 4, "network": "fast_cnn"}, seed=1
    )
    table = compare(rows(c, d, e))
    assert labels(table) == {
        "logit_adjustment tau=1.0",
        "logit_adjustment tau=2.0",
    }, "a keyword newer than its run had its default"
    assert {line.seeds for line in table.lines} == {(0, 1), (0,)}


def test_a_label_names_no_keyword_that_had_no_effect(finished: Finished) -> None:
    complete = finished("whole", recipe="livt", keywords={"epochs": 4, "pretrain_epochs": 1})
    tuned = finished(
        "tuned",
        recipe="livt",
        keywords={"epochs": 4, "weights": "runs/whole"},
        unused=["pretrain_epochs"],
    )
    assert labels(compare(rows(complete, tuned))) == {
        "livt weights=none",
        "livt weights=runs/whole",
    }
    longer = finished("longer", recipe="livt", keywords={"epochs": 4, "pretrain_epochs": 9})
    shown = {
        "livt weights=none pretrain_epochs=1",
        "livt weights=none pretrain_epochs=9",
        "livt weights=runs/whole",
    }
    assert labels(compare(rows(complete, tuned, longer))) == shown


def test_an_empty_group_is_a_dash_and_not_zero(finished: Finished) -> None:
    table = compare(rows(finished("a", test={"groups": {"many": 0.5, "medium": 0.5, "few": None}})))
    assert table.lines[0].scores["few"] is None
    assert table.cells()[0][table.columns().index("few")] == "-"


def test_missing_predictions_cost_the_difference_and_say_so(finished: Finished) -> None:
    pair = rows(finished("a"), finished("b", recipe="livt", predictions=False))
    table = compare(pair)
    assert [line.difference for line in table.lines] == [None, None]
    assert any(
        "their predictions are missing" in note and pair[1]["folder"] in note
        for note in table.notes
    )


def test_notes_say_what_the_table_cannot(finished: Finished) -> None:
    mark = "counts conventional, images not"
    a = finished("a", data={"caveats": [mark]})
    b = finished(
        "b",
        recipe="livt",
        data={"caveats": [mark]},
        test={"confidence": "sigmoid", "classes_without_images": {"count": 2, "indices": [1, 2]}},
    )
    notes = "\n".join(compare(rows(a, b)).notes)
    for words in (
        f"{mark}: all runs.",
        "Classes without test images",
        "ece is not comparable between sigmoid, 15 bins and softmax, 15 bins",
    ):
        assert words in notes
    c = finished("c", seed=1)
    assert compare(rows(c)).notes == ()
    assert f"{mark}: {a}." in compare(rows(a, c)).notes


def test_mistakes_are_refused(finished: Finished) -> None:
    with pytest.raises(ValueError, match="at least one run"):
        compare([])
    with pytest.raises(ValueError, match=r"unknown field 'resolutoin'.*did you mean resolution"):
        compare(rows(finished("a")), across=["resolutoin"])
    with pytest.raises(ValueError, match="expected runs with test results"):
        compare(rows(finished("b", test=None, predictions=False)))


def test_one_run_is_a_table_without_a_difference(finished: Finished) -> None:
    table = compare(rows(finished("a")))
    assert table.columns() == (
        "method",
        "overall",
        "balanced",
        "many",
        "medium",
        "few",
        "ece",
        "parameters",
        "epochs",
        "minutes",
        "seeds",
    )
    assert "±" not in "".join(table.cells()[0])


def test_runs_that_start_from_the_run_of_the_same_seed_are_one_line(finished: Finished) -> None:
    runs = [
        finished(f"s{seed}", seed=seed, keywords={"teacher": f"out/flat-seed={seed}"})
        for seed in (0, 1)
    ]
    other = finished("other", seed=0, keywords={"teacher": "out/strong-seed=0"})
    arms = [
        finished(f"p{seed}", seed=seed, keywords={"pretrained": f"out/mgp-seed{seed}/encoder"})
        for seed in (1, 11)
    ]
    # Of another seed, and so another encoder
    far = finished("far", seed=1, keywords={"pretrained": "out/mgp-seed11/encoder"})
    assert [line.seeds for line in compare(rows(*arms)).lines] == [(1, 11)]
    assert sorted(line.seeds for line in compare(rows(arms[1], far)).lines) == [(1,), (11,)]
    table = compare(rows(*runs, other))
    assert sorted((line.label, line.seeds) for line in table.lines) == [
        ("cross_entropy teacher=out/flat-seed=*", (0, 1)),
        ("cross_entropy teacher=out/strong-seed=*", (0,)),
    ]


def test_mirrored_and_unmirrored_runs_are_two_lines(finished: Finished) -> None:
    pair = rows(finished("a"), finished("b", seed=1))
    pair[1]["data"]["mirror"] = pair[1]["data"]["name"] == "digits-lt"  # unusual
    assert len(compare(pair).lines) == 2


def test_what_keywords_changed_becomes_columns(finished: Finished) -> None:
    pair = rows(finished("a"), finished("b", selection="last epoch", keywords={"ema": 0.0}))
    pair[0]["selection"] = "last epoch, ema"
    assert differing_fields(pair) == ["selection"]
    assert len(compare(pair, across=differing_fields(pair)).lines) == 2
