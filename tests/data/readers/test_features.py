"""A dataset of cached features is a dataset: any recipe with a network runs on it, and everything
after training works.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from typer.testing import CliRunner

from longtail.cli.main import app
from longtail.data.inspect.survey import survey
from longtail.data.loader import EvalLoader, TrainLoader, load_images
from longtail.data.open import find, open_data
from longtail.data.readers.features import features
from longtail.data.views import CropFlip, TwoViews
from longtail.errors import LongtailError
from longtail.nn import build
from longtail.records.predictions import read_predictions
from longtail.records.row import read_row
from longtail.report.comparison import compare
from longtail.runs import evaluate, load, train
from longtail.runs.exporting import export
from longtail.runs.restore import restore_method

QUICK: dict[str, Any] = {"epochs": 2, "batch": 64, "threads": 1, "device": "cpu"}


def arrays() -> dict[str, Any]:
    """Digits as vectors of their 64 grey levels, with a column of words and one of numbers."""
    data = open_data("digits-lt", protocol="paper")
    parts = [(data.train, "train"), (data.test, "test")]
    pixels = [load_images(split, range(len(split)), 8)[:, 0].flatten(1) for split, _ in parts]
    target = torch.cat([split.target for split, _ in parts]).numpy()
    words = np.array(["odd" if label % 2 else "even" for label in target.tolist()])
    return {
        "features": torch.cat(pixels).numpy(),
        "target": target,
        "split": np.repeat([name for _, name in parts], [len(split) for split, _ in parts]),
        "classes": np.array(list("abcdefghij")),
        "column.parity": words,
        "column.box": np.arange(2 * len(target), dtype=np.float32).reshape(-1, 2),
        "ids": np.array([name for split, _ in parts for name in split.ids]),
    }


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("features") / "digits.npz"
    np.savez_compressed(place, **arrays())
    return place


def test_features_become_a_dataset_whose_size_is_their_number(path: Path) -> None:
    data, given = open_data(str(path)), arrays()
    assert (data.size, data.classes, data.has_vectors) == (64, tuple("abcdefghij"), True)
    assert (len(data.train), len(data.val), len(data.test)) == (364, 41, 500)
    assert data.categories == {"parity": ("even", "odd")}
    assert torch.equal(data.test.columns["parity"], data.test.target % 2)
    assert data.test.columns["box"].shape == (500, 2)
    [batch] = EvalLoader(data.test, size=64, batch=500).epoch()
    assert torch.equal(batch["image"], torch.from_numpy(given["features"][-500:]))
    assert torch.equal(batch["image"], load_images(data.test, range(500), 64))
    trained = next(TrainLoader(data.train, view=CropFlip(64), batch=9, seed=0).epoch(0))
    rows = data.train.inputs.vectors()
    assert rows is not None
    assert torch.equal(trained["image"], rows[trained["index"]])
    with pytest.raises(LongtailError, match="two views need images"):
        TrainLoader(data.train, view=TwoViews(CropFlip(64), CropFlip(64)), batch=9, seed=0)
    with pytest.raises(LongtailError, match="have 64 numbers each: remove it"):
        open_data(str(path), size=32)
    with pytest.raises(LongtailError, match="--quick"):
        survey(find(str(path)))


def test_content_columns_and_attributes_are_in_the_hash(path: Path, tmp_path: Path) -> None:
    given = arrays()
    variants = {
        "same": given,
        "others": {**given, "features": given["features"] + 1},
        "column": {**given, "column.parity": given["column.parity"][::-1]},
        "attribute": {**given, "attribute.vector": np.eye(10, dtype=np.float32)},
    }
    hashes = {}
    for name, values in variants.items():
        np.savez(tmp_path / f"{name}.npz", **values)
        hashes[name] = open_data(str(tmp_path / f"{name}.npz")).hash
    assert hashes["same"] == open_data(str(path)).hash
    assert len({*hashes.values()}) == 4


def test_bytes_are_scaled_and_a_class_may_be_unseen_with_attributes(tmp_path: Path) -> None:
    attributes: Any = {"attribute.vector": np.ones((3, 4), np.float32)}
    np.savez(
        tmp_path / "f.npz",
        features=np.arange(24, dtype=np.uint8).reshape(8, 3),
        scale=0.5,
        target=np.array([0, 0, 0, 1, 1, 1, 2, 2]),
        split=np.array(["train"] * 6 + ["test"] * 2),
        **attributes,
    )
    data = open_data(str(tmp_path / "f.npz"), protocol="paper")
    assert data.counts.tolist() == [3, 3, 0]
    assert data.groups.members == {"seen": (0, 1), "unseen": (2,)}
    assert data.class_attributes["vector"].shape == (3, 4)
    assert load_images(data.train, [1], 3).tolist() == [[1.5, 2.0, 2.5]]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"target": None}, "missing target"),
        ({"features": np.zeros((4, 2, 2), np.float32)}, r"features \(N, D\)"),
        ({"features": np.full((4, 2), np.nan, np.float32)}, "NaN or infinity in 4 rows"),
        ({"features": np.zeros((4, 2), np.uint8)}, "uint8 features need the array scale"),
        ({"target": np.array([0.0, 1, 0, 1])}, "of integers"),
        ({"target": np.array([0, 1])}, r"target \(N,\).*\(4, 2\) and \(2,\)"),
        ({"split": np.array(["train", "test", "dev", "val"])}, "got dev"),
        ({"split": np.array(["test"] * 4)}, "no row has the split train"),
        ({"column.domain": np.zeros(3)}, r"column.domain must have a value for each of 4 rows"),
        (
            {"features": np.zeros((4, 2), np.uint8), "scale": np.ones(3)},
            r"one for each feature, got shape \(3,\)",
        ),
        ({"categories.domain": np.array(["a"])}, "categories.domain has no column.domain"),
        (
            {"column.domain": np.arange(4), "categories.domain": np.array(["a", "b"])},
            "domain must have integers below 2",
        ),
        (
            {"column.domain": np.array(list("abab")), "categories.domain": np.array(["a", "b"])},
            "domain is text already: remove categories.domain",
        ),
        ({"pretraining": np.array([1])}, "pretraining must be one text"),
        ({"backbone": np.array("{}")}, "description of the backbone cannot be read"),
    ],
)
def test_other_files_are_refused(tmp_path: Path, change: dict[str, Any], message: str) -> None:
    good: dict[str, Any] = {
        "features": np.zeros((4, 2), np.float32),
        "target": np.array([0, 1, 0, 1]),
    }
    given = {name: values for name, values in {**good, **change}.items() if values is not None}
    np.savez(tmp_path / "f.npz", **given)
    with pytest.raises(LongtailError, match=message):
        features(tmp_path / "f.npz")
    (tmp_path / "g.npz").write_bytes(b"no archive")
    with pytest.raises(LongtailError, match=r"write an \.npz with the arrays"):
        features(tmp_path / "g.npz")


def test_categories_scales_and_pretraining_are_read(tmp_path: Path) -> None:
    given: dict[str, Any] = {
        "features": np.ones((4, 2), np.uint8),
        "scale": np.array([0.5, 2.0], np.float32),
        "target": np.array([0, 1, 0, 1]),
        "column.domain": np.array([1, 0, 1, 0]),
        "attribute.object": np.array([0, 1]),
        "categories.domain": np.array(["photo", "art"]),
        "categories.object": np.array(["cat", "dog"]),
    }
    np.savez(tmp_path / "f.npz", **given)
    source = features(tmp_path / "f.npz")
    assert source.categories == {"domain": ("photo", "art"), "object": ("cat", "dog")}
    assert source.splits["train"].columns["domain"].tolist() == [1, 0, 1, 0]
    rows = source.splits["train"].inputs.vectors()
    assert rows is not None
    assert rows[0].tolist() == [0.5, 2.0]
    assert (source.pretraining, source.backbone) == ("unknown", None)
    np.savez(tmp_path / "g.npz", **given, pretraining=np.array(""))
    assert features(tmp_path / "g.npz").pretraining is None


def test_a_head_is_trained_evaluated_compared_and_restored(path: Path, tmp_path: Path) -> None:
    rows = [
        train(recipe, path, tmp_path / recipe, network="vectors", **QUICK).row
        for recipe in ("cross_entropy", "balanced_softmax", "ldam")
    ]
    assert len(compare([row for row in rows if row is not None]).lines) == 3
    run = tmp_path / "balanced_softmax"
    row = read_row(run)
    assert row["test"] is not None
    assert row["test"]["top1"] > 0.3
    assert row["size"] == 64
    assert evaluate(run, device="cpu", threads=1)["test"] == row["test"]
    predictions, _ = read_predictions(run / "predictions" / "test.npz")
    assert predictions.columns["parity"].tolist() == (predictions.target % 2).tolist()
    loaded = load(run, device="cpu")
    given = torch.from_numpy(arrays()["features"][-500:])
    assert torch.equal(
        loaded.logits(given).argmax(1), torch.from_numpy(predictions.logits["logits"]).argmax(1)
    )
    for images in ("image.png", torch.zeros(1, 3, 64, 64)):
        with pytest.raises(LongtailError, match=r"trained on feature vectors.*\(N, 64\)"):
            loaded.predict(images)
    with pytest.raises(LongtailError, match="trained on feature vectors"):
        next(loaded.predict_files([Path("image.png")]))
    with pytest.raises(LongtailError, match="trained on feature vectors"):
        export(run, "torch")
    assert restore_method(run)[1].hash == row["data"]["hash"]
    assert "feature vectors (N, 64)" in (run / "model" / "README.md").read_text()
    assert (run / "report.html").exists()


def test_networks_and_data_that_do_not_fit_are_refused(path: Path, tmp_path: Path) -> None:
    with pytest.raises(LongtailError, match="pass --network vectors"):
        train("cross_entropy", path, tmp_path / "run", **QUICK)
    with pytest.raises(LongtailError, match="digits-lt has images: choose another network"):
        train("cross_entropy", "digits-lt", tmp_path / "run", network="vectors", **QUICK)
    with pytest.raises(LongtailError, match="--tta flip mirrors images"):
        train("cross_entropy", path, tmp_path / "run", network="vectors", tta="flip", **QUICK)
    assert not (tmp_path / "run").exists()
    with pytest.raises(LongtailError, match=r"expects feature vectors \(N, 4\)"):
        build({"name": "vectors", "size": 4})(torch.zeros(1, 3, 4, 4))


def test_the_command_line_names_the_network_for_vectors(path: Path, tmp_path: Path) -> None:
    counted = CliRunner().invoke(app, ["inspect", str(path), "--quick"])
    assert "--network vectors" in counted.output
    auto = CliRunner().invoke(
        app, ["train", "auto", "--data", str(path), "--out", str(tmp_path / "run")]
    )
    assert isinstance(auto.exception, LongtailError)
    assert "--network vectors" in str(auto.exception)


def test_the_command_line_sweeps_heads(path: Path, tmp_path: Path) -> None:
    words = ["sweep", "cross_entropy,balanced_softmax,ldam", "--data", str(path)]
    words += ["--set", "network=vectors", "--set", "epochs=1", "--out", str(tmp_path / "runs")]
    result = CliRunner().invoke(app, [*words, "--device", "cpu", "--threads", "1"])
    assert result.exit_code == 0, result.output
    assert len([*(tmp_path / "runs").glob("*/row.json")]) == 3
