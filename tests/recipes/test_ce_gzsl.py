"""CE-GZSL is trained in two stages, resumes to the bit and recognises unseen classes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import zero_shot_files

from longtail.data.open import open_data
from longtail.data.request import data_flags
from longtail.engine.run import Run
from longtail.errors import LongtailError
from longtail.experiments.reproduce import plan
from longtail.nn import Embedded, build
from longtail.recipes.ce_gzsl import _unscaled, ce_gzsl
from longtail.recipes.published import Published, published
from longtail.runs import train
from longtail.testing import check_recipe

SMALL: dict[str, Any] = {
    "hidden": 16,
    "embedding": 8,
    "generator": 16,
    "critic": 16,
    "comparator": 8,
    "noise": 4,
    "critic_steps": 2,
    "synthetic": 10,
    "init_std": None,
}
QUICK = {**SMALL, "epochs": 1, "classifier_epochs": 2, "batch": 16}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return zero_shot_files.write(tmp_path_factory.mktemp("mat"))


@pytest.mark.parametrize("batchformer", ["off", "on"])
def test_it_keeps_the_contract_of_recipes(folder: Path, batchformer: str) -> None:
    check_recipe(ce_gzsl, open_data(folder), **QUICK, batchformer=batchformer)


def test_it_recognises_unseen_classes_at_the_bias_of_validation(
    folder: Path, tmp_path: Path
) -> None:
    keywords = {
        **SMALL,
        "hidden": 32,
        "generator": 32,
        "critic": 32,
        "epochs": 40,
        "classifier_epochs": 10,
        "batch": 16,
        "lr": 2e-3,
        "share": 1.0,
        "vector_norm": 3.0,
        "classifier_lr": 1e-2,
    }
    row = train("ce_gzsl", folder, tmp_path / "holdout", threads=1, **keywords).row
    assert row is not None
    assert row["val"] is not None
    point = row["operating_point"]
    assert point["chosen_on"] == "validation"
    h = row["val"]["scores"]["h"]
    assert h is not None
    assert h == pytest.approx(point["harmonic_mean"], abs=0.01)
    assert h > 0.4, "6 candidates, 2 of them unseen: chance is a sixth"
    assert point["val"] is not None
    before = point["val"]["scores"]["h"]
    assert before is not None
    assert before <= h
    assert row["headline"]["name"] == "h"
    assert row["selection"] == "last epoch"


def test_a_given_bias_is_added_to_unseen_classes(folder: Path, tmp_path: Path) -> None:
    data = open_data(folder, protocol="paper")
    plain, shifted = (
        ce_gzsl(Run(tmp_path / str(bias)), data, **QUICK, bias=bias) for bias in (0.0, 2.0)
    )
    image = torch.rand(3, 12)
    expected = torch.where(data.counts > 0, 0.0, 2.0)
    with torch.no_grad():
        difference = shifted.predict(image) - plain.predict(image)
    assert torch.allclose(difference, expected.expand(3, 8), atol=1e-5)


@pytest.mark.parametrize("mode", ["frozen", "self"])
def test_controls_of_batchformer_are_trained(folder: Path, tmp_path: Path, mode: Any) -> None:
    method: Any = ce_gzsl(Run(tmp_path / mode), open_data(folder), **QUICK, batchformer=mode)
    assert method.neck.batchformer.attention == ("self" if mode == "self" else "batch")
    assert not any(p.requires_grad for p in method.neck.parameters())


def test_an_embedding_of_scaled_features_is_one_of_the_features() -> None:
    embed = Embedded(build({"name": "vectors", "size": 5}), [7]).double()
    rows = 3 * torch.rand(9, 5, dtype=torch.float64) + 1
    low, span = rows.amin(0), rows.amax(0) - rows.amin(0)
    unscaled = _unscaled(embed, low, span).double()
    exact = Embedded(build({"name": "vectors", "size": 5}), [7]).double()
    exact.load_state_dict(unscaled.state_dict())
    assert torch.allclose(exact(rows), embed((rows - low) / span), atol=1e-5)


def test_unusable_data_is_refused_before_training(tmp_path: Path, folder: Path) -> None:
    with pytest.raises(LongtailError, match="on feature vectors, and digits-lt has images"):
        train("ce_gzsl", "digits-lt", tmp_path / "a", threads=1)
    with pytest.raises(LongtailError, match=r"needs training images of every class.*4 classes"):
        train("balanced_softmax", folder, tmp_path / "b", network="vectors", threads=1)
    with pytest.raises(LongtailError, match="--adjust validation needs training images of every"):
        train("eszsl", folder, tmp_path / "c", adjust="validation", threads=1)


@pytest.mark.parametrize("recipe", ["ce_gzsl", "eszsl"])
def test_classes_without_a_description_are_refused(tmp_path: Path, recipe: str) -> None:
    rng, target = np.random.default_rng(0), np.arange(60) % 6
    arrays: dict[str, Any] = {
        "features": rng.normal(size=(60, 4)),
        "target": target,
        "split": np.where(target < 4, "train", "test"),
        "classes": np.array(list("abcdef")),
    }
    zero = rng.normal(size=(6, 3))
    zero[[1, 4]] = 0
    words = np.array([["x", "y"], *[["y", "x"]] * 5])
    for vectors, message in ((zero, "class vector is 0 for b, e"), (words, "of numbers|numbers")):
        np.savez(tmp_path / "toy.npz", **arrays, **{"attribute.vector": vectors})  # type: ignore[arg-type]
        with pytest.raises(LongtailError, match=message):
            train(recipe, tmp_path / "toy.npz", tmp_path / "run", threads=1)


def test_a_softmax_on_seen_classes_never_recognises_unseen_ones(
    folder: Path, tmp_path: Path
) -> None:
    row = train(
        "cross_entropy",
        folder,
        tmp_path / "run",
        protocol="paper",
        network="vectors",
        epochs=20,
        batch=16,
        threads=1,
    ).row
    assert row is not None
    assert row["test"] is not None
    assert row["test"]["scores"]["unseen"] == 0
    assert row["test"]["scores"]["seen"] > 0.8  # type: ignore[operator]


ROWS = [row for row in published().values() if row.recipe == "ce_gzsl"]


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.name)
def test_published_rows_can_be_run(folder: Path, tmp_path: Path, row: Published) -> None:
    flags = {"root": str(folder)}
    (job,) = plan(row, tmp_path / "runs", seeds=[0], flags=flags)
    call = job.call()
    data = open_data(call["data"], **{name: call[name] for name in data_flags() if name in call})
    assert data.protocol == "paper"
    method = ce_gzsl(Run(tmp_path / "run", dry="rehearse"), data, **job.keywords)
    network: Any = method.deploy()
    assert (network.dim, network.network.dim) == (8, 2048)
    assert job.keywords["batchformer"] == ("on" if "batchformer" in row.name else "off")
