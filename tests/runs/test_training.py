"""Training into a run folder: what is in it, and what is refused before anything is learnt."""

from __future__ import annotations

import json
import math
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from finished import QUICK
from PIL import Image

from longtail.core import NonFinite
from longtail.data.dataset import Dataset
from longtail.data.open import open_data
from longtail.data.request import DataRequest
from longtail.engine.run import Run
from longtail.engine.session import Session
from longtail.errors import LongtailError
from longtail.posthoc import adjustment
from longtail.recipes import signatures
from longtail.recipes.supervised import cross_entropy
from longtail.records.layout import RunFolder
from longtail.records.lock import locked
from longtail.records.predictions import read_predictions
from longtail.records.scores import Headline
from longtail.runs import evaluate, train, training

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


def test_the_folder_is_readable_without_us(finished: Path) -> None:
    names = {str(path.relative_to(finished)) for path in finished.rglob("*") if path.is_file()}
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
        == f"longtail train balanced_softmax --data digits-lt --out {finished} --epochs 1"
        " --batch 64"
    )
    row = json.loads((finished / "row.json").read_text())
    assert row["test"]["images"] == 500
    assert row["val"]["images"] == 41
    assert row["selection"] == "last epoch, ema"
    assert row["data"]["hash"] == record["data"]["hash"] == open_data("digits-lt").hash
    assert row["best_validation"]["epoch"] == 1
    assert "folder" not in row


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


def test_a_recipe_that_returns_no_method_is_refused(
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
            "Linear is no head of longtail.nn",
        ),
        (
            "Classify(network, Linear(17, 10), CrossEntropy())",
            "fast_cnn has 16 features, but the head expects 17",
        ),
        ("Classify(Odd(), Linear(4, 10), CrossEntropy())", "unknown network 'odd'"),
        (
            "Classify(Bent(), Linear(16, 10), CrossEntropy())",
            "expected a network that its spec rebuilds, got a Classifier that has another",
        ),
        (
            "Encode()",
            (
                "got Encode, which deploys a Backbone without a head: pretraining recipes end with"
                " a linear probe"
            ),
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
        "from torch import nn\nfrom longtail.losses import"
        f" CrossEntropy\n{source}{NETWORKS_OF_OUR_OWN}"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setattr(Run, "_finish", lambda *_: pytest.fail("it began to learn"))
    with pytest.raises(ValueError, match=message):
        train(f"{name}:binary", "digits-lt", tmp_path / "run", device="cpu", threads=1)
    assert not (tmp_path / "run").exists()


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
        signatures._definition.cache_clear()
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
    scores = {
        line["epoch"]: line["ema/val/balanced"] for line in lines if "ema/val/balanced" in line
    }
    best = min(scores, key=lambda epoch: (-scores[epoch], epoch))
    assert row["best_validation"] == {"epoch": best, "value": scores[best]}
    assert row["val"]["balanced"] == pytest.approx(scores[best])
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
    assert training._best(tmp_path, history, headline) == {
        "epoch": 3,
        "value": 0.65,
    }, "not that of the raw weights"


def test_a_network_of_a_binary_loss_is_evaluated_by_its_sigmoid(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "our_recipes.py").write_text(RECIPES_OF_OUR_OWN)
    monkeypatch.syspath_prepend(str(tmp_path))
    result = train("our_recipes:binary", "digits-lt", tmp_path / "run", device="cpu", threads=1)
    assert result.row is not None
    for summary in (result.row["val"], result.row["test"]):
        assert summary is not None
        assert summary["confidence"] == "sigmoid"
        assert (
            summary["ece"]
            == summary["calibration"]["sigmoid"]["ece"]
            != summary["calibration"]["softmax"]["ece"]
        )
    row = json.loads((tmp_path / "run" / "row.json").read_text())
    evaluate(tmp_path / "run", rewrite=True, device="cpu", threads=1)
    again = json.loads((tmp_path / "run" / "row.json").read_text())
    assert again["test"]["confidence"] == "sigmoid"
    assert again["test"] == row["test"]
    card = (tmp_path / "run" / "model" / "README.md").read_text(encoding="utf-8")
    assert (
        "(by sigmoid; by softmax, as probabilities are given,"
        f" {row['test']['calibration']['softmax']['ece']:.3f})" in card
    )


def test_answers_that_are_not_finite_end_a_run_as_a_diverged_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "our_silent_recipes.py").write_text(RECIPES_OF_OUR_OWN)
    monkeypatch.syspath_prepend(str(tmp_path))
    with pytest.raises(NonFinite, match="training diverged"):
        train("our_silent_recipes:silent", "digits-lt", tmp_path / "run", device="cpu", threads=1)
    assert not (tmp_path / "run" / "row.json").exists()


def test_the_same_call_again_writes_a_missing_report(tmp_path: Path) -> None:
    keywords: dict[str, Any] = {"epochs": 1, "batch": 128, "threads": 1, "device": "cpu"}
    train("cross_entropy", "digits-lt", tmp_path / "run", **keywords)
    report = RunFolder(tmp_path / "run").report
    text = report.read_text(encoding="utf-8")
    report.unlink()
    again = train("cross_entropy", "digits-lt", tmp_path / "run", **keywords)
    assert not again.fresh
    assert report.read_text(encoding="utf-8") == text


@pytest.mark.parametrize("when", ["training", "evaluating"])
def test_a_run_folder_that_is_deleted_is_no_success(
    when: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = tmp_path / "run"
    module, name = (Session, "_evaluate") if when == "training" else (training, "predict_split")
    usual: Any = getattr(module, name)

    def delete(*given: Any, **more: Any) -> Any:
        shutil.rmtree(out, ignore_errors=True)
        return usual(*given, **more)

    monkeypatch.setattr(module, name, delete)
    with pytest.raises(LongtailError, match=r"was deleted while .* run the same command again"):
        train("cross_entropy", "digits-lt", out, **QUICK)
    assert not (out / "row.json").exists()


def test_fast_cnn_gets_images_of_64_pixels_unless_a_size_is_given(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    generator = np.random.default_rng(0)
    for name in ("ant", "bee"):
        (tmp_path / "data" / name).mkdir(parents=True)
        for index in range(6):
            pixels = generator.integers(0, 255, (20, 150, 3), dtype=np.uint8)
            Image.fromarray(pixels).save(tmp_path / "data" / name / f"{index}.png")
    quick: dict[str, Any] = {"epochs": 1, "batch": 8, "device": "cpu", "threads": 1}
    data = tmp_path / "data"
    result = train("cross_entropy", data, tmp_path / "run", **quick)
    assert result.row is not None
    assert result.row["keywords"]["size"] == 64
    assert "resized to 64 pixels" in capsys.readouterr().err
    assert not train("cross_entropy", data, tmp_path / "run", **quick).fresh
    capsys.readouterr()
    train("cross_entropy", data, tmp_path / "dry", dry_run=True, size=72, **quick)
    assert "resized to" not in capsys.readouterr().err
    student: dict[str, Any] = {**quick, "network": "vit_tiny", "size": 16, "dry_run": True}
    train("deit", data, tmp_path / "dry", teacher_epochs=1, **student)
    assert "of the teacher are resized to 64 pixels" in capsys.readouterr().err
    train("deit", data, tmp_path / "dry", teacher=str(tmp_path / "run"), **student)
    assert "resized to" not in capsys.readouterr().err


def test_minutes_leave_out_epochs_and_the_plan_gives_the_same_run(tmp_path: Path) -> None:
    words: dict[str, Any] = {"epochs": 200, "batch": 32, "device": "cpu", "threads": 1}
    first = train("cross_entropy", "digits-lt", tmp_path / "a", minutes=0.02, **words)
    assert first.row is not None
    assert first.row["epochs"]["train"] < 200
    plan = first.row["epoch_plan"]
    page = (tmp_path / "a" / "report.html").read_text()
    assert f"--epoch-plan {plan}" in page
    again = train("cross_entropy", "digits-lt", tmp_path / "b", epoch_plan=plan, **words)
    assert again.row is not None
    assert again.row["epoch_plan"] == plan
    weights = [(tmp_path / name / "model/model.safetensors").read_bytes() for name in "ab"]
    assert weights[0] == weights[1]
    with pytest.raises(ValueError, match=f"epoch plan: {plan} in the folder, 3:4 requested"):
        train("cross_entropy", "digits-lt", tmp_path / "b", epoch_plan="3:4", **words)
    for minutes, other in ((0.0, ""), (math.nan, ""), (1.0, "3:4")):
        with pytest.raises(ValueError, match="expected minutes above 0, and no epoch_plan beside"):
            train(
                "cross_entropy",
                "digits-lt",
                tmp_path / "c",
                minutes=minutes,
                epoch_plan=other,
                **words,
            )
