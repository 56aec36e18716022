import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

from longtail.data.assembly import assemble
from longtail.data.open import open_data
from longtail.data.readers.digits import digits
from longtail.data.splits import natural_groups
from longtail.errors import LongtailError

MakeFolder = Callable[..., Path]


def test_a_folder_gets_test_then_validation(tmp_path: Path, make_folder: MakeFolder) -> None:
    data = open_data(str(make_folder(tmp_path, {"a": 40, "b": 6, "c": 5, "d": 2, "e": 1})))
    assert data.source_counts.tolist() == [40, 6, 5, 2, 1]
    assert data.test.target.bincount(minlength=5).tolist() == [8, 1, 1, 0, 0]
    assert data.val.target.bincount(minlength=5).tolist() == [3, 1, 0, 0, 0]
    assert (
        data.counts.tolist() == data.train.target.bincount(minlength=5).tolist() == [29, 4, 4, 2, 1]
    )
    ids = [*data.train.ids, *data.val.ids, *data.test.ids]
    assert len(set(ids)) == len(ids) == 54
    assert data.groups.rule == "ranks: 2/1/2"
    assert data.warnings == (
        "1 classes have a single training image: e.",
        "2 classes have no test image: they are trained, but not evaluated: d, e.",
    )
    for part in (data.train, data.val, data.test):
        assert len(part.inputs) == len(part.ids) == len(part)
        assert all(
            data.classes[int(label)] == name.split("/")[0]
            for label, name in zip(part.target, part.ids, strict=True)
        )


def test_the_paper_protocol_holds_out_only_a_missing_test_set(
    tmp_path: Path, make_folder: MakeFolder
) -> None:
    path = str(make_folder(tmp_path, {"a": 40, "b": 10}))
    paper, default = open_data(path, protocol="paper"), open_data(path)
    assert (len(paper.train), len(paper.val), len(paper.test)) == (40, 0, 10)
    assert paper.val.target.dtype == torch.int64
    assert paper.test.ids == default.test.ids
    assert paper.hash != default.hash
    assert paper.groups == default.groups
    assert (
        open_data("digits-lt", protocol="paper").counts.tolist()
        == open_data("digits-lt").source_counts.tolist()
    )


def test_given_splits_are_kept(tmp_path: Path, make_folder: MakeFolder) -> None:
    make_folder(tmp_path, {"train/a": 10, "train/b": 10, "val/a": 1, "test/a": 2, "test/b": 3})
    for protocol in ("holdout", "paper"):
        data = open_data(str(tmp_path), protocol=protocol)
        assert (len(data.train), len(data.val), len(data.test)) == (20, 1, 5)


def test_the_split_seed_alone_decides(tmp_path: Path, make_folder: MakeFolder) -> None:
    path = str(make_folder(tmp_path, {"a": 40, "b": 10}))
    first = open_data(path)
    assert open_data(path, split_seed=1).hash != first.hash
    (tmp_path / "a" / "000.png").rename(tmp_path / "a" / "zzz.png")
    assert open_data(path).hash == first.hash


def test_a_class_needs_no_training_image_where_attributes_of_classes_are_stated() -> None:
    source = digits()
    train = source.splits["train"]
    nine_unseen = {**source.splits, "train": train.take(np.flatnonzero(train.target != 9))}
    vector = {"vector": np.eye(10, dtype=np.float32)}
    stated = replace(source, splits=nine_unseen, class_attributes=vector, grouping=natural_groups)
    data = assemble(stated, protocol="paper")
    assert len(data.classes) == 10
    assert data.counts[9] == 0
    assert data.groups.members == {"seen": tuple(range(9)), "unseen": (9,)}
    assert torch.equal(data.class_attributes["vector"], torch.eye(10))
    assert int((data.test.target == 9).sum()) == 50
    left_out = assemble(replace(stated, class_attributes={}))
    assert len(left_out.classes) == 9
    assert "have no training image and were left out" in left_out.warnings[0]
    with pytest.raises(LongtailError, match="each of 10 classes, got 3"):
        assemble(replace(stated, class_attributes={"vector": np.eye(3)}))


def test_hashes_of_data_without_columns_have_not_changed() -> None:
    assert open_data("digits-lt").hash.startswith("228cb81e3a95")


def test_classes_only_in_test_are_left_out_and_reported(
    tmp_path: Path, make_folder: MakeFolder
) -> None:
    make_folder(
        tmp_path,
        {
            "train/b": 6,
            "train/d": 6,
            "test/a": 2,
            "test/b": 1,
            "test/c": 1,
            "test/d": 1,
            "val/c": 1,
            "val/d": 1,
        },
    )
    data = open_data(str(tmp_path))
    assert data.classes == ("b", "d")
    assert data.test.target.tolist() == [0, 1]
    assert data.test.ids == ("test/b/000.png", "test/d/000.png")
    assert data.val.ids == ("val/d/000.png",)
    assert data.warnings == (
        (
            "2 classes have no training image and were left out, with 3 test images and 1 val"
            " images: a, c."
        ),
    )


def test_images_shared_by_train_and_test_are_reported(
    tmp_path: Path, make_folder: MakeFolder
) -> None:
    make_folder(tmp_path, {"train/a": 3, "train/b": 3, "val/a": 1, "test/a": 2, "test/b": 1})
    shutil.copy(tmp_path / "train" / "b" / "002.png", tmp_path / "test" / "a" / "001.png")
    data = open_data(str(tmp_path))
    assert data.warnings == (
        "1 test images are also in training (same content): test/a/001.png = train/b/002.png.",
    )


def test_class_names_that_differ_only_in_case_are_refused(
    tmp_path: Path, make_folder: MakeFolder
) -> None:
    path = make_folder(tmp_path, {"x": 2})
    (path / "all.csv").write_text("x/000.png,Cat\nx/001.png,cat\n")
    with pytest.raises(ValueError, match="differ in more than case, got Cat and cat"):
        open_data(str(path / "all.csv"))


def test_adapting_gives_the_test_images_without_their_classes() -> None:
    held_out = open_data("shapes-domains", test_domain="night", train_domain="photo")
    data = open_data("shapes-domains", test_domain="night", train_domain="photo", protocol="adapt")
    assert held_out.unlabelled is None
    assert data.unlabelled is not None
    assert (data.hash, data.protocol) == (held_out.hash, "adapt")
    assert data.unlabelled.ids == data.test.ids
    assert data.unlabelled.target.unique().tolist() == [-1]
    assert data.test.target.min() == 0
    assert data.val.ids == held_out.val.ids


def test_adapting_needs_the_same_classes_on_both_sides(tmp_path: Path) -> None:
    rows: dict[str, Any] = {
        "features": np.random.default_rng(0).random((24, 2), dtype=np.float32),
        "column.domain": np.repeat(["a", "b"], 12),
    }
    np.savez(tmp_path / "f.npz", **rows, target=np.r_[np.arange(12) % 3, np.arange(12) % 2])
    flags: dict[str, Any] = {"test_domain": "b", "protocol": "adapt"}
    with pytest.raises(LongtailError, match=r"same classes in training and in b, and .* has 2"):
        open_data(tmp_path / "f.npz", **flags)
    assert len(open_data(tmp_path / "f.npz", test_domain="b").test) == 12
    with pytest.raises(LongtailError, match="classes without training images in b"):
        open_data(tmp_path / "f.npz", **{**flags, "test_domain": "a"})


@pytest.mark.parametrize(("joined", "warned"), [("ant|bee", True), ("ant|wasp", False)])
def test_labels_that_join_labels_are_pointed_out(joined: str, warned: bool, tmp_path: Path) -> None:
    lines = []
    for index in range(30):
        Image.fromarray(np.full((4, 4, 3), 8 * index, dtype=np.uint8)).save(
            tmp_path / f"{index}.png"
        )
        lines.append(f"{index}.png,{('ant', 'bee', joined)[index % 3]}")
    (tmp_path / "list.csv").write_text("\n".join(lines))
    warnings = "\n".join(open_data(tmp_path / "list.csv").warnings)
    assert ("1 labels join others" in warnings) == warned
    assert (joined in warnings) == warned
