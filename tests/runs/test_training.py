"""Training into a run folder: what is in it, and what is refused before anything is learnt."""

from __future__ import annotations

import json
import math
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from finished import QUICK
from PIL import Image
from recipe_sources import RECIPES

from longtail.data.open import open_data
from longtail.engine.run import Run
from longtail.engine.session import Session
from longtail.errors import LongtailError
from longtail.recipes import signatures
from longtail.recipes.supervised import cross_entropy
from longtail.records.layout import RunFolder
from longtail.records.lock import locked
from longtail.runs import evaluate, results, train

NETWORKS = """

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
    repeated = train("cross_entropy", tmp_path / "photos", out, **given).row
    assert repeated is not None
    assert (repeated["test"], repeated["data"]) == (row["test"], row["data"])
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


def test_a_folder_that_another_command_started_meanwhile_is_left_alone(
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


@pytest.mark.parametrize("dry_run", [True, False])
@pytest.mark.parametrize("save_every", [math.nan, -1.0])
def test_a_wrong_time_between_checkpoints_is_refused_before_a_folder_is_made(
    dry_run: bool, save_every: float, tmp_path: Path
) -> None:
    with pytest.raises(LongtailError, match="expected --save-every of 0 minutes or more"):
        train(
            "cross_entropy", "digits-lt", tmp_path / "run", dry_run=dry_run, save_every=save_every
        )
    assert not (tmp_path / "run").exists()


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
    source = RECIPES.replace("Classify(network, head, BinaryCrossEntropy())", returned)
    name = tmp_path.name  # for modules that were imported are not read again
    (tmp_path / f"{name}.py").write_text(
        f"from torch import nn\nfrom longtail.losses import CrossEntropy\n{source}{NETWORKS}"
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
    source.write_text(RECIPES)
    monkeypatch.syspath_prepend(str(tmp_path))
    for text, warned in (
        (RECIPES, False),
        (RECIPES.replace("lr=0.1", "lr=0.2"), True),
    ):
        source.write_text(text)
        signatures._parsed.cache_clear()  # as in another process
        signatures._definition.cache_clear()
        train("our_recipes:binary", "digits-lt", tmp_path / "run", device="cpu", threads=1)
        assert ("the source of our_recipes:binary is not that" in capsys.readouterr().err) is warned


def test_a_repeated_call_writes_a_missing_report(tmp_path: Path) -> None:
    keywords: dict[str, Any] = {"epochs": 1, "batch": 128, "threads": 1, "device": "cpu"}
    train("cross_entropy", "digits-lt", tmp_path / "run", **keywords)
    report = RunFolder(tmp_path / "run").report
    text = report.read_text(encoding="utf-8")
    report.unlink()
    repeated = train("cross_entropy", "digits-lt", tmp_path / "run", **keywords)
    assert not repeated.fresh
    assert report.read_text(encoding="utf-8") == text


@pytest.mark.parametrize("when", ["training", "evaluating"])
def test_a_run_folder_that_is_deleted_is_no_success(
    when: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = tmp_path / "run"
    module, name = (Session, "_evaluate") if when == "training" else (results, "predict_splits")
    usual: Any = getattr(module, name)

    def delete(*given: Any, **more: Any) -> Any:
        shutil.rmtree(out, ignore_errors=True)
        return usual(*given, **more)

    monkeypatch.setattr(module, name, delete)
    with pytest.raises(LongtailError, match=r"was deleted while .* run the same command again"):
        train("cross_entropy", "digits-lt", out, **QUICK)
    assert not (out / "row.json").exists()


def test_minutes_leave_out_epochs_and_the_plan_gives_the_same_run(tmp_path: Path) -> None:
    words: dict[str, Any] = {"epochs": 200, "batch": 32, "device": "cpu", "threads": 1}
    first = train("cross_entropy", "digits-lt", tmp_path / "a", minutes=0.02, **words)
    assert first.row is not None
    assert first.row["epochs"]["train"] < 200
    plan = first.row["epoch_plan"]
    page = (tmp_path / "a" / "report.html").read_text()
    assert f"--epoch-plan {plan}" in page
    repeated = train("cross_entropy", "digits-lt", tmp_path / "b", epoch_plan=plan, **words)
    assert repeated.row is not None
    assert repeated.row["epoch_plan"] == plan
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
