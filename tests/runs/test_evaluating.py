"""Evaluating a finished run again: on its data, and on other data."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from finished import QUICK, changed
from PIL import Image

from longtail.data.loader import EvalLoader
from longtail.data.open import open_data, open_for_evaluation
from longtail.data.request import DataRequest, Geometry
from longtail.metrics.conformal import calibrate, sets
from longtail.records.predictions import read_predictions
from longtail.records.row import read_evaluations
from longtail.runs import evaluate, load, train
from longtail.runs.images import Preprocessing
from longtail.runs.restore import restore_method


def test_an_adjusted_network_is_loaded_and_evaluated_with_its_adjustment(adjusted: Path) -> None:
    saved, _ = read_predictions(adjusted / "predictions" / "test.npz")
    test = open_data("digits-lt").test
    predictions = load(adjusted, device="cpu").predict(
        [test.inputs.image(index) for index in range(20)]
    )
    assert torch.allclose(
        predictions.probabilities,
        torch.from_numpy(saved.logits["logits"][:20]).softmax(dim=1),
        atol=1e-5,
    )
    row = json.loads((adjusted / "row.json").read_text())
    repeated = evaluate(adjusted, device="cpu", threads=1)["test"]
    assert repeated is not None
    assert repeated["recall"] == row["test"]["recall"]
    assert repeated["ece"] == pytest.approx(row["test"]["ece"], abs=1e-4)
    assert set(repeated["heads"]) == {"expert1", "expert2", "expert3"}


def test_a_second_evaluation_equals_the_row_and_leaves_it(copied: Path) -> None:
    row, text = json.loads((copied / "row.json").read_text()), (copied / "row.json").read_text()
    result = evaluate(copied, device="cpu", threads=1)
    assert result["test"] is not None
    assert result["test"]["top1"] == row["test"]["top1"]
    evaluate(copied, tta="flip", device="cpu", threads=1)
    assert (copied / "row.json").read_text() == text
    assert sorted(path.name for path in copied.glob("eval-*")) == [
        "eval-digits-lt-flip.json",
        "eval-digits-lt-none.json",
    ]
    flipped, repeated = read_evaluations(copied)
    assert (flipped["tta"], repeated["tta"]) == ("flip", "none")
    assert repeated["test"] == result["test"]
    changed(copied / "row.json", test=None)
    (copied / "predictions" / "test.npz").unlink()
    evaluate(copied, rewrite=True, device="cpu", threads=1)
    assert json.loads((copied / "row.json").read_text())["test"] == result["test"]
    assert (copied / "predictions" / "test.npz").exists()
    with pytest.raises(ValueError, match="remove --data, --scoring and --tta"):
        evaluate(copied, rewrite=True, tta="flip", device="cpu")


def test_a_second_evaluation_preprocesses_images_as_training_did(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # A recipe without a keyword `size`, whose network is for larger images than the data has.
    (tmp_path / "enlarging.py").write_text(
        "from longtail.recipes.supervised import cross_entropy\n\n\n"
        "def enlarged(run, data, *, epochs: int = 1):\n"
        '    """Sixteen pixels for eight."""\n'
        "    return cross_entropy(run, data, epochs=epochs, batch=64, size=16)\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    row = train("enlarging:enlarged", "digits-lt", tmp_path / "run", threads=1, device="cpu").row
    assert row is not None
    assert row["size"] == 16
    repeated = evaluate(tmp_path / "run", device="cpu", threads=1)
    assert repeated["test"] is not None
    assert row["test"] is not None
    assert repeated["test"]["ece"] == row["test"]["ece"]


def test_evaluating_on_other_data_goes_by_class_names(copied: Path, tmp_path: Path) -> None:
    test = open_data("digits-lt").test
    for index in range(0, 500, 5):
        label = int(test.target[index])
        if label in (3, 7):  # fewer classes, and so other numbers
            path = tmp_path / "data" / "test" / str(label) / f"{index}.png"
            path.parent.mkdir(parents=True, exist_ok=True)
            test.inputs.image(index).save(path)
            shutil.copytree(
                path.parent, tmp_path / "data" / "train" / str(label), dirs_exist_ok=True
            )
    result = evaluate(copied, data=tmp_path / "data", device="cpu", threads=1)["test"]
    assert result is not None
    assert [i for i, value in enumerate(result["recall"]) if value is not None] == [3, 7]
    (tmp_path / "data" / "train" / "7").rename(tmp_path / "data" / "train" / "seven")
    (tmp_path / "data" / "test" / "7").rename(tmp_path / "data" / "test" / "seven")
    with pytest.raises(ValueError, match=r"1 others \(seven\)"):
        evaluate(copied, data=tmp_path / "data", device="cpu", threads=1)


def test_a_folder_without_splits_is_evaluated_completely(copied: Path, tmp_path: Path) -> None:
    test = open_data("digits-lt").test
    for index in range(0, 500, 10):
        path = tmp_path / "data" / str(int(test.target[index])) / f"{index}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        test.inputs.image(index).save(path)
    saved, _ = read_predictions(copied / "predictions" / "test.npz")
    result = evaluate(copied, data=tmp_path / "data", device="cpu", threads=1)
    assert result["val"] is None
    assert result["test"] is not None
    assert result["test"]["images"] == 50
    assert result["test"]["top1"] == (saved.logits["logits"].argmax(1) == saved.target)[::10].mean()
    (tmp_path / "rare").mkdir()
    (tmp_path / "data" / "9").rename(tmp_path / "rare" / "9")  # one class alone can be evaluated
    alone = evaluate(copied, data=tmp_path / "rare", device="cpu", threads=1)["test"]
    assert alone is not None
    assert alone["balanced"] == result["test"]["recall"][9]


def test_a_moved_folder_is_located_and_never_evaluated_on_training_images(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    digits = open_data("digits-lt").test
    for index in range(0, 500, 3):
        path = tmp_path / "photos" / str(int(digits.target[index]) % 3) / f"{index}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        digits.inputs.image(index).save(path)
    monkeypatch.chdir(tmp_path)
    test = train("cross_entropy", "photos", tmp_path / "run", **QUICK).row["test"]  # type: ignore[index]
    (tmp_path / "photos").rename(tmp_path / "moved")
    with pytest.raises(
        ValueError,
        match=(
            r"expected the run's images at photos, got nothing there.*pass their new place with"
            r" --root"
        ),
    ):
        evaluate(tmp_path / "run", device="cpu", threads=1)
    assert evaluate(tmp_path / "run", root="moved", device="cpu", threads=1)["test"] == test
    assert restore_method(tmp_path / "run", root="moved")[1].test.ids
    capsys.readouterr()
    assert evaluate(tmp_path / "run", data="moved", device="cpu", threads=1)["test"] == test
    assert "only its held-out images are evaluated" in capsys.readouterr().err
    (tmp_path / "moved" / "0" / "broken.png").write_bytes(b"no image")
    with pytest.raises(ValueError, match=r"broken.png: not an image of a known kind"):
        evaluate(tmp_path / "run", data="moved", device="cpu", threads=1)
    assert (
        evaluate(tmp_path / "run", data="moved", on_bad_image="skip", device="cpu", threads=1)[
            "test"
        ]
        == test
    )


@pytest.mark.parametrize(
    ("geometry", "crop"), [("crop", 1.0), ("crop", 0.8), ("pad", 1.0), ("stretch", 1.0)]
)
def test_other_data_is_fitted_as_that_of_the_run(
    tmp_path: Path, geometry: Geometry, crop: float
) -> None:
    rng = np.random.default_rng(0)
    for name in ("a/1.png", "a/2.png", "b/1.png"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        Image.fromarray(rng.integers(0, 255, (20, 40, 3), dtype=np.uint8)).save(tmp_path / name)
    (batch,) = EvalLoader(
        open_for_evaluation(DataRequest(str(tmp_path), geometry=geometry), size=20, crop=crop).test,
        size=16,
        batch=9,
    ).epoch()
    fit = Preprocessing(16, geometry, 20, crop)
    for row, name in enumerate(("a/1.png", "a/2.png", "b/1.png")):
        with Image.open(tmp_path / name) as image:
            assert torch.equal(batch["image"][row], fit(image).float() / 255)


PARITY = """
from dataclasses import replace
from longtail.data.readers.digits import digits
from longtail.records.scores import label

class Parity:
    headline = "odd"
    labels = {"odd": label("odd digits"), "even": label("even digits")}

    def __call__(self, predictions):
        right = predictions.logits["logits"].argmax(1) == predictions.target
        odd = predictions.columns["parity"] == 1
        return {"odd": right[odd].mean(), "even": right[~odd].mean()}

def parity():
    source = digits()
    splits = {
        name: replace(rows, columns={"parity": rows.target % 2})
        for name, rows in source.splits.items()
    }
    return replace(source, name="parity", splits=splits, scorer=Parity())
"""


def test_other_data_has_its_columns_scores_and_scorer(
    copied: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "odd_and_even.py").write_text(PARITY)
    monkeypatch.syspath_prepend(tmp_path)
    quick: dict[str, Any] = {"device": "cpu", "threads": 1}
    result = evaluate(copied, data="odd_and_even:parity", **quick)
    test = result["test"]
    assert test is not None
    assert result["headline"]["name"] == "odd"
    target, recall = open_data("digits-lt").test.target.numpy(), np.array(test["recall"])
    counts = np.bincount(target)
    odd = (recall * counts)[1::2].sum() / counts[1::2].sum()
    assert test["scores"]["odd"] == pytest.approx(odd)
    assert evaluate(copied, data="odd_and_even:parity", scoring="even", **quick)["headline"] == {
        "name": "even",
        "higher_is_better": True,
    }
    with pytest.raises(ValueError, match="unknown score of parity 'evn': did you mean even"):
        evaluate(copied, data="odd_and_even:parity", scoring="evn", **quick)
    assert evaluate(copied, scoring="top1", **quick)["headline"]["name"] == "top1"


def test_two_folders_of_one_name_are_two_evaluations(copied: Path, tmp_path: Path) -> None:
    test = open_data("digits-lt").test
    for site in range(2):
        for index in range(site, 500, 20):
            path = tmp_path / f"site{site}" / "new" / str(int(test.target[index])) / f"{index}.png"
            path.parent.mkdir(parents=True, exist_ok=True)
            test.inputs.image(index).save(path)
        evaluate(copied, data=tmp_path / f"site{site}" / "new", device="cpu", threads=1)
    assert len(list(copied.glob("eval-new-*-none.json"))) == 2


def test_prediction_sets_and_adjustments_are_for_a_single_pass(
    tmp_path: Path,
) -> None:
    train(
        "balanced_softmax", "digits-lt", tmp_path / "run", **QUICK, tta="flip", adjust="validation"
    )
    loaded, data = load(tmp_path / "run", device="cpu"), open_data("digits-lt")
    assert loaded.thresholds is not None
    once = {
        name: np.log(loaded.predict_proba([split.inputs.image(row) for row in range(len(split))]))
        for name, split in (("val", data.val), ("test", data.test))
    }
    expected = calibrate(once["val"], data.val.target.numpy(), groups=data.groups)
    assert np.allclose(loaded.thresholds.values, expected.values, atol=1e-5)
    test = loaded.row["test"]
    assert test is not None
    inside = sets(once["test"], expected.values)[np.arange(500), data.test.target.numpy()]
    assert test["conformal"]["coverage"] == pytest.approx(inside.mean(), abs=0.003)
    repeated = evaluate(tmp_path / "run", device="cpu", threads=1)["test"]
    assert repeated is not None
    assert repeated["conformal"]["coverage"] == pytest.approx(
        test["conformal"]["coverage"], abs=0.003
    )


def test_mirroring_is_warned_of_where_it_makes_another_class(
    copied: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    evaluate(copied, tta="flip", device="cpu", threads=1)
    assert (
        "warning: --tta flip mirrors images, and mirrored images of digits-lt are not of their"
        " class" in capsys.readouterr().err
    )
    evaluate(copied, device="cpu", threads=1)
    assert "warning" not in capsys.readouterr().err


def test_evaluating_notices_that_the_data_changed(copied: Path) -> None:
    record = json.loads((copied / "recipe.json").read_text())
    changed(copied / "recipe.json", data=record["data"] | {"hash": "0" * 64})
    with pytest.raises(ValueError, match="expected the data of the run"):
        evaluate(copied, device="cpu")


def test_prediction_sets_are_calibrated_on_validation_and_tried_on_test(copied: Path) -> None:
    row = json.loads((copied / "row.json").read_text())
    conformal = row["test"]["conformal"]
    assert "conformal" not in row["val"]
    assert (conformal["level"], conformal["images"]) == (0.9, row["val"]["images"])
    shipped = json.loads((copied / "model" / "conformal.json").read_text())
    assert (shipped["level"], shipped["score"], len(shipped["thresholds"])) == (
        0.9,
        "1 - softmax probability",
        10,
    )
    val, test = (
        read_predictions(copied / "predictions" / f"{name}.npz")[0] for name in ("val", "test")
    )
    probability = torch.from_numpy(test.logits["logits"]).double().softmax(1)
    inside = 1 - probability <= torch.tensor(shipped["thresholds"], dtype=torch.double)
    target = torch.from_numpy(test.target)
    assert inside[torch.arange(500), target].double().mean().item() == pytest.approx(
        conformal["coverage"]
    )
    nonconformity = 1 - torch.from_numpy(val.logits["logits"]).double().softmax(1)
    # It has images enough for a threshold of its own
    most = torch.from_numpy(val.target).bincount(minlength=10).argmax()
    scores = nonconformity[torch.from_numpy(val.target) == most][:, most].sort().values
    assert shipped["thresholds"][most] == pytest.approx(
        scores[-(-(len(scores) + 1) * 9 // 10) - 1].item()
    )
    (copied / "model" / "conformal.json").unlink()
    evaluate(copied, rewrite=True, device="cpu", threads=1)
    assert json.loads((copied / "model" / "conformal.json").read_text()) == shipped


def test_other_data_is_evaluated_with_the_thresholds_of_the_run(
    copied: Path, tmp_path: Path
) -> None:
    test = open_data("digits-lt").test
    for index in range(0, 500, 4):
        for split in ("train", "test"):
            path = tmp_path / "data" / split / str(int(test.target[index])) / f"{index}.png"
            path.parent.mkdir(parents=True, exist_ok=True)
            test.inputs.image(index).save(path)
    result = evaluate(copied, data=tmp_path / "data", device="cpu", threads=1)["test"]
    assert result is not None
    assert result["conformal"]["images"] == 41  # of the run's own validation
    (copied / "model" / "conformal.json").unlink()
    result = evaluate(copied, data=tmp_path / "data", device="cpu", threads=1)["test"]
    assert result is not None
    assert "conformal" not in result
