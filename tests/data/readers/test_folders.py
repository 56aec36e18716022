import errno
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from longtail.data.images.stores import FileImages
from longtail.data.open import open_data
from longtail.data.readers.folders import folder
from longtail.errors import LongtailError

MakeFolder = Callable[..., Path]


def test_classes_are_in_code_point_order_and_images_may_lie_deeper(
    tmp_path: Path, make_folder: MakeFolder
) -> None:
    make_folder(tmp_path, {"ant/deep/er": 2, "ant": 1, "Zebra": 2, "élan": 1})
    source = folder(tmp_path)
    assert source.classes == ("Zebra", "ant", "élan")
    assert list(source.splits) == ["train"]
    assert source.splits["train"].target.tolist() == [0, 0, 1, 1, 1, 2]
    assert source.splits["train"].ids[2:4] == ("ant/000.png", "ant/deep/er/000.png")
    assert isinstance(source.splits["train"].inputs, FileImages)
    assert (source.name, source.warnings) == (tmp_path.name, ())


@pytest.mark.parametrize("val", ["val", "valid", "Validation"])
def test_folders_called_train_val_test_are_splits(
    tmp_path: Path, make_folder: MakeFolder, val: str
) -> None:
    make_folder(tmp_path, {"train/a": 2, "train/b": 1, f"{val}/a": 1, "test/b": 1, "test/c": 1})
    source = folder(tmp_path)
    assert source.classes == ("a", "b", "c")
    assert {split: rows.target.tolist() for split, rows in source.splits.items()} == {
        "train": [0, 0, 1],
        "val": [0],
        "test": [1, 2],
    }


def test_a_class_called_train_among_others_is_a_class(
    tmp_path: Path, make_folder: MakeFolder
) -> None:
    assert folder(make_folder(tmp_path / "x", {"train": 1, "bus": 1})).classes == ("bus", "train")
    assert folder(make_folder(tmp_path / "y", {"test": 1, "val": 1})).classes == ("test", "val")


def test_what_is_left_out_is_reported(tmp_path: Path, make_folder: MakeFolder) -> None:
    make_folder(tmp_path, {"a": 1, "b": 1, ".hidden": 1})
    for name in ("a/notes.md", "a/Thumbs.db", "b/.DS_Store"):
        (tmp_path / name).write_text("x")
    (tmp_path / "a" / "000.png").rename(tmp_path / "loose.png")
    make_folder(tmp_path, {"a": 1})
    source = folder(tmp_path)
    assert source.classes == ("a", "b")
    assert source.warnings == (
        "1 images lie beside the class folders and were left out: loose.png.",
        "1 files are not images by their suffix and were left out: a/notes.md.",
    )


@pytest.mark.parametrize(
    ("counts", "message"),
    [
        ({}, "expected a folder of class folders, got none"),
        (
            {"a": 1, "b": 0, "c": 0},
            "expected at least one training image in every class, got none in b, c",
        ),
        (
            {"train/a": 1, "train/b": 0, "test/b": 1},
            r"train: expected at least one training image in every class, got none in b",
        ),
        (
            {"train/a": 1, "train/b": 1, "test/a": 1, "dev/a": 1},
            r"either splits \(train, val, test\) or classes, got both: dev beside test, train",
        ),
        ({"only": 3}, "expected at least two class folders, got only only"),
        (
            {"train/a": 1, "val/a": 1, "valid/a": 1},
            "expected one folder for val, got val and valid",
        ),
    ],
)
def test_what_cannot_be_learnt_from_is_refused(
    tmp_path: Path, make_folder: MakeFolder, counts: dict[str, int], message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        folder(make_folder(tmp_path, counts))


def test_a_class_whose_name_no_page_can_show_is_refused(
    tmp_path: Path, make_folder: MakeFolder
) -> None:
    make_folder(tmp_path, {"dog": 2, "cat": 2})
    (tmp_path / "cat").rename(tmp_path / os.fsdecode(b"caf\xe9"))
    with pytest.raises(
        ValueError,
        match=r"expected class folders with names in UTF-8, got 'caf\\udce9'. Rename them",
    ):
        folder(tmp_path)


def test_a_link_that_leads_back_up_is_not_followed(tmp_path: Path, make_folder: MakeFolder) -> None:
    make_folder(tmp_path, {"cat": 3, "dog": 2})
    make_folder(tmp_path.with_name("elsewhere"), {"more": 4})
    (tmp_path / "cat" / "up").symlink_to(tmp_path, target_is_directory=True)
    (tmp_path / "cat" / "again").symlink_to(tmp_path / "cat", target_is_directory=True)
    (tmp_path / "dog" / "more").symlink_to(
        tmp_path.with_name("elsewhere") / "more", target_is_directory=True
    )
    assert np.bincount(folder(tmp_path).splits["train"].target).tolist() == [3, 6]


def test_a_folder_whose_name_is_no_text_has_one_that_can_be_written(
    tmp_path: Path, make_folder: MakeFolder
) -> None:
    path = Path(os.fsdecode(os.fsencode(tmp_path) + b"/caf\xe9"))
    path.mkdir()
    assert open_data(str(make_folder(path, {"a": 10, "b": 10}))).name == "caf?"


def _unlistable(monkeypatch: pytest.MonkeyPatch, folder: Path, code: int) -> None:
    """Make a folder fail as without permission or on a broken disk, also for root."""
    scandir = os.scandir

    def fail(path: Any = ".") -> Any:
        if str(path) == str(folder):
            raise OSError(code, os.strerror(code), str(path))
        return scandir(path)

    monkeypatch.setattr(os, "scandir", fail)


@pytest.mark.parametrize("code", [errno.EACCES, errno.EIO, errno.ESTALE])
@pytest.mark.parametrize("place", ["a/sub", "b"])
def test_folders_that_cannot_be_listed_are_unreadable_images(
    code: int, place: str, tmp_path: Path, make_folder: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = make_folder(tmp_path / "images", {"a": 3, "b": 2}, side=8)
    make_folder(path / "a", {"sub": 2}, side=8)
    _unlistable(monkeypatch, path / place, code)
    with pytest.raises(
        LongtailError, match=rf"1 images cannot be read:\n  {place}: .*{os.strerror(code)}"
    ):
        open_data(path)
    if place == "b":
        with pytest.raises(
            LongtailError, match="no training image can be read in these classes: b"
        ):
            open_data(path, on_bad_image="skip")
    else:
        data = open_data(path, on_bad_image="skip")
        assert data.warnings[0] == "1 images cannot be read and were left out: a/sub."
