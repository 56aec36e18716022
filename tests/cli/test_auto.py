"""The chooser: a table of cases, and one small folder from choice to verdict."""

from __future__ import annotations

import json
import shlex
import time
from collections.abc import Mapping
from dataclasses import replace
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
from longtail.cli.auto import MARGIN, MOST, Choice, Facts, choose
from longtail.data.opening import open_data
from longtail.metrics.files import read_predictions
from longtail.nn import pretrained
from longtail.recipes.signatures import read

PLANKTON = Facts(
    images=21_763,
    classes=121,
    largest=1425,
    smallest=6,
    validation=2425,
    test=6068,
    side=64,
    device="cpu",
    threads=2,
    pretrained=(),
)
SPEED = {"fast_cnn": 600, "timm:resnet18": 250, "timm:resnet18.a1_in1k": 250, "timm:resnet50.a1_in1k": 80}  # images/s at 32 pixels, CPU


def costs(facts: Facts) -> auto.Cost:
    faster = facts.threads if facts.device == "cpu" else 50
    return lambda recipe, keywords: (keywords["size"] / 32) ** 2 / SPEED[keywords.get("network", "fast_cnn")] / faster


def chosen(facts: Facts, *, minutes: float = 45) -> Choice:
    return choose(facts, costs(facts), seconds=60 * minutes)


CASES: dict[str, tuple[dict[str, Any], float, str, dict[str, Any], str]] = {
    "plankton": ({}, 45, "balanced_softmax", {"size": 64}, "validation"),
    "plankton, half the time": ({}, 20, "balanced_softmax", {"size": 48}, "validation"),
    "plankton, one thread and less time": ({"threads": 1}, 17, "balanced_softmax", {"size": 32}, "validation"),
    "plankton, all the time": ({"side": 128}, 600, "balanced_softmax", {"size": 64}, "validation"),
    "tiny": (
        {"images": 60, "classes": 4, "largest": 40, "smallest": 3, "validation": 6, "test": 14},
        45,
        "balanced_softmax",
        {"batch": 32, "lr": 0.025, "epochs": 200, "size": 64},
        "none",
    ),
    "two classes": (
        {"images": 2000, "classes": 2, "largest": 1900, "smallest": 100, "validation": 222, "test": 555},
        45,
        "balanced_softmax",
        {"batch": 64, "lr": 0.05, "epochs": 200, "size": 64},
        "validation",
    ),
    "balanced": ({"largest": 200, "smallest": 170}, 45, "cross_entropy", {"size": 64}, "validation"),
    "huge": (
        {"images": 1_200_000, "classes": 1000, "largest": 5000, "smallest": 50, "validation": 130_000, "test": 0, "side": 224},
        45,
        "balanced_softmax",
        {"size": 32, "epochs": 2},
        "validation",
    ),
    "a thousand classes": (
        {"images": 115_846, "classes": 1000, "largest": 1280, "smallest": 5, "validation": 20_000, "test": 50_000, "side": 224},
        600,
        "balanced_softmax",
        {"size": 64},
        "validation",
    ),
    "grey, 20 pixels": ({"side": 32}, 45, "balanced_softmax", {"size": 32}, "validation"),
    "no time": ({}, 0.01, "balanced_softmax", {"size": 32, "epochs": 1}, "validation"),
    "digits of 8 pixels": ({"images": 364, "side": 8}, 45, "balanced_softmax", {"size": 8, "batch": 32}, "validation"),
    "pretrained": (
        {"pretrained": ("resnet18.a1_in1k",)},
        45,
        "balanced_softmax",
        {"network": "timm:resnet18.a1_in1k", "weights": "timm", "size": 64},
        "validation",
    ),
    "pretrained and small": (
        {"pretrained": ("resnet18.a1_in1k",), "side": 32, "images": 600},
        45,
        "balanced_softmax",
        {"network": "timm:resnet18.a1_in1k", "weights": "timm", "size": 64, "batch": 32, "lr": 0.0025, "epochs": 40},
        "validation",
    ),
    "gpu": ({"device": "cuda"}, 45, "balanced_softmax", {"network": "timm:resnet18", "size": 64, "epochs": 200}, "validation"),
    "gpu, small images": ({"device": "cuda", "side": 32}, 45, "balanced_softmax", {"size": 32, "epochs": 200}, "validation"),
    "gpu and pretrained": (
        {"device": "cuda", "pretrained": ("resnet50.a1_in1k",), "side": 224},
        45,
        "balanced_softmax",
        {"network": "timm:resnet50.a1_in1k", "weights": "timm"},
        "validation",
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_the_table_of_cases(name: str) -> None:
    changes, minutes, recipe, keywords, adjust = CASES[name]
    facts = replace(PLANKTON, **changes)
    found = chosen(facts, minutes=minutes)
    assert (found.recipe, found.adjust) == (recipe, adjust)
    assert {key: found.keywords.get(key) for key in keywords} == keywords
    assert found.keywords["size"] <= max(facts.side, 64)
    if "network" not in keywords:
        assert "network" not in found.keywords  # the recipe's own
    defaults = {key: own.default for key, own in read(recipe).parameters.items()}
    assert not [key for key, value in found.keywords.items() if value == defaults[key] and key != "epochs"]
    read(recipe).keywords(found.keywords)
    assert found.why.count(". ") == 1
    assert found.why.endswith(".")
    assert 1 <= found.keywords["epochs"] <= MOST[found.keywords.get("weights", "random")]
    assert found.minutes <= minutes * MARGIN + 1e-6 or found.keywords["epochs"] == 1


def test_more_time_never_means_less() -> None:
    sizes = [chosen(PLANKTON, minutes=minutes).keywords["size"] for minutes in (1, 5, 20, 60, 200, 1000)]
    assert sizes == sorted(sizes)
    assert len(set(sizes)) == 3


def test_what_is_chosen_was_timed_and_what_is_out_of_reach_was_not() -> None:
    asked: list[int] = []

    def cost(recipe: str, keywords: Mapping[str, Any]) -> float:
        asked.append(keywords["size"])
        # Slower than its pixels say: the larger size is tried, and then not taken.
        return (2.0 if keywords["size"] == 48 else 1.0) * costs(PLANKTON)(recipe, keywords)

    found = choose(PLANKTON, cost, seconds=60 * 20)
    assert asked == [32, 48]
    assert found.keywords["size"] == 32
    assert found.keywords["epochs"] > chosen(PLANKTON, minutes=20).keywords["epochs"]


def test_the_reasons_say_what_is_so() -> None:
    why = chosen(PLANKTON, minutes=20).why
    assert "6 to 1,425 training images (238 to 1)" in why
    assert "No pretrained weights are at hand" in why
    assert "larger images would leave too few on 2 threads" in why
    assert "nearly even" in chosen(replace(PLANKTON, smallest=1400)).why
    assert "too few to adjust" in chosen(replace(PLANKTON, validation=3)).why
    assert "only has to be tuned" in chosen(replace(PLANKTON, pretrained=("resnet18.a1_in1k",))).why


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


def test_from_a_folder_to_a_verdict_and_again(longtail: Any, folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(MOST, "random", 2)
    words = ("train", "auto", "--data", folder, "--minutes", 2, "--threads", 1, "--device", "cpu", "--out", tmp_path / "run")
    dry = longtail(*words, "--dry-run")
    assert dry.code == 0, dry.err
    assert "Dry run: nothing was written" in dry.out
    assert not (tmp_path / "run").exists()

    said = longtail(*words)
    assert said.code == 0, said.err
    stored = json.loads((tmp_path / "run" / "auto.json").read_text())
    assert stored["command"] in said.out
    assert stored["why"] in said.out
    assert stored["facts"]["pretrained"] == []
    assert (stored["facts"]["largest"], stored["facts"]["side"]) == (144, 32)
    assert "balanced accuracy " in said.out
    assert "rarest third " in said.out
    assert "worst classes: class" in said.out
    assert f"next: longtail predict {tmp_path / 'run'} PATH_OF_IMAGES" in said.out
    assert f"longtail report {tmp_path / 'run'}" in said.out
    record = json.loads((tmp_path / "run" / "recipe.json").read_text())
    assert record["command"] == stored["command"]
    assert record["adjust"] == "validation"

    line = shlex.split(stored["command"])
    line[line.index("--out") + 1] = str(tmp_path / "line")
    alone = longtail(*line[1:], "--threads", 1, "--device", "cpu")
    assert alone.code == 0, alone.err
    first, second = (read_predictions(tmp_path / name / "predictions" / "test.npz")[0] for name in ("run", "line"))
    assert np.array_equal(first.logits["logits"], second.logits["logits"])

    monkeypatch.setattr(auto, "_chosen", lambda *_, **__: pytest.fail("chose again"))
    again = longtail(*words)
    assert "continues with what was chosen for it" in again.out
    assert "was finished before" in again.out
    (tmp_path / "run" / "row.json").unlink()
    assert "balanced accuracy" in longtail(*words).out
    other = longtail(*words, "--seed", 1)
    assert other.code == 2
    assert "seed: 0 in the folder, 1 asked" in other.err
    foreign = longtail(*words[:-1], tmp_path / "line")
    assert foreign.code == 2
    assert "got another run" in foreign.err
    assert "longtail train balanced_softmax" in foreign.err


def test_weights_at_hand_are_tuned(longtail: Any, folder: Path, cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    stored = cache / "hub" / "models--timm--test_resnet.r160_in1k"
    (stored / "refs").mkdir(parents=True)
    (stored / "refs" / "main").write_text("abc")
    (stored / "snapshots" / "abc").mkdir(parents=True)
    save_file(timm.create_model("test_resnet").state_dict(), stored / "snapshots" / "abc" / "model.safetensors")
    monkeypatch.setitem(auto.PRETRAINED, "cpu", ("test_resnet.r160_in1k",))
    monkeypatch.setitem(MOST, "timm", 1)
    said = longtail("train", "auto", "--data", folder, "--minutes", 2, "--threads", 1, "--device", "cpu", "--out", tmp_path / "run")
    assert said.code == 0, said.err
    assert "timm:test_resnet.r160_in1k only has to be tuned" in said.out
    assert "--network timm:test_resnet.r160_in1k --weights timm" in said.out
    row = json.loads((tmp_path / "run" / "row.json").read_text())
    assert (row["pretraining"], row["size"], row["keywords"]["lr"]) == ("ImageNet-1k", 64, 0.0025)


def test_killed_before_training_began_it_goes_on_with_what_was_chosen(longtail: Any, folder: Path, tmp_path: Path) -> None:
    choice = {"recipe": "cross_entropy", "keywords": {"epochs": 1, "size": 32}, "adjust": "none", "why": "x", "minutes": 1.0}
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "auto.json").write_text(json.dumps({"format": 1, "command": "the line", **choice}))
    said = longtail("train", "auto", "--data", folder, "--threads", 1, "--device", "cpu", "--out", tmp_path / "run")
    assert said.code == 0, said.err
    assert "the line" in said.out
    assert json.loads((tmp_path / "run" / "row.json").read_text())["recipe"] == "cross_entropy"


@pytest.mark.parametrize(
    ("words", "message"), [(("--minutes", "0"), "expected some minutes, got 0"), (("--minutes", "soon"), "--minutes")], ids=["none", "word"]
)
def test_mistakes_are_told(longtail: Any, folder: Path, words: tuple[str, ...], message: str) -> None:
    said = longtail("train", "auto", "--data", folder, *words)
    assert said.code == 2
    assert message in said.err


def test_several_processes_do_not_choose(longtail: Any, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WORLD_SIZE", "2")
    said = longtail("train", "auto", "--data", folder)
    assert said.code == 2
    assert "choose with --dry-run in one" in said.err


def test_weights_are_looked_for_in_the_cache_then_once_at_the_hub(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []

    def fetched(model: str, *, seconds: float) -> Path | None:
        asked.append(model)
        return None

    monkeypatch.setattr(pretrained, "fetched", fetched)
    assert auto.at_hand("cpu", 8, seconds=60) == ()
    assert asked == []  # nothing helps for images that small
    assert auto.at_hand("cuda", 64, seconds=60) == ()
    assert asked == ["resnet50.a1_in1k"]
    monkeypatch.setattr(pretrained, "cached", lambda model: Path("x") if "resnet18" in model else None)
    assert auto.at_hand("cuda", 64, seconds=60) == ("resnet18.a1_in1k",)
    assert len(asked) == 1


def test_a_sample_has_the_size_that_will_be_trained(folder: Path) -> None:
    data = open_data(str(folder))
    few = auto.sample(data, size=48, images=10)
    assert (len(few.train), len(few.val), len(few.test)) == (10, 0, 0)
    assert few.train.pictures.image(3).size == (48, 48)
    assert few.train.target.tolist() == sorted(few.train.target.tolist())
    assert len(auto.sample(data, size=32, images=10_000).train) == len(data.train)


def test_timing_leaves_nothing_behind(folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    from longtail.engine.machine import Machine
    from longtail.runs.identity import DATA_DEFAULTS, Asked

    recipe = read("balanced_softmax")
    keywords = recipe.keywords({"size": 32, "epochs": 1000, "batch": 32})
    before = time.monotonic()
    each = auto.timed(Asked(recipe, keywords, str(folder), dict(DATA_DEFAULTS), 0, 0, "none"), open_data(str(folder)), Machine())
    assert 0 < each < time.monotonic() - before
    assert capsys.readouterr().err == ""
