"""Rows that cannot be ranked are refused, with every difference and its values."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from longtail.records.row import Row, geometry_of, read_row
from longtail.report.agreement import MUST_AGREE, read_test_predictions, where
from longtail.report.comparison import compare

Finished = Callable[..., Path]
GOOD = (0.9, 0.8, 0.7)


def rows(*folders: Path) -> list[Row]:
    return [read_row(folder) for folder in folders]


UNLIKE: dict[str, dict[str, Any]] = {
    "split": {"data": {"hash": "fedcba"}},
    "groups": {"test": {"group_rule": "threshold: many > 100, few < 20"}},
    "selection": {"selection": "best val/balanced"},
    "protocol": {"data": {"protocol": "paper"}},
    "pretraining": {"pretraining": "ImageNet-1k"},
    "tta": {"tta": "flip"},
    "resolution": {"size": 16},
    "geometry": {"data": {"geometry": "crop"}},
}


@pytest.mark.parametrize("field", UNLIKE)
def test_rows_that_differ_are_refused_or_become_a_column(finished: Finished, field: str) -> None:
    pair = rows(
        finished("a"), finished("b", recipe="balanced_softmax", right=GOOD, draw=1, **UNLIKE[field])
    )
    with pytest.raises(ValueError, match=f"--across {field}") as caught:
        compare(pair)
    assert str(caught.value).count("--across") == 1
    assert pair[0]["folder"] in str(caught.value)
    assert pair[1]["folder"] in str(caught.value)
    table = compare(pair, across=[field])
    assert table.columns()[:2] == ("method", field)
    assert len({cells[1] for cells in table.cells()}) == 2
    assert field not in table.agreed
    assert set(table.agreed) == set(MUST_AGREE) - {field}
    assert table.lines[0].difference is not None  # the test images are the same


def test_every_difference_is_named_with_its_values(finished: Finished) -> None:
    pair = rows(finished("a"), finished("b", tta="flip", size=16))
    with pytest.raises(ValueError, match="differ in more than the method") as caught:
        compare(pair)
    for words in (
        "tta",
        "'none'",
        "'flip'",
        "--across tta",
        "resolution",
        "'8'",
        "'16'",
        "--across resolution",
    ):
        assert words in str(caught.value)
    with pytest.raises(ValueError, match="--across resolution") as caught:
        compare(pair, across=["tta"])
    assert "--across tta" not in str(caught.value)
    assert compare(pair, across=["resolution", "tta"]).columns()[:3] == (
        "method",
        "tta",
        "resolution",
    )


def test_a_row_from_before_the_field_has_an_inferred_geometry(finished: Finished) -> None:
    old, new = rows(finished("a"), finished("b", recipe="ldam", data={"geometry": "pad"}))
    assert "geometry" not in old["data"]
    assert compare([old, new]).agreed["geometry"] == "pad (inferred)"
    large = {**old, "size": 1 << 12}
    large["data"] = {**old["data"], "name": "photos", "train_images": 1000}
    assert geometry_of(large) == ("crop", True)  # type: ignore[arg-type]


def other_images(folder: Path) -> None:
    path = folder / "predictions" / "test.npz"
    with np.load(path) as archive:
        arrays = {name: archive[name] for name in archive.files}
    np.savez(path, **(arrays | {"ids": np.array([f"other/{name}" for name in arrays["ids"]])}))


def test_other_test_images_are_refused_and_never_paired(finished: Finished) -> None:
    plain, even = finished("a"), finished("b", recipe="balanced_softmax", right=GOOD)
    other_images(even)
    with pytest.raises(ValueError, match="--across test"):
        compare(rows(plain, even))
    table = compare(rows(plain, even), across=["test"])
    assert [line.difference for line in table.lines] == [None, None]


def test_equal_file_names_in_another_dataset_are_other_images(finished: Finished) -> None:
    pair = rows(finished("a"), finished("b", data={"hash": "fedcba", "name": "my-folder"}))
    with pytest.raises(ValueError, match="--across test"):
        compare(pair, across=["split"])
    assert len(compare(pair, across=["split", "test"]).lines) == 2


def test_the_same_run_twice_is_refused(finished: Finished) -> None:
    a, b = finished("a"), finished("b")
    with pytest.raises(ValueError, match="remove one of them"):
        compare(rows(a, b))
    with pytest.raises(ValueError, match="remove one of them"):
        compare(rows(a, a))
    assert len(compare(rows(a, finished("c", view_seed=1))).lines) == 1


def test_predictions_of_another_length_are_refused(finished: Finished) -> None:
    with pytest.raises(ValueError, match="expected 61 test images"):
        compare(rows(finished("a", test={"images": 61})))


def test_predictions_are_sorted_by_image_and_have_a_digest(finished: Finished) -> None:
    first, second, other = (
        read_test_predictions(row)
        for row in rows(finished("a"), finished("b", draw=1), finished("c", predictions=False))
    )
    assert first is not None
    assert second is not None
    assert first.ids.tolist() == sorted(first.ids.tolist())
    assert first.digest() == second.digest()  # of the images, not of the predictions
    assert other is None


def test_a_row_is_named_by_its_folder(finished: Finished) -> None:
    (row,) = rows(finished("a", seed=3))
    assert where(row) == row["folder"]
    row.pop("folder")
    assert where(row) == "cross_entropy seed 3"
