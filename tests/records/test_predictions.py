from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from longtail.errors import LongtailError
from longtail.records.predictions import SplitPredictions, read_predictions, write_predictions


def some(rows: int = 3) -> SplitPredictions:
    rng = np.random.default_rng(rows)
    heads = {
        "logits": rng.normal(size=(rows, 4)).astype(np.float32),
        "cls": rng.normal(size=(rows, 4)).astype(np.float32),
    }
    return SplitPredictions(heads, np.arange(rows), np.arange(rows))


def test_what_is_written_is_read(tmp_path: Path) -> None:
    path = tmp_path / "predictions" / "test.npz"
    write_predictions(path, some(), ["größe/1.png", "b", "c"])
    predictions, ids = read_predictions(path)
    assert ids.tolist() == ["größe/1.png", "b", "c"]
    assert set(predictions.logits) == {"logits", "cls"}
    for head, logits in some().logits.items():
        assert predictions.logits[head].dtype == np.float32
        np.testing.assert_array_equal(predictions.logits[head], logits)
    np.testing.assert_array_equal(predictions.target, [0, 1, 2])
    np.testing.assert_array_equal(predictions.index, [0, 1, 2])
    assert [file.name for file in path.parent.iterdir()] == ["test.npz"]


def test_columns_are_stored_under_their_names(tmp_path: Path) -> None:
    columns = {"domain": np.array([1, 0]), "box": np.ones((2, 4), dtype=np.float32)}
    given = SplitPredictions(
        {"logits": np.eye(2, dtype=np.float32)}, np.array([0, 1]), np.array([0, 1]), columns
    )
    write_predictions(tmp_path / "test.npz", given, ["a", "b"])
    with np.load(tmp_path / "test.npz") as archive:
        assert {"column.domain", "column.box"} < {*archive.files}
    read, _ = read_predictions(tmp_path / "test.npz")
    assert {*read.columns} == {*columns}
    for name, values in columns.items():
        np.testing.assert_array_equal(read.columns[name], values)


def test_numpy_alone_can_read_it(tmp_path: Path) -> None:
    write_predictions(tmp_path / "a.npz", some(), list("abc"))
    with np.load(tmp_path / "a.npz", allow_pickle=False) as archive:
        assert sorted(archive.files) == ["ids", "index", "logits", "logits.cls", "target"]


def test_a_part_of_a_split_takes_its_names(tmp_path: Path) -> None:
    part = SplitPredictions(
        {"logits": np.zeros((2, 2), dtype=np.float32)}, np.array([0, 1]), np.array([0, 2])
    )
    write_predictions(tmp_path / "a.npz", part, list("abc"))
    assert read_predictions(tmp_path / "a.npz")[1].tolist() == ["a", "c"]


def test_the_same_predictions_are_the_same_bytes(tmp_path: Path) -> None:
    for name in ("a.npz", "b.npz"):
        write_predictions(tmp_path / name, some(), list("abc"))
    assert (tmp_path / "a.npz").read_bytes() == (tmp_path / "b.npz").read_bytes()


def test_a_failed_write_leaves_the_old_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "test.npz"
    write_predictions(path, some(), list("abc"))
    before = path.read_bytes()

    def full(*_: object, **__: object) -> None:
        raise OSError("No space left on device")

    monkeypatch.setattr(np, "savez_compressed", full)
    with pytest.raises(OSError, match="No space"):
        write_predictions(path, some(2), list("ab"))
    assert path.read_bytes() == before
    assert [file.name for file in tmp_path.iterdir()] == ["test.npz"]


def test_what_would_execute_is_not_read(tmp_path: Path) -> None:
    np.savez(tmp_path / "evil.npz", logits=np.array([print], dtype=object))
    with pytest.raises(ValueError, match="expected arrays, got something else"):
        read_predictions(tmp_path / "evil.npz")


def test_other_files_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "test.npz"
    write_predictions(path, some(), list("abc"))
    path.write_bytes(path.read_bytes()[:100])
    with pytest.raises(ValueError, match="eval RUN --rewrite"):
        read_predictions(path)
    path.write_bytes(b"")
    with pytest.raises(ValueError, match="eval RUN --rewrite"):
        read_predictions(path)
    np.save(tmp_path / "one.npy", np.zeros(3))
    with pytest.raises(ValueError, match="eval RUN --rewrite"):
        read_predictions(tmp_path / "one.npy")
    np.savez(path, logits=np.zeros((1, 2)))
    with pytest.raises(ValueError, match="missing target, index, ids"):
        read_predictions(path)


def test_mistakes_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="name for image 2, got 2 names"):
        write_predictions(tmp_path / "a.npz", some(), list("ab"))
    with pytest.raises(ValueError, match=r"""called "logits", got \['cls'\]"""):
        SplitPredictions({"cls": np.zeros((1, 2), dtype=np.float32)}, np.array([0]), np.array([0]))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"logits": np.full((3, 2), np.nan, np.float32)}, "NaN or infinity in 3 rows"),
        ({"logits.aux": np.full((3, 2), np.inf, np.float32)}, "as logits.aux, got NaN or infinity"),
        ({"logits": np.zeros(3, np.float32)}, r"logits \(N, C\) of floats"),
        ({"target": np.array([0, 1, 2])}, "targets 0 to 1, got 0 to 2"),
        ({"target": np.array([0, 1, -1])}, "targets 0 to 1, got -1 to 1"),
        ({"target": np.array([0.0, 1.0, 1.0])}, "of integers, got"),
        ({"index": np.array([0, -1, 1])}, "an index of 0 or more"),
        ({"ids": np.array(["a"])}, "ids with 3 rows"),
        ({"column.domain": np.arange(2)}, "column.domain with 3 rows"),
    ],
)
def test_predictions_of_another_shape_are_refused(
    change: dict[str, Any], message: str, tmp_path: Path
) -> None:
    arrays: dict[str, Any] = {
        "logits": np.array([[0, -np.inf], [1, 2], [3, 4]], np.float32),  # a class is masked out
        "target": np.array([0, 1, 1]),
        "index": np.arange(3),
        "ids": np.array(["a", "b", "c"]),
    }
    np.savez(tmp_path / "test.npz", **arrays)
    assert len(read_predictions(tmp_path / "test.npz")[1]) == 3
    np.savez(tmp_path / "test.npz", **{**arrays, **change})
    with pytest.raises(LongtailError, match=rf"{message}.* in .*test\.npz: delete it"):
        read_predictions(tmp_path / "test.npz")
