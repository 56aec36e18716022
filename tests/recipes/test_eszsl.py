"""ESZSL chooses on classes held out of training, and recognises unseen classes."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import torch
import zero_shot_files

from longtail.data.open import open_data
from longtail.engine.run import Run
from longtail.errors import LongtailError
from longtail.nn import Adjusted
from longtail.recipes.eszsl import _held_out, eszsl
from longtail.runs import train
from longtail.testing import check_recipe


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return zero_shot_files.write(tmp_path_factory.mktemp("mat"))


def test_it_keeps_the_contract_of_recipes(folder: Path) -> None:
    check_recipe(eszsl, open_data(folder))


def test_it_recognises_unseen_classes_with_the_bias_that_it_chose(
    folder: Path, tmp_path: Path
) -> None:
    row = train("eszsl", folder, tmp_path / "run", protocol="paper", threads=1).row
    assert row is not None
    assert row["test"] is not None
    assert row["test"]["scores"]["h"] > 0.6  # type: ignore[operator]
    assert row["selection"] == "closed form"
    point = row["operating_point"]
    assert point["chosen_on"] == "recipe"
    given = train("eszsl", folder, tmp_path / "given", protocol="paper", threads=1, bias=-100.0).row
    assert given is not None
    assert given["test"] is not None
    assert given["test"]["scores"]["unseen"] == 0


def test_validation_holds_out_classes_and_rows_of_the_others(folder: Path) -> None:
    data = open_data(folder, protocol="paper")
    held = _held_out(data)
    target = data.train.target
    counts = torch.bincount(target[held], minlength=8)
    assert sorted(counts.tolist()) == [0, 0, 1, 1, 1, 1, 10, 10]


def test_test_rows_choose_nothing(folder: Path, tmp_path: Path) -> None:
    data = open_data(folder, protocol="paper")
    shuffled = replace(data.test, target=data.test.target.flip(0))
    weights = [
        eszsl(Run(tmp_path / name), replace(data, test=test)).state_dict()
        for name, test in (("a", data.test), ("b", shuffled))
    ]
    assert all(torch.equal(weights[0][name], weights[1][name]) for name in weights[0])


def test_it_deploys_a_classifier_of_class_vectors(folder: Path, tmp_path: Path) -> None:
    network = eszsl(Run(tmp_path), open_data(folder)).deploy()
    assert isinstance(network, Adjusted)
    assert network.head.spec["name"] == "class_vectors"


def test_two_seen_classes_are_too_few(folder: Path, tmp_path: Path) -> None:
    data = open_data(folder, protocol="paper")
    two = data.train.target.unique()[:2]
    rows = torch.isin(data.train.target, two).nonzero().flatten().numpy()
    train_split = data.train.take(rows)
    few = replace(data, train=train_split, counts=train_split.target.bincount(minlength=8))
    with pytest.raises(LongtailError, match="has only 2 of them: at least 3"):
        eszsl(Run(tmp_path), few)
