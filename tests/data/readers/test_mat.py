"""The standard splits of zero-shot learning are read as published, and never validated on test."""

from __future__ import annotations

import os
import shutil
import sys
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import zero_shot_files

from longtail.data.open import open_data
from longtail.data.readers import mat as reader
from longtail.data.readers.mat import mat
from longtail.errors import LongtailError
from longtail.testing.datasets import check_dataset


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return zero_shot_files.write(tmp_path_factory.mktemp("mat") / "BIRDS")


def rows_of(name: str) -> Any:
    images, splits = zero_shot_files.arrays()
    index = splits[name].ravel() - 1
    return images["features"].T[index].astype(np.float32), images["labels"].ravel()[index] - 1


def test_classes_are_matched_by_name_and_locations_count_from_one(folder: Path) -> None:
    source = mat(folder)
    train, number = rows_of("trainval_loc")
    assert source.name == "BIRDS"
    assert np.array_equal(source.splits["train"].inputs.vectors(), train)  # type: ignore[arg-type]
    names = [f"{int(label) + 1:03}.Bird_{chr(66 + int(label))}" for label in number]
    assert [source.classes[label] for label in source.splits["train"].target] == names
    _, splits = zero_shot_files.arrays()
    assert np.allclose(source.class_attributes["vector"], splits["att"].T)


def test_numbers_are_used_where_files_have_no_class_names(tmp_path: Path) -> None:
    files = np.array(["a.jpg"] * 112, dtype=object)[:, None]
    _, splits = zero_shot_files.arrays()
    names = np.sort(splits["allclasses_names"], axis=0)
    with_files = mat(
        zero_shot_files.write(tmp_path / "a", image_files=files, allclasses_names=names)
    )
    without = mat(zero_shot_files.write(tmp_path / "b", drop="image_files", allclasses_names=names))
    _, number = rows_of("trainval_loc")
    assert np.array_equal(with_files.splits["train"].target, number)
    assert np.array_equal(without.splits["train"].target, number)


def test_the_dataset_keeps_its_contract(folder: Path) -> None:
    check_dataset(lambda: open_data(folder))
    check_dataset(lambda: open_data(folder, protocol="paper"))


@pytest.mark.parametrize("file", ["res101.mat", "att_splits.mat"])
def test_either_file_stands_for_both(folder: Path, file: str) -> None:
    assert open_data(folder / file).hash == open_data(folder).hash


def test_the_published_protocol_trains_on_all_seen_classes(folder: Path) -> None:
    data = open_data(folder, protocol="paper")
    assert (len(data.train), len(data.val), len(data.test)) == (60, 0, 52)
    assert sorted(data.counts.tolist()) == [0, 0, *[10] * 6]
    assert {len(members) for members in data.groups.members.values()} == {6, 2}


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_validation_has_held_out_classes_and_only_images_of_trainval(
    folder: Path, seed: int
) -> None:
    data = open_data(folder, split_seed=seed)
    trainval, _ = rows_of("trainval_loc")
    known = {row.tobytes() for row in trainval}
    for split in (data.train, data.val):
        vectors = split.inputs.vectors()
        assert vectors is not None
        assert {row.numpy().tobytes() for row in vectors} <= known
    trained, validated = {*data.train.target.tolist()}, {*data.val.target.tolist()}
    tested = {*data.test.target.tolist()}
    assert len(trained) == 4
    assert len(validated - trained) == 2
    assert len(tested - trained) == 2
    assert not (validated - trained) & tested
    assert trained <= validated
    assert trained <= tested


def test_train_loc_and_val_loc_are_never_read(tmp_path: Path, folder: Path) -> None:
    nonsense = np.array([[9999]])
    other = zero_shot_files.write(tmp_path / "BIRDS", train_loc=nonsense, val_loc=nonsense)
    for protocol in ("holdout", "paper"):
        assert open_data(other, protocol=protocol).hash == open_data(folder, protocol=protocol).hash


def test_another_seed_holds_out_other_classes(folder: Path) -> None:
    held = {
        frozenset(open_data(folder, split_seed=seed).counts.nonzero().ravel().tolist())
        for seed in range(4)
    }
    assert len(held) > 1


def test_unusable_files_are_refused_with_the_reason(tmp_path: Path) -> None:
    images, splits = zero_shot_files.arrays()
    missing = splits["att"].copy()
    missing[2, 5] = np.nan
    cases: list[tuple[str, dict[str, Any]]] = [
        ("no .mat file there has the array features", {"drop": "features"}),
        ("missing labels", {"drop": "labels"}),
        ("missing att", {"drop": "att"}),
        ("missing test_unseen_loc", {"drop": "test_unseen_loc"}),
        (
            r"column for each of 112 labels, got shape \(112, 12\)",
            {"features": images["features"].T},
        ),
        ("column for each of 8 classes of allclasses_names, got 7", {"att": splits["att"][:, :7]}),
        (r"'vector' is missing \(NaN or infinite\) for \d+\.Bird", {"att": missing}),
        (
            "expected locations from 1 to 112, got 0 to",
            {"test_seen_loc": np.array([[0], [11]])},
        ),
        (
            "images of test_seen_loc are also in trainval_loc",
            {"test_seen_loc": splits["train_loc"]},
        ),
        (
            "test_unseen_loc must have no class of trainval_loc",
            {"test_unseen_loc": splits["test_seen_loc"]},
        ),
        ("features must be finite", {"features": images["features"] * np.nan}),
        ("att must have numbers, got object", {"att": splits["allclasses_names"]}),
        ("path for each of 112 images, got 8", {"image_files": splits["allclasses_names"]}),
    ]
    for number, (message, changed) in enumerate(cases):
        folder = zero_shot_files.write(tmp_path / str(number), **changed)
        with pytest.raises(LongtailError, match=message):
            open_data(folder)


def test_labels_beyond_the_names_are_refused(tmp_path: Path) -> None:
    images, _ = zero_shot_files.arrays()
    folder = zero_shot_files.write(
        tmp_path / "a", drop="image_files", labels=images["labels"] + 1.0
    )
    with pytest.raises(LongtailError, match=r"expected labels 1 to 8.*got 9"):
        open_data(folder)


def test_two_files_of_splits_have_to_be_chosen_from(tmp_path: Path) -> None:
    folder = zero_shot_files.write(tmp_path / "two")
    (folder / "sent_splits.mat").write_bytes((folder / "att_splits.mat").read_bytes())
    with pytest.raises(LongtailError, match="2 files have splits"):
        open_data(folder)
    assert len(open_data(folder / "sent_splits.mat").classes) == 8


def test_a_broken_file_and_a_missing_scipy_are_named(
    tmp_path: Path, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "x.mat").write_bytes(b"nothing")
    with pytest.raises(LongtailError, match="cannot be read"):
        open_data(tmp_path / "x.mat")
    for name, part in product(("att_splits.mat", "res101.mat"), range(1, 4)):
        content = (folder / name).read_bytes()
        damaged = Path(shutil.copytree(folder, tmp_path / f"{name}-{part}"))
        (damaged / name).write_bytes(content[: len(content) * part // 10])
        with pytest.raises(LongtailError):
            open_data(damaged)
    (tmp_path / "x.mat").unlink()
    os.mkfifo(tmp_path / "x.mat")
    with pytest.raises(LongtailError, match="is a pipe, not a file"):
        open_data(tmp_path)
    monkeypatch.setattr(reader, "check_regular", lambda path, limit: None)
    monkeypatch.setattr(reader, "LIMIT", 1000)
    with pytest.raises(LongtailError, match="claims the shape"):
        reader.mat(folder)
    monkeypatch.setitem(sys.modules, "scipy.io", None)
    with pytest.raises(LongtailError, match=r"pip install 'longtail\[mat\]'"):
        reader.mat(folder)
