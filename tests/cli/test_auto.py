"""`longtail train auto`: one small folder from choice to verdict."""

from __future__ import annotations

import json
import shlex
import time
from pathlib import Path
from typing import Any

import huggingface_hub
import numpy as np
import pytest
import timm
import torch
from PIL import Image
from safetensors.torch import save_file

from longtail.cli import auto
from longtail.data.open import open_data
from longtail.nn import pretrained
from longtail.recipes.auto import MAX_EPOCHS
from longtail.recipes.signatures import read
from longtail.records.predictions import read_predictions


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Three classes of 20-pixel images, grey but for one colour each, long-tailed."""
    rng = np.random.default_rng(0)
    for label, count in enumerate((200, 60, 24)):
        (tmp_path / "images" / f"class {label}").mkdir(parents=True)
        for index in range(count):
            pixels = rng.integers(0, 100, (20, 20, 3), dtype=np.uint8)
            pixels[:, :, label] += np.uint8(100)
            Image.fromarray(pixels).save(tmp_path / "images" / f"class {label}" / f"{index}.png")
    return tmp_path / "images"


@pytest.fixture(autouse=True)
def cache(monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Caches of pretrained weights with nothing in them, and nobody to ask for more."""
    folder = tmp_path_factory.mktemp("cache")
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_CACHE", str(folder / "hub"))
    monkeypatch.setattr(torch.hub, "get_dir", lambda: str(folder / "torch"))
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    return folder


def test_auto_trains_a_folder_and_a_repeated_call_resumes(
    longtail: Any, folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(MAX_EPOCHS, "random", 2)
    words = (
        "train",
        "auto",
        "--data",
        folder,
        "--minutes",
        2,
        "--threads",
        1,
        "--device",
        "cpu",
        "--out",
        tmp_path / "run",
    )
    dry = longtail(*words, "--dry-run")
    assert dry.code == 0, dry.err
    assert "Dry run: nothing was written" in dry.out
    assert not (tmp_path / "run").exists()

    result = longtail(*words)
    assert result.code == 0, result.err
    stored = json.loads((tmp_path / "run" / "auto.json").read_text())
    assert stored["command"] in result.out
    assert stored["reason"] in result.out
    assert stored["facts"]["pretrained"] == []
    assert (stored["facts"]["largest"], stored["facts"]["side"]) == (144, 32)
    assert "balanced accuracy " in result.out
    assert "rarest third " in result.out
    assert "worst classes: class" in result.out
    assert f"next: longtail predict {tmp_path / 'run'} PATH_OF_IMAGES" in result.out
    assert f"report: {tmp_path / 'run' / 'report.html'}" in result.out
    record = json.loads((tmp_path / "run" / "recipe.json").read_text())
    assert record["command"] == stored["command"]
    assert record["adjust"] == "validation"

    line = shlex.split(stored["command"])
    line[line.index("--out") + 1] = str(tmp_path / "line")
    alone = longtail(*line[1:], "--threads", 1, "--device", "cpu")
    assert alone.code == 0, alone.err
    first, second = (
        read_predictions(tmp_path / name / "predictions" / "test.npz")[0]
        for name in ("run", "line")
    )
    assert np.array_equal(first.logits["logits"], second.logits["logits"])

    monkeypatch.setattr(auto, "_choose", lambda *_, **__: pytest.fail("chose again"))
    repeated = longtail(*words)
    assert "resumes with the settings chosen before" in repeated.out
    assert "was finished before" in repeated.out
    (tmp_path / "run" / "row.json").unlink()
    assert "balanced accuracy" in longtail(*words).out
    other = longtail(*words, "--seed", 1)
    assert other.code == 2
    assert "seed: 0 in the folder, 1 requested" in other.err
    foreign = longtail(*words[:-1], tmp_path / "line")
    assert foreign.code == 2
    assert "a run that auto did not start" in foreign.err
    assert "longtail train balanced_softmax" in foreign.err


def test_epochs_without_time_are_left_out_and_the_stored_line_has_the_plan(
    longtail: Any, folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(MAX_EPOCHS, "random", 30)
    monkeypatch.setattr(auto, "TIME_SHARE", 1e-6)  # as if the machine had become very busy
    run = tmp_path / "run"
    words = ("--threads", 1, "--device", "cpu")
    result = longtail("train", "auto", "--data", folder, "--minutes", 2, *words, "--out", run)
    assert result.code == 0, result.err
    assert "of 30 epochs. The equivalent command now ends with --epoch-plan 1:" in result.out
    assert " of 2 minutes." in result.out
    stored = json.loads((run / "auto.json").read_text())
    line = shlex.split(stored["command"])
    line[line.index("--out") + 1] = str(tmp_path / "line")
    assert longtail(*line[1:], *words).code == 0
    first, second = (
        read_predictions(path / "predictions" / "test.npz")[0] for path in (run, tmp_path / "line")
    )
    assert np.array_equal(first.logits["logits"], second.logits["logits"])


def test_weights_at_hand_are_tuned(
    longtail: Any, folder: Path, cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stored = cache / "hub" / "models--timm--test_resnet.r160_in1k"
    (stored / "refs").mkdir(parents=True)
    (stored / "refs" / "main").write_text("abc")
    (stored / "snapshots" / "abc").mkdir(parents=True)
    save_file(
        timm.create_model("test_resnet").state_dict(),
        stored / "snapshots" / "abc" / "model.safetensors",
    )
    monkeypatch.setitem(auto.PRETRAINED, "cpu", ("test_resnet.r160_in1k",))
    monkeypatch.setitem(MAX_EPOCHS, "timm", 1)
    result = longtail(
        "train",
        "auto",
        "--data",
        folder,
        "--minutes",
        2,
        "--threads",
        1,
        "--device",
        "cpu",
        "--out",
        tmp_path / "run",
    )
    assert result.code == 0, result.err
    assert "timm:test_resnet.r160_in1k only has to be tuned" in result.out
    assert "--network timm:test_resnet.r160_in1k --weights timm" in result.out
    row = json.loads((tmp_path / "run" / "row.json").read_text())
    assert (row["pretraining"], row["size"], row["keywords"]["lr"]) == ("ImageNet-1k", 64, 0.0025)


def test_a_run_killed_before_training_resumes_with_its_choice(
    longtail: Any, folder: Path, tmp_path: Path
) -> None:
    choice = {
        "recipe": "cross_entropy",
        "keywords": {"epochs": 1, "size": 32},
        "adjust": "none",
        "reason": "x",
        "minutes": 1.0,
    }
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "auto.json").write_text(
        json.dumps({"format": 1, "command": "the line", **choice})
    )
    result = longtail(
        "train",
        "auto",
        "--data",
        folder,
        "--threads",
        1,
        "--device",
        "cpu",
        "--out",
        tmp_path / "run",
    )
    assert result.code == 0, result.err
    assert "the line" in result.out
    assert json.loads((tmp_path / "run" / "row.json").read_text())["recipe"] == "cross_entropy"


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--minutes", "0"), "--minutes must be positive, got 0"),
        (("--minutes", "soon"), "--minutes"),
    ],
    ids=["none", "word"],
)
def test_mistakes_are_refused(
    longtail: Any, folder: Path, words: tuple[str, ...], message: str
) -> None:
    result = longtail("train", "auto", "--data", folder, *words)
    assert result.code == 2
    assert message in result.err


def test_several_processes_do_not_choose(
    longtail: Any, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WORLD_SIZE", "2")
    result = longtail("train", "auto", "--data", folder)
    assert result.code == 2
    assert "run it with --dry-run in one process" in result.err


def test_weights_are_searched_in_the_cache_then_once_at_the_hub(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    requested: list[str] = []

    def fetched(model: str, *, seconds: float) -> Path | None:
        requested.append(model)
        return None

    monkeypatch.setattr(pretrained, "fetched", fetched)
    assert auto.at_hand("cpu", 8, seconds=60) == ()
    assert requested == []  # nothing helps for images that small
    assert auto.at_hand("cuda", 64, seconds=60) == ()
    assert requested == ["resnet50.a1_in1k"]
    monkeypatch.setattr(
        pretrained, "cached", lambda model: Path("x") if "resnet18" in model else None
    )
    assert auto.at_hand("cuda", 64, seconds=60) == ("resnet18.a1_in1k",)
    assert len(requested) == 1


def test_a_sample_has_the_size_that_will_be_trained(folder: Path) -> None:
    data = open_data(str(folder))
    few = auto.sample(data, size=48, images=10)
    assert (len(few.train), len(few.val), len(few.test)) == (10, 0, 0)
    assert few.train.inputs.image(3).size == (48, 48)
    assert few.train.target.tolist() == sorted(few.train.target.tolist())
    assert len(auto.sample(data, size=32, images=10_000).train) == len(data.train)


def test_timing_leaves_nothing_behind(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    from longtail.data.request import DataRequest
    from longtail.engine.machine import Machine
    from longtail.runs.identity import RunConfig

    recipe = read("balanced_softmax")
    keywords = recipe.keywords({"size": 32, "epochs": 1000, "batch": 32})
    before = time.monotonic()
    each = auto.timed(
        RunConfig(recipe, keywords, DataRequest(str(folder)), 0, 0, "none"),
        open_data(str(folder)),
        Machine(),
    )
    assert 0 < each < time.monotonic() - before
    assert capsys.readouterr().err == ""


def test_pairs_without_training_images_are_refused(longtail: Any) -> None:
    result = longtail("train", "auto", "--data", "shapes-pairs", "--dry-run")
    assert result.code != 0
    assert "pairs of attribute and object without any: train compcos" in " ".join(
        result.err.split()
    )


def test_images_of_unseen_classes_are_embedded_first(longtail: Any) -> None:
    result = longtail("train", "auto", "--data", "shapes-attributes", "--dry-run")
    assert result.code == 2
    words = " ".join(result.err.split())
    assert "train eszsl, or ce_gzsl, on features of the images" in words
    assert "Start with `longtail embed shapes-attributes --network NETWORK --out" in words


def test_data_with_a_test_domain_is_refused_with_the_reason(tmp_path: Path, longtail: Any) -> None:
    out = str(tmp_path / "run")
    result = longtail(
        "train", "auto", "--data", "shapes-domains", "--test-domain", "photo", "--out", out
    )
    assert result.code == 2
    assert "auto chooses for long tails, but this data has a test domain" in " ".join(
        result.err.split()
    )
