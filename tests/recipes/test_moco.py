"""MoCo as recipes: a probe and neighbours on the row, an encoder that others begin with."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

from longtail.data.open import open_data
from longtail.engine.run import Run
from longtail.nn.encoders import read_weights
from longtail.recipes.moco import moco_v2, moco_v3
from longtail.recipes.published import published
from longtail.recipes.signatures import read
from longtail.recipes.supervised import balanced_softmax
from longtail.records.files import read_lines
from longtail.records.row import read_row
from longtail.runs import load, train

RUN: dict[str, Any] = {"threads": 1, "device": "cpu"}
QUICK: dict[str, Any] = {**RUN, "epochs": 1, "batch": 64, "probe_epochs": 1}
VIT: dict[str, Any] = {"network": "vit_mini"}


@pytest.fixture(scope="module")
def cnn(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("cnn") / "run"
    train("moco_v2", "digits-lt", folder, **QUICK, queue=128, batchformer="on")
    return folder


@pytest.fixture(scope="module")
def vit(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("vit") / "run"
    train("moco_v3", "digits-lt", folder, **QUICK, **VIT, hidden=32)
    return folder


def test_the_row_has_the_probe_and_the_neighbours(cnn: Path) -> None:
    row = read_row(cnn)
    assert row["test"] is not None
    assert row["epochs"] == {"pretrain": 1, "probe": 1}
    assert row["test"]["heads"]["knn"]["balanced"] > 0.2, "chance is 10%"
    assert row["test"]["top5"] is not None
    assert row["pretraining"] is None
    (line,) = read_lines(cnn / "pretrain" / "journal.jsonl")
    streams = ("plain", "attended")
    terms = {name.removeprefix("terms/") for name in line if name.startswith("terms/")}
    assert terms == {f"{one}_{other}" for one in streams for other in streams}
    assert {"val/knn/balanced", "val/linear/balanced"} <= set(line), "the report draws them"
    (line,) = read_lines(cnn / "probe" / "journal.jsonl")
    assert {"val/balanced", "val/knn/balanced"} <= set(line)
    assert "Validation accuracy by head" in (cnn / "report.html").read_text()


def test_the_batchformer_is_trained_unless_it_is_frozen(cnn: Path, tmp_path: Path) -> None:
    train("moco_v2", "digits-lt", tmp_path / "run", **QUICK, queue=128, batchformer="frozen")
    trained, frozen = (
        torch.load(folder / "pretrain" / "last.pt")["method"] for folder in (cnn, tmp_path / "run")
    )
    names = [name for name in trained if name.startswith("neck.")]
    assert len(names) == 12
    assert not any(torch.equal(trained[name], frozen[name]) for name in names)
    optimizer = torch.load(tmp_path / "run" / "pretrain" / "last.pt")["optimizer"]["state"]
    assert len(optimizer) == sum(
        name.startswith("query.") and "running" not in name and "num_batches" not in name
        for name in frozen
    ), "only the query branch"


@pytest.mark.parametrize("recipe", ["balanced_softmax", "ldam", "paco"])
def test_its_encoder_initialises_other_recipes(recipe: str, cnn: Path, tmp_path: Path) -> None:
    more: dict[str, Any] = {"queue": 128} if recipe == "paco" else {}
    train(
        recipe, "digits-lt", tmp_path / "run", weights=str(cnn), lr=1e-30, epochs=1, **RUN, **more
    )
    network: Any = load(tmp_path / "run", device="cpu").network
    theirs = read_weights(cnn).tensors
    assert torch.equal(network.network.state_dict()["body.stem.0.weight"], theirs["stem.0.weight"])
    row = read_row(tmp_path / "run")
    assert row["pretraining"] is None, "it saw the same images"
    assert row["minutes_before"] > 0


@pytest.mark.parametrize("recipe", ["vit", "livt", "balanced_softmax"])
def test_a_transformer_initialises_other_recipes(recipe: str, vit: Path, tmp_path: Path) -> None:
    settings = {"batch": 64, "lr": 1e-30, "epochs": 1, **VIT, **RUN}
    train(recipe, "digits-lt", tmp_path / "run", weights=str(vit), **settings)
    network: Any = load(tmp_path / "run", device="cpu").network
    theirs = read_weights(vit).tensors
    name = "blocks.0.attn.qkv.weight"
    assert torch.equal(network.network.state_dict()[f"body.{name}"], theirs[name])


def test_a_transformer_initialises_a_student_whose_teacher_saw_less_data(
    vit: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    settings = {"batch": 64, "lr": 1e-30, "epochs": 1, "repeats": 1, **VIT, **RUN}
    train(
        *("deit_lt", "digits-lt", tmp_path / "run"),
        weights=str(vit),
        teacher_epochs=1,
        protocol="paper",
        **settings,
    )
    network: Any = load(tmp_path / "run", device="cpu").network
    name = "blocks.0.attn.qkv.weight"
    loaded = network.network.state_dict()[f"body.transformer.{name}"]
    assert torch.equal(loaded, read_weights(vit).tensors[name])
    assert "digits-lt" in str(read_row(tmp_path / "run")["pretraining"]), "of another split"


def test_other_data_is_named_and_the_encoder_is_kept(cnn: Path, tmp_path: Path) -> None:
    shutil.copytree(cnn, tmp_path / "moco")
    settings: dict[str, Any] = {"weights": str(tmp_path / "moco"), "epochs": 1, **RUN}
    train("balanced_softmax", "digits-lt", tmp_path / "run", protocol="paper", **settings)
    assert "digits-lt" in str(read_row(tmp_path / "run")["pretraining"])
    shutil.rmtree(tmp_path / "moco")
    (tmp_path / "run" / "row.json").unlink()  # killed before it was written: goes on without
    train("balanced_softmax", "digits-lt", tmp_path / "run", protocol="paper", **settings)
    assert read_row(tmp_path / "run")["epochs"] == {"train": 1}


def test_an_untrained_encoder_is_evaluated_too(tmp_path: Path) -> None:
    train("moco_v3", "digits-lt", tmp_path / "run", **{**QUICK, "epochs": 0})
    row = read_row(tmp_path / "run")
    assert row["epochs"] == {"probe": 1}
    assert row["test"] is not None
    assert "knn" in row["test"]["heads"]
    assert not (tmp_path / "run" / "encoder").exists()


@pytest.mark.parametrize(
    ("recipe", "keywords", "message"),
    [
        ("moco_v2", {"queue": 100, "accumulate": 2}, "--queue 100 is shorter than the keys"),
        (
            "moco_v2",
            {"queue": 100, "queue_keys": "both", "batchformer": "on"},
            "--queue 100 is shorter than the keys",
        ),
        ("moco_v3", {"pairings": "released"}, "--pairings has no effect without BatchFormer"),
        ("moco_v2", {"plain_weight": 1.0}, "have no effect without BatchFormer"),
        ("balanced_softmax", {"weights": "nowhere"}, "there is nothing at nowhere"),
    ],
)
def test_bad_settings_are_refused_before_training(
    recipe: str, keywords: dict[str, Any], message: str, tmp_path: Path
) -> None:
    with pytest.raises(ValueError, match=message):
        train(recipe, "digits-lt", tmp_path / "run", batch=64, epochs=1, **RUN, **keywords)
    assert not (tmp_path / "run" / "recipe.json").exists()


def test_a_network_of_another_kind_is_refused(cnn: Path, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="but they are of fast_cnn: pass --network fast_cnn"):
        train(
            "balanced_softmax", "digits-lt", tmp_path / "run", network="resnet32", weights=str(cnn)
        )


def test_the_old_keyword_still_works(vit: Path, tmp_path: Path) -> None:
    with pytest.warns(DeprecationWarning, match="pretrained is now weights"):
        train(
            "livt",
            "digits-lt",
            tmp_path / "run",
            pretrained=str(vit),
            epochs=1,
            batch=64,
            **RUN,
        )
    assert read_row(tmp_path / "run")["keywords"]["weights"] == str(vit)


@pytest.mark.parametrize(
    "name", [name for name, row in published().items() if row.data == "imagenet"]
)
def test_published_rows_are_rehearsed_on_a_tiny_folder(name: str, tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    for split, images in (("train", 3), ("test", 1)):
        for wordnet in ("n01440764", "n01443537"):
            folder = tmp_path / "imagenet" / split / wordnet
            folder.mkdir(parents=True)
            for number in range(images):
                pixels = rng.integers(0, 255, (40, 50, 3), dtype=np.uint8)
                Image.fromarray(pixels).save(folder / f"{number}.jpg")
    row = published()[name]
    data = open_data(tmp_path / "imagenet", protocol="paper", size=224)
    # The same layers, fewer of them and narrower: the sizes of ResNet-50 take seconds each.
    small = {"network": "timm:test_resnet", "queue": 512, "hidden": 64}
    small = {key: value for key, value in small.items() if key in read(row.recipe).parameters}
    keywords = read(row.recipe).keywords({**row.keywords, **small, "batch": 4})
    recipes = {"moco_v2": moco_v2, "moco_v3": moco_v3, "balanced_softmax": balanced_softmax}
    run = Run(tmp_path / "run", dry="rehearse")
    method: Any = recipes[row.recipe](
        run, data, **{**keywords, "norm_splits": 2} if row.recipe == "moco_v2" else keywords
    )
    assert method.deploy().dim == 2
