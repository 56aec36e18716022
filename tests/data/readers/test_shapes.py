from pathlib import Path
from typing import Any

import numpy as np
import pytest

from longtail.data.dataset import Dataset, Split
from longtail.data.images.stores import ArrayImages
from longtail.data.open import open_data
from longtail.records.row import read_row
from longtail.runs import embed, train
from longtail.testing import check_dataset

NAMES = ("shapes-lt", "shapes-domains", "shapes-pairs", "shapes-attributes")


QUICK: dict[str, Any] = {"threads": 1, "device": "cpu"}


def pixels(split: Split) -> np.ndarray:
    assert isinstance(split.inputs, ArrayImages)
    return split.inputs.pixels.numpy()


@pytest.mark.parametrize("name", NAMES)
def test_every_machine_makes_the_same_distinct_images(name: str) -> None:
    check_dataset(lambda: open_data(name))
    data = open_data(name)
    images = np.concatenate([pixels(split) for split in (data.train, data.val, data.test)])
    assert images.shape[1:] == (3, 32, 32)
    assert len(np.unique(images.reshape(len(images), -1), axis=0)) == len(images)


def test_the_imbalance_changes_training_images_alone() -> None:
    mild, steep = open_data("shapes-lt", imbalance=2), open_data("shapes-lt", imbalance=100)
    assert mild.source_counts.tolist()[::9] == [200, 100]
    assert steep.source_counts.tolist()[::9] == [200, 2]
    assert np.array_equal(pixels(mild.test), pixels(steep.test))


def test_each_class_is_in_each_style() -> None:
    data = open_data("shapes-domains", protocol="paper")
    cells = data.train.target * 4 + data.train.columns["domain"]
    assert np.bincount(cells.numpy()).tolist() == [32] * 24


def seen_and_unseen(data: Dataset) -> dict[str, set[int]]:
    trained = set(data.train.target.tolist())
    return {
        name: set(split.target.tolist()) - trained
        for name, split in (("val", data.val), ("test", data.test))
    }


def test_unseen_pairs_have_parts_that_were_seen() -> None:
    data = open_data("shapes-pairs")
    unseen = seen_and_unseen(data)
    assert (len(unseen["val"]), len(unseen["test"])) == (8, 8)
    assert not unseen["val"] & unseen["test"]
    for part in ("attribute", "object"):
        of_class = data.class_attributes[part]
        assert data.train.columns[part].equal(of_class[data.train.target])
        assert set(data.train.columns[part].tolist()) == set(range(len(data.categories[part])))
    first = data.class_attributes["attribute"][0], data.class_attributes["object"][0]
    words = [data.categories[n][i] for n, i in zip(("attribute", "object"), first, strict=True)]
    assert data.classes[0] == " ".join(words)


def test_unseen_classes_differ_from_all_others_in_their_vectors() -> None:
    data = open_data("shapes-attributes")
    unseen = seen_and_unseen(data)
    assert (len(unseen["val"]), len(unseen["test"])) == (4, 4)
    assert not unseen["val"] & unseen["test"]
    vectors = data.class_attributes["vector"]
    assert len(vectors.unique(dim=0)) == 24
    assert (vectors[data.counts > 0].sum(0) > 0).all()


def test_a_class_is_visible_in_the_pixels() -> None:
    data = open_data("shapes-attributes")
    images = pixels(data.train).astype(np.float64)
    ground = np.median(images[:, :, :, :2], axis=(2, 3), keepdims=True)
    shape = abs(images - ground).sum(axis=(1, 3))  # of each row: where it is not background
    low = data.class_attributes["vector"][data.train.target][:, -1].numpy() == 1
    assert ((shape[:, 16:].sum(1) > shape[:, :16].sum(1)) == low).mean() > 0.9


@pytest.mark.parametrize(
    ("recipe", "name", "flags", "score"),
    [
        ("balanced_softmax", "shapes-lt", {}, "balanced"),
        ("erm", "shapes-domains", {"test_domain": "sketch"}, "domains"),
        ("compcos", "shapes-pairs", {"keep": "last"}, "auc"),
    ],
)
def test_each_task_trains_on_its_shapes(
    recipe: str, name: str, flags: dict[str, Any], score: str, tmp_path: Path
) -> None:
    train(recipe, name, tmp_path / "run", epochs=1, batch=60, size=8, **flags, **QUICK)
    row = read_row(tmp_path / "run")
    assert row["headline"]["name"] == score
    assert row["test"] is not None
    assert row["test"]["scores"][score] is not None


def test_unseen_classes_are_recognised_from_features(tmp_path: Path) -> None:
    features = tmp_path / "features.npz"
    embed("shapes-attributes", "fast_cnn", features, weights="random", size=8, **QUICK)
    train("eszsl", features, tmp_path / "run", **QUICK)
    row = read_row(tmp_path / "run")
    assert row["test"] is not None
    assert row["test"]["scores"][row["headline"]["name"]] is not None
    assert row["data"]["backbone"]["name"] == "fast_cnn"
