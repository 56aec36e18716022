from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import odd_images
import pytest
import torch
from finished import CLASSES, calibrated, finished
from PIL import Image

from longtail.errors import LongtailError
from longtail.nn import Classifier
from longtail.records.predictions import read_predictions
from longtail.runs import load, train
from longtail.runs.inference import BATCH
from longtail.runs.predicting import FilePredictions, Loaded


@pytest.fixture(scope="module")
def loaded(tmp_path_factory: pytest.TempPathFactory) -> Loaded:
    return load(finished(tmp_path_factory.mktemp("runs")), device="cpu")


def test_every_way_to_give_images_gives_the_same_predictions(
    loaded: Loaded, tmp_path: Path
) -> None:
    # So that predictions differ
    colours = np.array([[0, 0, 0], [150, 0, 0], [0, 150, 150]], dtype=np.uint8)
    arrays = (
        np.random.default_rng(1).integers(0, 100, (3, 8, 8, 3), dtype=np.uint8)
        + colours[:, None, None]
    )
    images = [Image.fromarray(array) for array in arrays]
    paths = [tmp_path / f"{number}.png" for number in range(3)]
    for image, path in zip(images, paths, strict=True):
        image.save(path)
    floats = torch.from_numpy(arrays).permute(0, 3, 1, 2) / 255
    ways: list[Any] = [
        images,
        paths,
        [str(path) for path in paths],
        arrays,
        [*arrays],
        floats,
        [*floats],
        tuple(paths),
        iter(paths),
    ]
    probabilities = [loaded.predict_proba(given) for given in ways]
    assert probabilities[0].shape == (3, 10)
    assert probabilities[0].dtype == np.float32
    assert np.allclose(probabilities[0].sum(1), 1, atol=1e-6)
    assert all(np.allclose(other, probabilities[0], atol=1e-6) for other in probabilities)
    assert len({*loaded.predict(arrays).labels}) > 1
    for single in (images[1], paths[1], str(paths[1]), arrays[1], floats[1]):
        assert np.allclose(loaded.predict_proba(single)[0], probabilities[0][1], atol=1e-6)
    assert loaded.predict(arrays).labels == tuple(
        CLASSES[index] for index in probabilities[0].argmax(1)
    )
    assert loaded.classes == CLASSES


def test_many_images_are_predicted_in_parts(loaded: Loaded) -> None:
    arrays = np.random.default_rng(2).integers(0, 255, (2 * BATCH + 3, 8, 8, 3), dtype=np.uint8)
    complete = loaded.predict_proba(arrays)
    one_by_one = np.concatenate([loaded.predict_proba(array) for array in arrays[::50]])
    assert np.allclose(complete[::50], one_by_one, atol=1e-6)
    assert np.allclose(
        loaded.predict_proba(torch.from_numpy(arrays).permute(0, 3, 1, 2) / 255),
        complete,
        atol=1e-6,
    )


def test_the_score_is_balanced_accuracy(loaded: Loaded) -> None:
    arrays = np.random.default_rng(3).integers(0, 255, (30, 8, 8, 3), dtype=np.uint8)
    answer = loaded.predict_proba(arrays).argmax(1)
    target = answer.copy()
    target[::4] = (target[::4] + 1) % 10
    slow = np.mean(
        [np.mean(answer[target == label] == label) for label in sorted({*target.tolist()})]
    )
    assert 0 < slow < 1
    assert loaded.score(arrays, target) == pytest.approx(slow)
    assert loaded.score(arrays, [CLASSES[label] for label in target]) == pytest.approx(slow)
    assert loaded.score(arrays, torch.from_numpy(target)) == pytest.approx(slow)
    for unexpected in (target[:3], ["ten"] * 30, target + 10, target - 10, target + 0.5):
        with pytest.raises(ValueError, match="expected"):
            loaded.score(arrays, unexpected)


def test_bad_files_are_named_and_the_rest_goes_on(loaded: Loaded, tmp_path: Path) -> None:
    odd_images.write_all(tmp_path)
    paths = [*sorted(tmp_path.iterdir()), tmp_path / "gone.png"]
    parts = list(loaded.predict_files(paths))
    good = [path for part in parts for path in part.paths]
    assert {path.stem for path in good} == {*odd_images.GOOD}
    assert good == sorted(good)
    assert {path.stem: reason for part in parts for path, reason in part.bad}.keys() == {
        *odd_images.BAD,
        "gone",
    }
    rows = np.concatenate(
        [part.predictions.probabilities.numpy() for part in parts if part.predictions is not None]
    )
    assert np.allclose(rows, loaded.predict_proba(good), atol=1e-6)
    assert all(
        len(part.paths) == (0 if part.predictions is None else len(part.predictions))
        for part in parts
    )
    with pytest.raises(ValueError, match=r"expected an image.*bomb.png"):
        loaded.predict(tmp_path / "bomb.png")


def test_it_abstains_by_the_thresholds_of_the_run(tmp_path: Path) -> None:
    image = odd_images.pixels()
    sure = load(calibrated(finished(tmp_path), [1.0, *[0.0] * 9]), device="cpu").predict(image)
    assert sure.sets == (("0",),)
    assert sure.abstain == (False,)
    assert load(calibrated(tmp_path, [1.0] * 10), device="cpu").predict(image).abstain == (True,)
    assert load(tmp_path, device="cpu").predict(image, abstain_below=0.0).level == 0.9
    calibrated(tmp_path, [0.5])
    with pytest.raises(ValueError, match="expected 10 thresholds"):
        load(tmp_path, device="cpu")


def test_oblong_images_are_prepared_as_in_the_evaluation(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    for name in ("a", "b"):
        (tmp_path / "data" / name).mkdir(parents=True)
        for number in range(10):
            shape = (int(rng.integers(6, 30)), int(rng.integers(6, 30)), 3)
            Image.fromarray(rng.integers(0, 255, shape, dtype=np.uint8)).save(
                tmp_path / "data" / name / f"{number}.png"
            )
    run = tmp_path / "run"
    train(
        "cross_entropy", tmp_path / "data", run, epochs=1, batch=8, threads=1, device="cpu", size=16
    )
    saved, ids = read_predictions(run / "predictions" / "test.npz")
    wanted = torch.from_numpy(saved.logits["logits"]).softmax(1).numpy()
    loaded = load(run, device="cpu")
    paths = [tmp_path / "data" / str(name) for name in ids]
    assert np.allclose(loaded.predict_proba(paths), wanted, atol=1e-5)
    squashed = [Image.open(path).convert("RGB").resize((16, 16)) for path in paths]
    assert not np.allclose(loaded.predict_proba(squashed), wanted, atol=1e-5)


def test_preprocessing_gives_the_pixels_that_the_network_takes(loaded: Loaded) -> None:
    image = odd_images.pixels()
    pixels = loaded.preprocess(image)
    assert (pixels.dtype, pixels.shape) == (torch.uint8, (3, 8, 8))
    assert np.array_equal(loaded.predict_proba(pixels.float() / 255), loaded.predict_proba(image))


def test_features_are_what_the_head_takes(loaded: Loaded) -> None:
    arrays = np.random.default_rng(4).integers(0, 255, (5, 8, 8, 3), dtype=np.uint8)
    features = loaded.features(arrays)
    assert isinstance(loaded.network, Classifier)
    assert features.dtype == np.float32
    assert features.shape == (5, loaded.network.network.dim)
    with torch.no_grad():
        logits = loaded.network.head(torch.from_numpy(features))
    assert torch.allclose(logits, loaded.logits(arrays), atol=1e-6)
    without_head = replace(loaded, network=loaded.network.network)
    with pytest.raises(LongtailError, match="expected a classifier to extract features"):
        without_head.features(arrays)


def test_old_names_of_attributes_still_work(loaded: Loaded) -> None:
    with pytest.warns(DeprecationWarning, match=r"Loaded.fit is now Loaded.preprocessing"):
        assert loaded.fit is loaded.preprocessing
    files = FilePredictions((), loaded.predict(odd_images.pixels()), ())
    with pytest.warns(DeprecationWarning, match=r"FilePredictions.answers is now"):
        assert files.answers is files.predictions
