"""Domain generalisation: every recipe on features, what it is built of, and what is refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import longtail
from longtail.data.open import open_data
from longtail.data.samplers import Instance, PerDomain, SomeDomains
from longtail.engine.averaging import LossValley
from longtail.engine.optim import ResetAt
from longtail.engine.run import Run
from longtail.errors import LongtailError
from longtail.losses import domains as penalties
from longtail.recipes import domains
from longtail.recipes.domains import SELECTION
from longtail.recipes.signatures import read
from longtail.records.row import read_row
from longtail.report.folders import read_folder
from longtail.report.sections import section
from longtail.runs import train
from longtail.testing import check_recipe

QUICK: dict[str, Any] = {"network": "vectors", "hidden": 8, "epochs": 2, "batch": 12}


@pytest.fixture
def features(tmp_path: Path) -> Path:
    """Three classes in four domains; each domain shifts the features by a constant."""
    rng = np.random.default_rng(0)
    target, domain = np.arange(240) % 3, np.arange(240) // 60
    rows = rng.normal(size=(240, 8)) + 3 * np.eye(8)[target] + 2 * np.eye(8)[7 - domain]
    names = np.array(["art", "cartoon", "photo", "sketch"])[domain]
    path = tmp_path / "toy.npz"
    np.savez(path, features=rows, target=target, **{"column.domain": names})  # type: ignore[arg-type]
    return path


def stage(path: Path | str, recipe: str, **keywords: Any) -> Any:
    """The stage that a recipe builds, without training."""
    built: list[Any] = []

    class Rehearsal(Run):
        def fit(self, stage: Any) -> Any:
            built.append(stage)
            return stage.method

    data = open_data(path, test_domain="photo")
    run = Rehearsal(Path("never"), dry="rehearse")
    getattr(domains, recipe)(run, data, **keywords)
    return built[0]


def test_all_are_ranked_together_by_the_test_domain(features: Path, tmp_path: Path) -> None:
    result = longtail.sweep(
        ("erm", "vrex", "swad"),
        features,
        grid={**QUICK, "test_domain": "all", "batchformer": "on"},
        out=tmp_path / "runs",
        device="cpu",
        threads=1,
    )
    assert len(result.runs) == 3 * 4
    assert result.across == ()
    assert result.table is not None
    assert result.table.columns() == (
        "method",
        "test_domain art",
        "test_domain cartoon",
        "test_domain photo",
        "test_domain sketch",
        "mean",
        "seeds",
    )
    assert len(result.table.lines) == 3
    rows = [read_row(run) for run in result.runs]
    assert {row["selection"] for row in rows} == {SELECTION}
    assert {row["headline"]["name"] for row in rows} == {"domains"}
    for row in rows:
        assert row["test"] is not None
        assert row["val"] is not None
        assert row["test"]["scores"]["domains"] == row["test"]["top1"]
        assert f"domains/{row['data']['test_domain']}" in row["test"]["scores"]
        assert len([name for name in row["val"]["scores"] if name.startswith("domains/")]) == 3
    assert np.mean([row["test"]["top1"] for row in rows if row["test"]]) > 0.6
    (table,) = section(read_folder(result.runs[0]))["score_parts"]
    assert table["columns"] == ["", "validation", "test"]
    assert [line[0] for line in table["rows"]] == ["art", "cartoon", "photo", "sketch"]
    assert [line[1][1] is None for line in table["rows"]] == [True, False, False, False]
    assert table["rows"][0][2][1] == rows[0]["test"]["top1"]  # type: ignore[index]


@pytest.mark.parametrize("recipe", ["irm", "swad"])
def test_a_killed_run_resumes_to_the_bit(features: Path, recipe: str) -> None:
    data = open_data(features, test_domain="photo")
    keywords = {**QUICK, "batchformer": "on", "dropout": 0.2}
    if recipe == "irm":  # the optimizer is reset after 4 of 10 steps
        keywords |= {"anneal": 0.4, "steps": 5}
    check_recipe(getattr(domains, recipe), data, **keywords)


def test_what_the_recipes_are_built_of(features: Path) -> None:
    plain = stage(features, "erm", **QUICK)
    assert isinstance(plain.data.sampler, Instance)
    assert (plain.keep.name, plain.keep.best) == (SELECTION, "val/domains")
    assert isinstance(stage(features, "erm", batches="per_domain", **QUICK).data.sampler, PerDomain)
    for name in ("coral", "irm", "vrex"):
        built = stage(features, name, penalty_weight=5.0, steps=20, **QUICK)
        assert built.method.penalty is getattr(penalties, name)
        assert built.method.penalty_weight == 5.0
        assert isinstance(built.data.batches.sampler, PerDomain)
        optimizer = built.optimizer(built.method)
        if name == "coral":
            assert not isinstance(optimizer, ResetAt)
        else:
            assert optimizer.at == 2  # 5% of 2 x 20 steps
            assert built.method.anneal == 0.05
    averaged = stage(features, "swad", **QUICK, n_tolerance=4)
    assert (averaged.keep.name, averaged.keep.average) == (SELECTION, "swad")
    valley = averaged.averages["swad"]
    assert isinstance(valley, LossValley)
    assert (valley.metric, valley.n_tolerance, valley.tolerance_ratio) == ("val/loss", 4, 0.3)


def test_mixstyle_has_two_domains_in_a_batch() -> None:
    built = stage("shapes-domains", "mixstyle", batch=12, style_stages=[1, 3])
    assert built.method.style_stages == (0, 2)
    assert isinstance(built.data.sampler, SomeDomains)
    batch = next(iter(built.data.epoch(0)))
    assert sorted(batch["domain"].bincount().tolist())[-2:] == [6, 6]
    assert torch.isfinite(built.method.train()(batch, longtail.core.Clock(0, 2, 0, 1)).loss)


def test_schedules_and_optimizers(features: Path) -> None:
    clock = longtail.core.Clock(9, 10, 0, 1)
    rates = {
        name: stage(features, "erm", schedule=name, **QUICK).schedule(clock)
        for name in ("cosine", "constant", "step")
    }
    assert rates["constant"] == 1.0
    assert rates["step"] == 0.1
    assert 0 < rates["cosine"] < 0.1
    adam = stage(features, "erm", optimizer="adam", lr=5e-5, weight_decay=0.0, **QUICK)
    (group,) = adam.optimizer(adam.method).param_groups
    assert (group["lr"], group["weight_decay"]) == (5e-5, 0.0)
    neck = stage(features, "erm", batchformer="on", batchformer_lr_scale=0.1, lr=1.0, **QUICK)
    assert {group["lr"] for group in neck.optimizer(neck.method).param_groups} == {1.0, 0.1}


def test_irm_and_vrex_have_a_lower_learning_rate_from_random_weights(features: Path) -> None:
    rates = {}
    for name in ("erm", "coral", "irm", "vrex", "swad"):
        built = stage(features, name, **QUICK)
        rates[name] = built.optimizer(built.method).param_groups[0]["lr"]
    assert rates == {"erm": 0.02, "coral": 0.02, "irm": 0.002, "vrex": 0.002, "swad": 0.02}
    adam = stage(features, "irm", optimizer="adam", **QUICK)
    assert adam.optimizer(adam.method).param_groups[0]["lr"] == 1e-3


@pytest.mark.parametrize(
    ("recipe", "flags", "message"),
    [
        ("erm", {"test_domain": None}, "pass --test-domain NAME, or use cross_entropy"),
        (
            "coral",
            {"train_domain": "art"},
            "compares training domains, and there is only",
        ),
        ("mixstyle", {}, "MixStyle needs feature maps, and this data has feature vectors"),
        ("erm", {"protocol": "paper"}, "use --protocol holdout, or --keep last"),
        ("swad", {"protocol": "paper"}, "use --protocol holdout"),
        ("irm", {"batch": 10}, "equally many images of 3 domains .*, got 10: try 9"),
        ("erm", {"augment": "weak"}, "--augment weak has no effect with feature vectors"),
        ("erm", {"plain_weight": 1.0}, "have no effect without BatchFormer"),
    ],
)
def test_what_cannot_be_trained_is_refused_first(
    features: Path, tmp_path: Path, recipe: str, flags: dict[str, Any], message: str
) -> None:
    with pytest.raises(LongtailError, match=message):
        train(recipe, features, tmp_path / "run", **{**QUICK, "test_domain": "photo", **flags})


def test_the_last_epoch_without_validation(features: Path, tmp_path: Path) -> None:
    keywords = {**QUICK, "test_domain": "photo", "protocol": "paper", "keep": "last"}
    result = train("erm", features, tmp_path / "run", **keywords)
    assert result.row is not None
    assert result.row["selection"] == "last epoch"


def test_a_recipe_has_no_keyword_of_another_method() -> None:
    assert not {"penalty_weight", "style_alpha", "n_converge"} & {*read("erm").parameters}
    assert "penalty_weight" in read("coral").parameters
    assert "n_converge" in read("swad").parameters
    assert "penalty_weight" not in read("swad").parameters
