"""Which run a folder contains: the same one is resumed, another is refused."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from finished import QUICK, changed

from longtail.data.request import DataRequest
from longtail.recipes.signatures import read
from longtail.runs import evaluate, load, train
from longtail.runs.identity import RunConfig, check_outside
from longtail.runs.restore import restore_method


def test_a_repeated_call_is_finished_and_another_is_refused(finished: Path) -> None:
    repeated = train(
        "balanced_softmax", "digits-lt", finished, **QUICK | {"device": "auto", "workers": 1}
    )
    assert not repeated.fresh
    assert repeated.row is not None
    assert repeated.row["folder"] == str(finished)
    # Other words for the same run
    train("logit_adjustment", Path("digits-lt"), finished, **QUICK, imbalance=20.0)
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
        match=(
            r"expected a folder outside of the data for --out, got .*runs/x.*such as --out .*runs/x"
        ),
    ):
        train("cross_entropy", data, out, **QUICK)
    assert [path.name for path in (tmp_path / "images").iterdir()] == ["cat"]
    check_outside(tmp_path / "runs" / "x", data)
    check_outside(tmp_path / "images-2", data)
    (tmp_path / "digits-lt").mkdir()
    check_outside(tmp_path / "digits-lt" / "x", "digits-lt")  # a known name, not that folder


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
    assert all(
        torch.equal(tensor, saved[name]) for name, tensor in method.deploy().state_dict().items()
    )


def test_the_command_requests_the_same_run() -> None:
    recipe = read("balanced_softmax")
    config = RunConfig(
        recipe=recipe,
        keywords=recipe.keywords({"lr": 0.5, "tau": 2}),
        data=DataRequest("my data", imbalance=50.0, mirror=False),
        seed=1,
        view_seed=1,
        tta="flip",
        adjust="validation",
    )
    assert (
        config.command(Path("runs/x"))
        == "longtail train balanced_softmax --data 'my data' --out runs/x --imbalance 50.0"
        " --no-mirror --seed 1 --tta flip --adjust validation --tau 2.0 --lr 0.5"
    )
