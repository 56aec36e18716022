import pickle
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

from longtail.data.images import reading
from longtail.data.open import assemble, open_data, open_for_evaluation
from longtail.data.readers.digits import digits
from longtail.data.request import DataRequest
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


def test_streamed_splits_equal_those_in_memory_and_pickle(
    tmp_path: Path, make_folder: MakeFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = str(make_folder(tmp_path, {"a": 20, "b": 10}, side=32))
    inside = open_data(path)
    monkeypatch.setattr(reading, "MEMORY", 100)
    outside = open_data(path)
    assert (outside.hash, outside.test.ids) == (inside.hash, inside.test.ids)
    assert outside.train.inputs.in_memory(outside.size) is None
    again = pickle.loads(pickle.dumps(outside.train))
    assert again.inputs.image(3).tobytes() == inside.train.inputs.image(3).tobytes()


def test_to_be_judged_by_a_folder_is_asked_whole(tmp_path: Path, make_folder: MakeFolder) -> None:
    path = make_folder(tmp_path / "plain", {"a": 12, "b": 3})
    data = open_for_evaluation(DataRequest(str(path)))
    assert (len(data.val), len(data.test)) == (0, 15)
    assert torch.bincount(data.test.target).tolist() == [12, 3]
    assert not data.warnings, "nothing is trained on, so nothing is in training twice"
    path = make_folder(
        tmp_path / "splits", {"train/a": 12, "train/b": 12, "test/a": 2, "test/b": 1}
    )
    data = open_for_evaluation(DataRequest(str(path)))
    assert (len(data.val), len(data.test)) == (
        0,
        3,
    ), "test images where there are some, and none held out of training"


def test_what_was_learnt_from_is_judged_by_what_was_held_out(
    tmp_path: Path, make_folder: MakeFolder
) -> None:
    path = str(make_folder(tmp_path / "plain", {"a": 12, "b": 9}))
    trained = open_data(path, split_seed=3)
    evaluated = open_for_evaluation(DataRequest(path), learnt=(trained.hash, "holdout", 3))
    assert (evaluated.hash, evaluated.val.ids, evaluated.test.ids) == (
        trained.hash,
        trained.val.ids,
        trained.test.ids,
    )
    assert "only its held-out images are evaluated" in evaluated.warnings[-1]
    assert (
        len(open_for_evaluation(DataRequest(path), learnt=(trained.hash, "holdout", 4)).test) == 21
    ), "another split of it is other data"


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


def test_mirroring_is_as_the_data_has_it_unless_told(
    tmp_path: Path, make_folder: MakeFolder
) -> None:
    path = str(make_folder(tmp_path, {"a": 6, "b": 6}))
    assert open_data(path).mirror
    assert not open_data("digits-lt").mirror
    unmirrored, other = open_data(path, mirror=False), open_data("digits-lt", mirror=True)
    assert not unmirrored.mirror
    assert other.mirror
    assert unmirrored.hash == open_data(path).hash, "the images are the same"


def test_a_root_may_be_text(tmp_path: Path, make_folder: MakeFolder) -> None:
    path = make_folder(tmp_path, {"a": 6, "b": 6})
    names = sorted(file.relative_to(path).as_posix() for file in path.rglob("*.png"))
    (tmp_path / "all.csv").write_text("".join(f"{name},{name[0]}\n" for name in names))
    assert (
        open_data(str(tmp_path / "all.csv"), root=str(path)).hash
        == open_data(str(tmp_path / "all.csv"), root=path).hash
    )


def test_classes_only_in_test_are_left_out_and_said(
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


def test_images_shared_by_train_and_test_are_said(tmp_path: Path, make_folder: MakeFolder) -> None:
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


def test_what_is_not_there_or_makes_no_sense_is_refused(
    tmp_path: Path, make_folder: MakeFolder
) -> None:
    path = make_folder(tmp_path, {"a": 2, "b": 2})
    with pytest.raises(ValueError, match=r"did you mean digits-lt.*or the path of a folder"):
        open_data("digit-lt")
    with pytest.raises(
        ValueError, match=r"expected --protocol holdout or paper or adapt, got 'none'"
    ):
        open_data("digits-lt", protocol="none")
    with pytest.raises(ValueError, match="expected --on-bad-image refuse or skip"):
        open_data("digits-lt", on_bad_image="drop")
    with pytest.raises(ValueError, match="expected --profile"):
        open_data("digits-lt", profile="linear")
    for keywords in ({"imbalance": 10.0}, {"profile": "step"}):
        with pytest.raises(ValueError, match="--imbalance and --profile apply only to"):
            open_data(str(path), **keywords)
    with pytest.raises(ValueError, match="--root applies only to"):
        open_data(str(path), root=tmp_path)
    with pytest.raises(ValueError, match="expected a size"):
        open_data(str(path), size=0)
    with pytest.raises(ValueError, match="--split-seed must be 0 or more"):
        open_data(str(path), split_seed=-1)
    with pytest.raises(ValueError, match=r"expected a folder, a .txt or .csv list"):
        open_data(str(path / "a" / "000.png"))


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
