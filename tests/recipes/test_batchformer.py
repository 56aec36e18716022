"""BatchFormer as keywords: what each says, and that a recipe follows them to the end."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from captured import stages

from longtail.data.open import open_data
from longtail.engine.run import Run
from longtail.nn import BatchFormer, Embedded, PassThrough, Streams
from longtail.nn.networks import Vectors
from longtail.recipes import RECIPES
from longtail.recipes.batchformer import (
    SHARED_HEAD,
    Mode,
    batchformer_neck,
    lr_scales,
    note_frozen_inputs,
)
from longtail.recipes.paco import paco
from longtail.recipes.ride import ride
from longtail.recipes.signatures import read
from longtail.recipes.supervised import balanced_softmax
from longtail.runs import load, train

QUICK: dict[str, Any] = {"epochs": 1, "batch": 64, "threads": 1, "device": "cpu"}


@pytest.mark.parametrize(
    ("use", "given", "weights", "trains"),
    [
        ("on", {}, (0.5, 0.5), True),
        ("on", {"plain_weight": 1.5, "batchformer_weight": 1.5, "layers": 2}, (1.5, 1.5), True),
        ("on", {"plain_weight": 0.0, "batchformer_weight": 1.0}, (0.0, 1.0), True),
        ("on", {"loss_scale": 2.0}, (1.0, 1.0), True),
        ("frozen", {}, (0.5, 0.5), False),
        ("self", {}, (0.5, 0.5), True),
    ],
)
def test_keywords_become_streams(
    use: Mode, given: dict[str, Any], weights: tuple[float, float], trains: bool
) -> None:
    neck = batchformer_neck(8, use, **given)
    assert isinstance(neck, Streams)
    assert (neck.plain_weight, neck.batchformer_weight) == weights
    assert neck.batchformer.attention == ("self" if use == "self" else "batch")
    assert len(neck.batchformer.layers) == given.get("layers", 1)
    assert lr_scales(neck, 0.1) == ({"neck": 0.1} if trains else {})


def test_off_is_no_neck_and_perhaps_another_scale() -> None:
    neck = batchformer_neck(8, "off", loss_scale=1.5)
    assert isinstance(neck, PassThrough)
    assert neck.weight == 1.5
    assert lr_scales(neck, 0.1) == lr_scales(neck, 1.0, default=1.0) == {}
    with pytest.raises(
        ValueError, match=r"--batchformer-lr-scale 0\.3 has no effect without a BatchFormer"
    ):
        lr_scales(neck, 0.3)
    with pytest.raises(
        ValueError,
        match="--plain-weight and --batchformer-weight have no effect without BatchFormer",
    ):
        batchformer_neck(8, "off", plain_weight=1.5)


def test_what_would_be_ignored_is_refused() -> None:
    for given in ({"layers": 2}, {"scope": "global"}):
        with pytest.raises(
            ValueError, match="--batchformer-layers and --batchformer-scope have no effect"
        ):
            batchformer_neck(8, "off", **given)


def test_a_dim_that_heads_do_not_divide_is_refused() -> None:
    with pytest.raises(ValueError, match="divisible by heads, got dim 10 and heads 4"):
        batchformer_neck(10, "on")


def untrained(tmp_path: Path, **keywords: Any) -> Any:
    """The method of a recipe before its first step."""

    class Waiting(Run):
        def fit(self, stage: Any) -> Any:
            self.stage = stage
            return stage.method

    run = Waiting(tmp_path, seed=3)
    method = balanced_softmax(run, open_data("digits-lt"), **keywords)
    return method, run.stage


def test_one_seed_gives_one_network_with_and_without_it(tmp_path: Path) -> None:
    plain, _ = untrained(tmp_path)
    with_neck, stage = untrained(tmp_path, batchformer="on")
    for name, tensor in plain.state_dict().items():
        assert torch.equal(tensor, with_neck.state_dict()[name]), name
    assert isinstance(with_neck.neck.batchformer, BatchFormer)
    groups = stage.optimizer(with_neck).param_groups
    slow = {
        id(p)
        for group in groups
        if group["lr"] < max(other["lr"] for other in groups)
        for p in group["params"]
    }
    assert slow == {id(p) for p in with_neck.neck.parameters()}


@pytest.mark.parametrize(
    ("keywords", "terms"),
    [
        ({"batchformer": "on"}, {"plain", "attended"}),
        ({"batchformer": "self", "plain_weight": 0.0, "batchformer_weight": 1.0}, {"attended"}),
        (
            {"batchformer": "frozen", "plain_weight": 1.5, "batchformer_weight": 1.5},
            {"plain", "attended"},
        ),
        ({"loss_scale": 0.5}, {"class"}),
    ],
)
def test_it_trains_and_leaves_a_plain_network(
    tmp_path: Path, keywords: dict[str, Any], terms: set[str]
) -> None:
    result = train("balanced_softmax", "digits-lt", tmp_path / "run", **QUICK, **keywords)
    (line,) = [
        json.loads(text)
        for text in (tmp_path / "run" / "train" / "journal.jsonl").read_text().splitlines()
    ]
    assert {name.removeprefix("terms/") for name in line if name.startswith("terms/")} == terms
    assert result.row is not None
    assert (
        result.row["parameters"]
        == sum(p.numel() for p in load(result.folder, device="cpu").network.parameters())
        == 495_696
    )


def test_every_recipe_that_has_it_has_its_controls() -> None:
    with_it = [name for name in RECIPES if "batchformer" in read(name).parameters]
    assert {"ride", "paco", "erm", "mdd", "cge", "compcos", "moco_v3", "ce_gzsl"} <= {*with_it}
    for name in with_it:
        modes = read(name).parameters["batchformer"].choices
        assert {*modes} == {"off", "on", "frozen", "self"}, name
        # Adam ignores a scale, so that ce_gzsl has none.
        assert ("loss_scale" in read(name).parameters) == (name != "ce_gzsl"), name


@pytest.mark.parametrize("recipe", ["ride", "paco"])
def test_the_scale_of_the_loss_is_a_control(
    recipe: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    captured = stages(monkeypatch, tmp_path, recipe, loss_scale=1.5, batch=64)
    streams = captured["train"].method.neck(torch.zeros(3, 8)).streams
    assert [stream.weight for stream in streams.values()] == [1.5]


@pytest.mark.parametrize("recipe", [ride, paco])
def test_ride_and_paco_attend_in_the_scope_that_is_given(recipe: Any, tmp_path: Path) -> None:
    data = open_data("digits-lt")
    for keywords, scope in (({}, "local"), ({"batchformer_scope": "global"}, "global")):
        run = Run(tmp_path, dry="rehearse")
        method = recipe(run, data, batchformer="on", **keywords)
        assert method.neck.batchformer.scope == scope


def test_a_row_says_where_only_the_shared_head_is_tested(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    target = np.arange(60) % 2
    rows = rng.normal(size=(60, 8)) + 3 * np.eye(8)[target]
    np.savez(tmp_path / "toy.npz", features=rows, target=target)
    keywords = {**QUICK, "network": "vectors", "batchformer": "on"}
    result = train("balanced_softmax", tmp_path / "toy.npz", tmp_path / "run", **keywords)
    assert result.row is not None
    assert result.row["data"]["caveats"] == [SHARED_HEAD]


@pytest.mark.parametrize(
    ("hidden", "mode", "caveats"),
    [(0, "on", 1), (0, "frozen", 1), (0, "self", 1), (0, "off", 0), (4, "on", 0)],
)
def test_a_trained_layer_before_batchformer_needs_no_caveat(
    tmp_path: Path, hidden: int, mode: Mode, caveats: int
) -> None:
    run, vectors = Run(tmp_path / "run", dry="rehearse"), Vectors(8)
    network = Embedded(vectors, [hidden]) if hidden else vectors
    note_frozen_inputs(run, network, batchformer_neck(network.dim, mode))
    assert run.caveats == [SHARED_HEAD] * caveats
