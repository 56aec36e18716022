import pickle
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from longtail.data.images import reading
from longtail.data.open import open_data, open_for_evaluation
from longtail.data.request import DataRequest

MakeFolder = Callable[..., Path]


def test_streamed_splits_equal_those_in_memory_and_pickle(
    tmp_path: Path, make_folder: MakeFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = str(make_folder(tmp_path, {"a": 20, "b": 10}, side=32))
    inside = open_data(path)
    monkeypatch.setattr(reading, "MEMORY", 100)
    outside = open_data(path)
    assert (outside.hash, outside.test.ids) == (inside.hash, inside.test.ids)
    assert outside.train.inputs.in_memory(outside.size) is None
    repeated = pickle.loads(pickle.dumps(outside.train))
    assert repeated.inputs.image(3).tobytes() == inside.train.inputs.image(3).tobytes()


def test_a_folder_to_evaluate_on_is_requested_complete(
    tmp_path: Path, make_folder: MakeFolder
) -> None:
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


def test_training_data_is_evaluated_on_what_was_held_out(
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


def test_mirroring_is_that_of_the_data_unless_set(tmp_path: Path, make_folder: MakeFolder) -> None:
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
    vectors = tmp_path / "vectors.npz"
    vectors.touch()
    for without_root in (path, vectors):
        with pytest.raises(ValueError, match="--root applies only to"):
            open_data(str(without_root), root=tmp_path)
    with pytest.raises(ValueError, match="expected a size"):
        open_data(str(path), size=0)
    with pytest.raises(ValueError, match="--split-seed must be 0 or more"):
        open_data(str(path), split_seed=-1)
    with pytest.raises(ValueError, match=r"expected a folder, a .txt or .csv list"):
        open_data(str(path / "a" / "000.png"))
