"""A run folder: what is in it, who it belongs to, what comes back from it."""

from __future__ import annotations

import importlib
import json
import multiprocessing
import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

import longtail
from longtail.core import NonFinite
from longtail.data.dataset import Dataset
from longtail.data.loader import EvalLoader
from longtail.data.open import open_data, open_for_evaluation
from longtail.data.request import DataRequest, Geometry
from longtail.engine.run import Run
from longtail.metrics.conformal import calibrate, sets
from longtail.posthoc import adjustment
from longtail.recipes import signatures
from longtail.recipes.signatures import read
from longtail.recipes.supervised import cross_entropy
from longtail.records.lock import locked
from longtail.records.predictions import read_predictions
from longtail.records.scores import Headline
from longtail.runs import evaluate, load, train, training
from longtail.runs.identity import RunConfig, check_outside
from longtail.runs.images import Preprocessing
from longtail.runs.restore import restore_method

QUICK: dict[str, Any] = {"epochs": 1, "batch": 64, "threads": 1, "device": "cpu"}


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("runs") / "run"
    train("balanced_softmax", "digits-lt", folder, **QUICK)
    return folder


@pytest.fixture
def copied(finished: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(finished, tmp_path / "run"))


def changed(path: Path, **values: Any) -> None:
    path.write_text(json.dumps(json.loads(path.read_text()) | values))


def test_the_folder_is_readable_without_us(finished: Path) -> None:
    names = {str(own.relative_to(finished)) for own in finished.rglob("*") if own.is_file()}
    assert {
        "recipe.json",
        "recipe.py",
        "row.json",
        "predictions/val.npz",
        "predictions/test.npz",
    } <= names
    assert {
        "model/model.safetensors",
        "model/spec.json",
        "model/README.md",
        "train/journal.jsonl",
    } <= names
    assert not [name for name in names if name.endswith(".part")]
    record = json.loads((finished / "recipe.json").read_text())
    assert record["keywords"]["epochs"] == 1
    assert record["keywords"]["tau"] == 1.0
    assert (
        record["command"]
        == f"longtail train balanced_softmax --data digits-lt --out {finished} --epochs 1 --batch 64"
    )
    row = json.loads((finished / "row.json").read_text())
    assert row["test"]["images"] == 500
    assert row["val"]["images"] == 41
    assert row["selection"] == "last epoch, ema"
    assert row["data"]["hash"] == record["data"]["hash"] == open_data("digits-lt").hash
    assert row["best_validation"]["epoch"] == 1
    assert "folder" not in row


def test_the_same_call_again_is_done_and_another_is_refused(finished: Path) -> None:
    restore_method = train(
        "balanced_softmax", "digits-lt", finished, **QUICK | {"device": "auto", "workers": 1}
    )
    assert not restore_method.fresh
    assert restore_method.row is not None
    assert restore_method.row["folder"] == str(finished)
    train(
        "logit_adjustment", Path("digits-lt"), finished, **QUICK, imbalance=20.0
    )  # other words for the same run
    for other, message in (
        ({"tau": 0.5}, "tau: 1.0 in the folder, 0.5 requested"),
        ({"seed": 3}, "seed: 0 in the folder, 3 requested"),
        ({"view_seed": 3}, "view_seed"),
        ({"tta": "flip"}, "tta: none in the folder, flip requested"),
        ({"adjust": "validation"}, "adjust: none in the folder, validation requested"),
        ({"imbalance": 10.0}, "data imbalance"),
        ({"mirror": True}, "mirror: False in the folder, True requested"),
        ({"protocol": "paper"}, "data protocol"),
        ({"split_seed": 1}, "data split_seed"),
    ):
        with pytest.raises(ValueError, match=message):
            train("balanced_softmax", "digits-lt", finished, **QUICK | other)
    with pytest.raises(
        ValueError, match="recipe: balanced_softmax in the folder, cross_entropy requested"
    ):
        train("cross_entropy", "digits-lt", finished, **QUICK)


def test_a_folder_of_an_older_version_is_the_same_run(copied: Path) -> None:
    record = json.loads((copied / "recipe.json").read_text())
    del record["adjust"], record["keywords"]["weights"]  # flags and keywords that it did not know
    (copied / "recipe.json").write_text(json.dumps(record))
    assert not train("balanced_softmax", "digits-lt", copied, **QUICK).fresh
    with pytest.raises(ValueError, match="weights: random in the folder, timm requested"):
        train("balanced_softmax", "digits-lt", copied, **QUICK, weights="timm")


@pytest.fixture(scope="module")
def adjusted(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("adjusted") / "run"
    train("ride", "digits-lt", folder, **QUICK, adjust="validation")
    return folder


def test_an_adjusted_run_differs_from_the_plain_one_by_its_adjustment_only(
    adjusted: Path, tmp_path: Path
) -> None:
    train("ride", "digits-lt", tmp_path / "plain", **QUICK)
    plain, row = (
        json.loads((folder / "row.json").read_text()) for folder in (tmp_path / "plain", adjusted)
    )
    assert row["selection"] == f"{plain['selection']}, adjusted on validation"
    assert row["parameters"] == plain["parameters"]
    for split in ("val", "test"):
        assert row["adjustment"][split]["recall"] == plain[split]["recall"]
        assert row["adjustment"][split]["ece"] == plain[split]["ece"]
        before, _ = read_predictions(tmp_path / "plain" / "predictions" / f"{split}.npz")
        after, _ = read_predictions(adjusted / "predictions" / f"{split}.npz")
        if split == "val":
            chosen = adjustment(
                before.logits["logits"], before.target, np.array(row["data"]["counts_after"])
            )
            assert (chosen.tau, chosen.temperature) == (
                row["adjustment"]["tau"],
                row["adjustment"]["temperature"],
            )
        assert set(after.logits) == {"logits", "expert1", "expert2", "expert3"}
        for head, logits in before.logits.items():
            assert np.array_equal(chosen(logits), after.logits[head])
    assert "adjustment" not in plain


def test_an_adjusted_network_is_loaded_and_evaluated_with_its_adjustment(adjusted: Path) -> None:
    saved, _ = read_predictions(adjusted / "predictions" / "test.npz")
    test = open_data("digits-lt").test
    found = load(adjusted, device="cpu").predict(
        [test.pictures.image(index) for index in range(20)]
    )
    assert torch.allclose(
        found.probabilities, torch.from_numpy(saved.logits["logits"][:20]).softmax(dim=1), atol=1e-5
    )
    row = json.loads((adjusted / "row.json").read_text())
    restore_method = evaluate(adjusted, device="cpu", threads=1)["test"]
    assert restore_method is not None
    assert restore_method["recall"] == row["test"]["recall"]
    assert restore_method["ece"] == pytest.approx(row["test"]["ece"], abs=1e-4)
    assert set(restore_method["heads"]) == {"expert1", "expert2", "expert3"}


def test_adjusting_needs_training_images_of_every_class(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def without_nines(request: DataRequest, **other: Any) -> Dataset:
        data = open_data(request.source)
        return replace(data, counts=data.counts * (torch.arange(10) < 9))

    monkeypatch.setattr(training, "open_dataset", without_nines)
    with pytest.raises(ValueError, match="digits-lt has classes without: use --adjust none"):
        train("balanced_softmax", "digits-lt", tmp_path / "run", **QUICK, adjust="validation")
    assert not (tmp_path / "run").exists()


def test_adjusting_needs_validation_images(tmp_path: Path) -> None:
    with pytest.raises(
        ValueError,
        match=r"expected validation images to adjust on, got none of digits-lt \(protocol paper\)",
    ):
        train(
            "balanced_softmax",
            "digits-lt",
            tmp_path / "run",
            **QUICK,
            protocol="paper",
            adjust="validation",
        )
    assert not (tmp_path / "run").exists()


def test_a_folder_with_other_things_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "thesis.tex").write_text("precious")
    with pytest.raises(ValueError, match=r"other files \(thesis.tex\)"):
        train("cross_entropy", "digits-lt", tmp_path, **QUICK)
    with pytest.raises(ValueError, match="got a file"):
        train("cross_entropy", "digits-lt", tmp_path / "thesis.tex", **QUICK)


@pytest.mark.parametrize("data", ["images", "images/../images", "."])
def test_a_run_is_not_written_among_its_images(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, data: str
) -> None:
    (tmp_path / "images" / "cat").mkdir(parents=True)
    monkeypatch.chdir(tmp_path / "images" if data == "." else tmp_path)
    out = Path("runs/x") if data == "." else Path("images/runs/x")
    with pytest.raises(
        ValueError,
        match=r"expected a folder outside of the data for --out, got .*runs/x.*such as --out .*runs/x",
    ):
        train("cross_entropy", data, out, **QUICK)
    assert [own.name for own in (tmp_path / "images").iterdir()] == ["cat"]
    check_outside(tmp_path / "runs" / "x", data)
    check_outside(tmp_path / "images-2", data)
    (tmp_path / "digits-lt").mkdir()
    check_outside(tmp_path / "digits-lt" / "x", "digits-lt")  # a known name, not that folder


def test_killed_before_its_row_a_run_is_concluded(copied: Path) -> None:
    before = (copied / "model" / "model.safetensors").read_bytes()
    row = json.loads((copied / "row.json").read_text())
    (copied / "row.json").unlink()
    (copied / "predictions" / "test.npz").unlink()
    result = train("balanced_softmax", "digits-lt", copied, **QUICK)
    assert result.fresh
    assert result.row is not None
    assert result.row["test"] == row["test"]
    assert (copied / "model" / "model.safetensors").read_bytes() == before


def test_loading_gives_the_network_that_was_tested(finished: Path) -> None:
    loaded = load(finished, device="cpu")
    test = open_data("digits-lt").test
    saved, _ = read_predictions(finished / "predictions" / "test.npz")
    images = [test.pictures.image(index) for index in range(20)]
    answers = loaded.predict(images)
    assert torch.allclose(
        answers.probabilities,
        torch.from_numpy(saved.logits["logits"][:20]).softmax(dim=1),
        atol=1e-5,
    )
    assert answers.labels == tuple(
        loaded.classes[int(i)] for i in saved.logits["logits"][:20].argmax(axis=1)
    )
    assert loaded.classes == tuple("0123456789")
    assert loaded.row["recipe"] == "balanced_softmax"
    assert longtail.load is load
    assert longtail.train is train
    assert longtail.nn is importlib.import_module("longtail.nn")
    assert all(getattr(longtail, name) for name in dir(longtail))
    with pytest.raises(AttributeError, match="no attribute 'losess'"):
        _ = longtail.losess


def test_loaded_networks_take_paths_pictures_and_tensors(finished: Path, tmp_path: Path) -> None:
    loaded = load(finished, device="cpu")
    picture = Image.fromarray(np.random.default_rng(0).integers(0, 255, (8, 8, 3), dtype=np.uint8))
    picture.save(tmp_path / "a.png")
    tensor = torch.from_numpy(np.asarray(picture).copy()).permute(2, 0, 1).float() / 255
    ways = [
        loaded.predict(given).probabilities
        for given in (
            picture,
            tmp_path / "a.png",
            str(tmp_path / "a.png"),
            [picture],
            tensor,
            tensor[None],
        )
    ]
    assert all(torch.equal(way, ways[0]) for way in ways)
    (tmp_path / "b.png").write_bytes((tmp_path / "a.png").read_bytes()[:40])
    strange: list[Any] = [
        tensor * 255,
        tensor[:1],
        torch.zeros(0, 3, 8, 8),
        tmp_path / "b.png",
        tmp_path / "none.png",
        [],
    ]
    for given in strange:
        with pytest.raises(ValueError, match="expected"):
            loaded.predict(given)


@pytest.mark.parametrize(
    "kind",
    [
        "unfinished",
        "empty",
        "newer row",
        "newer spec",
        "truncated",
        "other network",
        "no weights",
        "no spec",
        "broken",
    ],
)
def test_a_folder_that_cannot_be_loaded_says_why(copied: Path, tmp_path: Path, kind: str) -> None:
    weights, spec = copied / "model" / "model.safetensors", copied / "model" / "spec.json"
    if kind == "unfinished":
        (copied / "row.json").unlink()
    elif kind == "empty":
        (copied := tmp_path / "empty").mkdir()
    elif kind == "newer row":
        changed(copied / "row.json", format=99)
    elif kind == "newer spec":
        changed(spec, format=99)
    elif kind == "truncated":
        weights.write_bytes(weights.read_bytes()[:-100])
    elif kind == "other network":
        network = json.loads(spec.read_text())["network"]
        network["network"]["width"] = 8
        network["head"]["dim"] = 32
        changed(spec, network=network)
    elif kind == "no weights":
        weights.unlink()
    elif kind == "no spec":
        spec.unlink()
    elif kind == "broken":
        spec.write_text(spec.read_text()[:50])
    words = {
        "unfinished": "unfinished",
        "empty": "empty",
        "newer row": "newer",
        "newer spec": "newer",
        "no weights": "nothing at",
    }
    with pytest.raises(ValueError, match=words.get(kind, "expected")):
        load(copied, device="cpu")


def test_evaluating_again_gives_the_row_and_leaves_it(copied: Path) -> None:
    row, text = json.loads((copied / "row.json").read_text()), (copied / "row.json").read_text()
    found = evaluate(copied, device="cpu", threads=1)
    assert found["test"] is not None
    assert found["test"]["top1"] == row["test"]["top1"]
    evaluate(copied, tta="flip", device="cpu", threads=1)
    assert (copied / "row.json").read_text() == text
    assert sorted(own.name for own in copied.glob("eval-*")) == [
        "eval-digits-lt-flip.json",
        "eval-digits-lt-none.json",
    ]
    changed(copied / "row.json", test=None)
    (copied / "predictions" / "test.npz").unlink()
    evaluate(copied, rewrite=True, device="cpu", threads=1)
    assert json.loads((copied / "row.json").read_text())["test"] == found["test"]
    assert (copied / "predictions" / "test.npz").exists()
    with pytest.raises(ValueError, match="remove --data and --tta"):
        evaluate(copied, rewrite=True, tta="flip", device="cpu")


def test_evaluating_again_sees_images_as_training_did(
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
    restore_method = evaluate(tmp_path / "run", device="cpu", threads=1)
    assert restore_method["test"] is not None
    assert row["test"] is not None
    assert restore_method["test"]["ece"] == row["test"]["ece"]


def test_evaluating_on_other_data_goes_by_class_names(copied: Path, tmp_path: Path) -> None:
    test = open_data("digits-lt").test
    for index in range(0, 500, 5):
        label = int(test.target[index])
        if label in (3, 7):  # fewer classes, and so other numbers
            path = tmp_path / "data" / "test" / str(label) / f"{index}.png"
            path.parent.mkdir(parents=True, exist_ok=True)
            test.pictures.image(index).save(path)
            shutil.copytree(
                path.parent, tmp_path / "data" / "train" / str(label), dirs_exist_ok=True
            )
    found = evaluate(copied, data=tmp_path / "data", device="cpu", threads=1)["test"]
    assert found is not None
    assert [i for i, value in enumerate(found["recall"]) if value is not None] == [3, 7]
    (tmp_path / "data" / "train" / "7").rename(tmp_path / "data" / "train" / "seven")
    (tmp_path / "data" / "test" / "7").rename(tmp_path / "data" / "test" / "seven")
    with pytest.raises(ValueError, match=r"1 others \(seven\)"):
        evaluate(copied, data=tmp_path / "data", device="cpu", threads=1)


def test_a_folder_without_splits_is_evaluated_whole(copied: Path, tmp_path: Path) -> None:
    test = open_data("digits-lt").test
    for index in range(0, 500, 10):
        path = tmp_path / "data" / str(int(test.target[index])) / f"{index}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        test.pictures.image(index).save(path)
    saved, _ = read_predictions(copied / "predictions" / "test.npz")
    found = evaluate(copied, data=tmp_path / "data", device="cpu", threads=1)
    assert found["val"] is None
    assert found["test"] is not None
    assert found["test"]["images"] == 50
    assert found["test"]["top1"] == (saved.logits["logits"].argmax(1) == saved.target)[::10].mean()
    (tmp_path / "rare").mkdir()
    (tmp_path / "data" / "9").rename(tmp_path / "rare" / "9")  # one class alone can be judged
    alone = evaluate(copied, data=tmp_path / "rare", device="cpu", threads=1)["test"]
    assert alone is not None
    assert alone["balanced"] == found["test"]["recall"][9]


def test_a_folder_that_was_moved_is_found_and_never_judged_by_what_was_learnt(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    digits = open_data("digits-lt").test
    for index in range(0, 500, 3):
        path = tmp_path / "photos" / str(int(digits.target[index]) % 3) / f"{index}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        digits.pictures.image(index).save(path)
    monkeypatch.chdir(tmp_path)
    test = train("cross_entropy", "photos", tmp_path / "run", **QUICK).row["test"]  # type: ignore[index]
    (tmp_path / "photos").rename(tmp_path / "moved")
    with pytest.raises(
        ValueError,
        match=r"expected the run's images at photos, got nothing there.*pass their new place with --root",
    ):
        evaluate(tmp_path / "run", device="cpu", threads=1)
    assert evaluate(tmp_path / "run", root="moved", device="cpu", threads=1)["test"] == test
    assert restore_method(tmp_path / "run", root="moved")[1].test.ids
    capsys.readouterr()
    assert evaluate(tmp_path / "run", data="moved", device="cpu", threads=1)["test"] == test
    assert "its own held-out images are judged" in capsys.readouterr().err
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


def test_a_run_that_recorded_no_geometry_is_resumed_with_that_of_its_version(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rng = np.random.default_rng(0)
    for index in range(40):
        place = tmp_path / "photos" / "ab"[index % 2]
        place.mkdir(parents=True, exist_ok=True)
        pixels = rng.integers(256, size=(8, 16, 3), dtype=np.uint8)
        Image.fromarray(pixels).save(place / f"{index}.png")
    monkeypatch.setattr("longtail.data.images.reading.MEMORY", 0)
    given: dict[str, Any] = {**QUICK, "batch": 8, "size": 8}
    out = tmp_path / "run"
    row = train("cross_entropy", tmp_path / "photos", out, geometry="crop", **given).row
    assert row is not None
    record = json.loads((out / "recipe.json").read_text())
    assert record["data"].pop("geometry") == row["data"]["geometry"] == "crop"
    (out / "recipe.json").write_text(json.dumps(record))
    assert evaluate(out, device="cpu", threads=1)["test"] == row["test"]
    with pytest.raises(ValueError, match="geometry: crop in the folder, pad"):
        train("cross_entropy", tmp_path / "photos", out, geometry="pad", **given)
    (out / "row.json").unlink()
    again = train("cross_entropy", tmp_path / "photos", out, **given).row
    assert again is not None
    assert (again["test"], again["data"]) == (row["test"], row["data"])
    assert json.loads((out / "recipe.json").read_text())["data"]["geometry"] == "crop"
    new = train("cross_entropy", tmp_path / "photos", tmp_path / "new", **given).row
    assert new is not None
    assert new["data"]["geometry"] == "pad"


def test_two_folders_of_one_name_are_two_evaluations(copied: Path, tmp_path: Path) -> None:
    test = open_data("digits-lt").test
    for site in range(2):
        for index in range(site, 500, 20):
            path = tmp_path / f"site{site}" / "new" / str(int(test.target[index])) / f"{index}.png"
            path.parent.mkdir(parents=True, exist_ok=True)
            test.pictures.image(index).save(path)
        evaluate(copied, data=tmp_path / f"site{site}" / "new", device="cpu", threads=1)
    assert len(list(copied.glob("eval-new-*-none.json"))) == 2


def test_prediction_sets_and_adjustments_are_for_a_network_that_is_asked_once(
    tmp_path: Path,
) -> None:
    train(
        "balanced_softmax", "digits-lt", tmp_path / "run", **QUICK, tta="flip", adjust="validation"
    )
    loaded, data = load(tmp_path / "run", device="cpu"), open_data("digits-lt")
    assert loaded.thresholds is not None
    once = {
        name: np.log(loaded.predict_proba([split.pictures.image(row) for row in range(len(split))]))
        for name, split in (("val", data.val), ("test", data.test))
    }
    expected = calibrate(once["val"], data.val.target.numpy(), groups=data.groups)
    assert np.allclose(loaded.thresholds.values, expected.values, atol=1e-5)
    test = loaded.row["test"]
    assert test is not None
    inside = sets(once["test"], expected.values)[np.arange(500), data.test.target.numpy()]
    assert test["conformal"]["coverage"] == pytest.approx(inside.mean(), abs=0.003)
    restore_method = evaluate(tmp_path / "run", device="cpu", threads=1)["test"]
    assert restore_method is not None
    assert restore_method["conformal"]["coverage"] == pytest.approx(
        test["conformal"]["coverage"], abs=0.003
    )


def test_a_child_does_not_hold_what_its_parent_holds(tmp_path: Path) -> None:
    with locked(tmp_path / "run"):
        context = multiprocessing.get_context("fork")
        begun = context.Event()

        def wait() -> None:
            begun.set()
            time.sleep(30)

        child = context.Process(target=wait)
        child.start()
        assert begun.wait(30)
    try:
        with locked(tmp_path / "run"):
            pass
    finally:
        child.kill()
        child.join()


def test_a_folder_is_trained_into_by_one_process_at_a_time(tmp_path: Path) -> None:
    with (
        locked(tmp_path / "run"),
        pytest.raises(ValueError, match="expected to be the only one that trains into"),
    ):
        train("balanced_softmax", "digits-lt", tmp_path / "run", **QUICK)
    assert train("balanced_softmax", "digits-lt", tmp_path / "run", **QUICK).fresh


def test_a_folder_that_another_command_began_meanwhile_is_left_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    train("balanced_softmax", "digits-lt", tmp_path / "other", seed=1, **QUICK)

    @contextmanager
    def late(folder: Path) -> Iterator[None]:
        shutil.copytree(tmp_path / "other", folder, ignore=shutil.ignore_patterns("row.json"))
        yield

    monkeypatch.setattr("longtail.runs.training.locked", late)
    with pytest.raises(ValueError, match="seed"):
        train("balanced_softmax", "digits-lt", tmp_path / "run", **QUICK)
    assert json.loads((tmp_path / "run" / "recipe.json").read_text())["seed"] == 1


def test_mirroring_is_warned_of_where_it_makes_another_class(
    copied: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    evaluate(copied, tta="flip", device="cpu", threads=1)
    assert (
        "warning: --tta flip mirrors images, and mirrored images of digits-lt are not of their class"
        in capsys.readouterr().err
    )
    evaluate(copied, device="cpu", threads=1)
    assert "warning" not in capsys.readouterr().err


def test_a_run_from_before_its_recipe_moved_or_had_a_flag_is_the_same_run(copied: Path) -> None:
    record = json.loads((copied / "recipe.json").read_text())
    del record["data"]["mirror"]
    changed(
        copied / "recipe.json",
        target="longtail.recipes.elsewhere:balanced_softmax",
        data=record["data"],
    )
    assert not train("balanced_softmax", "digits-lt", copied, **QUICK).fresh
    with pytest.raises(ValueError, match=r"tau: 1\.0 in the folder, 0\.5 requested"):
        train("balanced_softmax", "digits-lt", copied, **QUICK, tau=0.5)
    evaluate(copied, device="cpu", threads=1)
    method, data = restore_method(copied)
    assert not data.mirror
    saved = load(copied, device="cpu").network.state_dict()
    assert all(torch.equal(own, saved[name]) for name, own in method.deploy().state_dict().items())


def test_evaluating_notices_that_the_data_changed(copied: Path) -> None:
    record = json.loads((copied / "recipe.json").read_text())
    changed(copied / "recipe.json", data=record["data"] | {"hash": "0" * 64})
    with pytest.raises(ValueError, match="expected the data of the run"):
        evaluate(copied, device="cpu")


def test_the_command_is_one_that_asks_for_the_same() -> None:
    recipe = read("balanced_softmax")
    asked = RunConfig(
        recipe=recipe,
        keywords=recipe.keywords({"lr": 0.5, "tau": 2}),
        data=DataRequest("my data", imbalance=50.0, mirror=False),
        seed=1,
        view_seed=1,
        tta="flip",
        adjust="validation",
    )
    assert asked.command(Path("runs/x")) == (
        "longtail train balanced_softmax --data 'my data' --out runs/x --imbalance 50.0 --no-mirror --seed 1 --tta flip "
        "--adjust validation --tau 2.0 --lr 0.5"
    )


def test_a_recipe_that_returns_no_method_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "forgetful.py").write_text(
        "def forget(run, data, *, where: 'Path | None' = None):\n    print(type(where).__name__)\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    with pytest.raises(ValueError, match=r"return what `run\.fit` gave"):
        train("forgetful:forget", "digits-lt", tmp_path / "run", where=tmp_path, device="cpu")


@pytest.mark.parametrize(
    ("returned", "message"),
    [
        (
            "Classify(nn.Flatten(), Linear(192, 10), CrossEntropy())",
            "expected a network built from a spec, got Flatten",
        ),
        (
            "Classify(network, nn.Linear(16, 10), CrossEntropy())",
            "expected a head of longtail.nn, such as Linear or Cosine, got a Linear",
        ),
        (
            "Classify(network, Linear(17, 10), CrossEntropy())",
            "expected a head for the 16 features of fast_cnn, got one for 17",
        ),
        ("Classify(Odd(), Linear(4, 10), CrossEntropy())", "unknown network 'odd'"),
        (
            "Classify(Bent(), Linear(16, 10), CrossEntropy())",
            "expected a network that its spec rebuilds, got a Classifier that has another",
        ),
        (
            "Encode()",
            "got Encode, which deploys a Backbone without a head: pretraining recipes end with a linear probe",
        ),
        (
            "Classify(network, Linear(16, 9), CrossEntropy())",
            "expected logits of the 10 classes of digits-lt, got a network for 9",
        ),
    ],
)
def test_what_could_not_be_deployed_is_refused_before_it_learns(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, returned: str, message: str
) -> None:
    source = RECIPES_OF_OUR_OWN.replace(
        "Classify(network, Linear(network.dim, len(data.classes)), BinaryCrossEntropy())", returned
    )
    name = tmp_path.name  # for modules that were imported are not read again
    (tmp_path / f"{name}.py").write_text(
        f"from torch import nn\nfrom longtail.losses import CrossEntropy\n{source}{NETWORKS_OF_OUR_OWN}"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setattr(Run, "_finish", lambda *_: pytest.fail("it began to learn"))
    with pytest.raises(ValueError, match=message):
        train(f"{name}:binary", "digits-lt", tmp_path / "run", device="cpu", threads=1)
    assert not (tmp_path / "run").exists()


RECIPES_OF_OUR_OWN = """
import torch
from longtail.core import Stage
from longtail.data.loader import TrainLoader
from longtail.data.views import CropFlip
from longtail.engine.optim import sgd
from longtail.losses import BinaryCrossEntropy
from longtail.methods import Classify
from longtail.nn import Linear, build
from longtail.recipes.builders import validation


def fit(run, data, method):
    view = CropFlip(data.size, pad=0, flip=False)
    loader = TrainLoader(data.train, view=view, batch=64, seed=run.view_seed, workers=0)
    return run.fit(Stage(name="train", method=method, data=loader, epochs=1, optimizer=sgd(lr=0.1), evals=validation(data, data.size)))


def binary(run, data):
    network = build({"name": "fast_cnn", "size": data.size, "width": 4})
    return fit(run, data, Classify(network, Linear(network.dim, len(data.classes)), BinaryCrossEntropy()))


class Asleep(Linear):
    def forward(self, features):
        return super().forward(features) if self.training else super().forward(features) * float("nan")


def silent(run, data):
    network = build({"name": "fast_cnn", "size": data.size, "width": 4})
    return fit(run, data, Classify(network, Asleep(network.dim, len(data.classes)), BinaryCrossEntropy()))
"""


NETWORKS_OF_OUR_OWN = """

from longtail.core import Method, Outcome
from longtail.nn import Network


class Odd(Network):
    def __init__(self):
        super().__init__({"name": "odd", "size": 8}, 4)
        self.layer = nn.Linear(3 * 64, 4)

    def forward(self, image):
        return self.layer(image.flatten(1))


class Encode(Method):
    # an encoder with as many features as the data has classes

    def __init__(self):
        super().__init__()
        self.network = Odd10()

    def forward(self, batch, clock):
        return Outcome({"size": self.network(batch["image"]).square().mean()})

    def predict(self, image):
        return self.network(image)

    def deploy(self):
        return self.network


def Odd10():
    network = build({"name": "resnet32", "size": 8, "width": 4})
    network.body.stages.append(nn.Conv2d(16, 10, 1))
    network.dim = 10
    return network


def Bent():
    network = build({"name": "fast_cnn", "size": 8, "width": 4})
    network.body = nn.Sequential(network.body, nn.Linear(16, 16))
    return network
"""


def test_a_recipe_may_be_given_as_a_function_and_data_only_by_its_name(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="expected the name or the path of data, got a Dataset"):
        train("cross_entropy", open_data("digits-lt"), tmp_path / "run")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="unknown keyword of cross_entropy 'tau'"):
        train(cross_entropy, "digits-lt", tmp_path / "run", tau=1.0)


def test_a_recipe_that_was_edited_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    source = tmp_path / "our_recipes.py"
    source.write_text(RECIPES_OF_OUR_OWN)
    monkeypatch.syspath_prepend(str(tmp_path))
    for text, warned in (
        (RECIPES_OF_OUR_OWN, False),
        (RECIPES_OF_OUR_OWN.replace("lr=0.1", "lr=0.2"), True),
    ):
        source.write_text(text)
        signatures._parsed.cache_clear()  # as in another process
        train("our_recipes:binary", "digits-lt", tmp_path / "run", device="cpu", threads=1)
        assert ("the source of our_recipes:binary is not that" in capsys.readouterr().err) is warned


def test_the_best_epoch_is_that_of_the_weights_that_were_kept(tmp_path: Path) -> None:
    row: Any = train(
        "cross_entropy",
        "digits-lt",
        tmp_path / "run",
        **{**QUICK, "epochs": 4},
        keep="best",
        lr=0.5,
    ).row
    lines = [
        json.loads(line)
        for line in (tmp_path / "run" / "train" / "journal.jsonl").read_text().splitlines()
    ]
    judged = {
        line["epoch"]: line["ema/val/balanced"] for line in lines if "ema/val/balanced" in line
    }
    best = min(judged, key=lambda epoch: (-judged[epoch], epoch))
    assert row["best_validation"] == {"epoch": best, "value": judged[best]}
    assert row["val"]["balanced"] == pytest.approx(judged[best])
    history = [
        {
            "name": "train",
            "keep": "best ema/val/balanced",
            "best": {"metric": "ema/val/balanced", "epoch": 3, "value": 0.65},
        }
    ]
    (tmp_path / "train").mkdir()
    (tmp_path / "train" / "journal.jsonl").write_text('{"epoch": 1, "val/balanced": 0.7}\n')
    headline: Headline = {"name": "balanced", "higher_is_better": True}
    assert training._best(tmp_path, history, headline) == {"epoch": 3, "value": 0.65}, (
        "not that of the raw weights"
    )


def test_a_network_of_a_binary_loss_is_judged_by_its_sigmoid(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "our_recipes.py").write_text(RECIPES_OF_OUR_OWN)
    monkeypatch.syspath_prepend(str(tmp_path))
    result = train("our_recipes:binary", "digits-lt", tmp_path / "run", device="cpu", threads=1)
    assert result.row is not None
    for own in (result.row["val"], result.row["test"]):
        assert own is not None
        assert own["confidence"] == "sigmoid"
        assert (
            own["ece"]
            == own["calibration"]["sigmoid"]["ece"]
            != own["calibration"]["softmax"]["ece"]
        )
    row = json.loads((tmp_path / "run" / "row.json").read_text())
    evaluate(tmp_path / "run", rewrite=True, device="cpu", threads=1)
    restore_method = json.loads((tmp_path / "run" / "row.json").read_text())
    assert restore_method["test"]["confidence"] == "sigmoid"
    assert restore_method["test"] == row["test"]
    card = (tmp_path / "run" / "model" / "README.md").read_text(encoding="utf-8")
    assert (
        f"(by sigmoid; by softmax, as probabilities are given, {row['test']['calibration']['softmax']['ece']:.3f})"
        in card
    )


def test_answers_that_are_not_finite_end_a_run_as_a_diverged_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "our_silent_recipes.py").write_text(RECIPES_OF_OUR_OWN)
    monkeypatch.syspath_prepend(str(tmp_path))
    with pytest.raises(NonFinite, match="training diverged"):
        train("our_silent_recipes:silent", "digits-lt", tmp_path / "run", device="cpu", threads=1)
    assert not (tmp_path / "run" / "row.json").exists()


def test_prediction_sets_are_calibrated_on_validation_and_tried_on_test(copied: Path) -> None:
    row = json.loads((copied / "row.json").read_text())
    found = row["test"]["conformal"]
    assert "conformal" not in row["val"]
    assert (found["level"], found["images"]) == (0.9, row["val"]["images"])
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
        found["coverage"]
    )
    own = 1 - torch.from_numpy(val.logits["logits"]).double().softmax(1)
    most = (
        torch.from_numpy(val.target).bincount(minlength=10).argmax()
    )  # it has images enough for a threshold of its own
    scores = own[torch.from_numpy(val.target) == most][:, most].sort().values
    assert shipped["thresholds"][most] == pytest.approx(
        scores[-(-(len(scores) + 1) * 9 // 10) - 1].item()
    )
    (copied / "model" / "conformal.json").unlink()
    evaluate(copied, rewrite=True, device="cpu", threads=1)
    assert json.loads((copied / "model" / "conformal.json").read_text()) == shipped


def test_other_data_is_judged_by_the_thresholds_of_the_run(copied: Path, tmp_path: Path) -> None:
    test = open_data("digits-lt").test
    for index in range(0, 500, 4):
        for split in ("train", "test"):
            path = tmp_path / "data" / split / str(int(test.target[index])) / f"{index}.png"
            path.parent.mkdir(parents=True, exist_ok=True)
            test.pictures.image(index).save(path)
    found = evaluate(copied, data=tmp_path / "data", device="cpu", threads=1)["test"]
    assert found is not None
    assert found["conformal"]["images"] == 41  # of the run's own validation
    (copied / "model" / "conformal.json").unlink()
    found = evaluate(copied, data=tmp_path / "data", device="cpu", threads=1)["test"]
    assert found is not None
    assert "conformal" not in found
