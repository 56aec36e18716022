"""LiVT and its baselines from end to end, on digits."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any, get_args

import pytest
import torch

from longtail.core import Clock
from longtail.losses import BalancedBCE
from longtail.nn import Cosine, Linear
from longtail.nn.mae import transformer
from longtail.nn.mae_files import read_weights
from longtail.recipes.livt import Loss, loss_and_head
from longtail.runs import load, train

QUICK: dict[str, Any] = {"epochs": 1, "batch": 64, "patch": 4, "threads": 1, "device": "cpu"}
SMALL: dict[str, Any] = {"decoder_width": 16, "decoder_depth": 1, "decoder_heads": 2}
COUNTS = torch.tensor([40, 9, 2])


@pytest.fixture(scope="module")
def pretrained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("runs") / "mgp"
    train("masked_autoencoder", "digits-lt", folder, probe_epochs=1, **QUICK, **SMALL)
    return folder


def test_fine_tuning_begins_with_the_encoder_of_another_run(pretrained: Path, tmp_path: Path) -> None:
    result = train("livt", "digits-lt", tmp_path / "run", pretrained=pretrained, size=16, lr=0.0, **QUICK)
    assert result.row is not None
    assert result.row["epochs"] == {"finetune": 1}
    assert result.row["size"] == 16
    network: Any = load(tmp_path / "run").network
    own, given = transformer(network.network).state_dict(), read_weights(pretrained).tensors
    weights = read_weights(pretrained)
    assert {name: network.network.spec[name] for name in ("mean", "std")} == weights.statistics
    for name in ("blocks.5.mlp.fc2.weight", "patch_embed.proj.weight", "cls_token"):
        assert torch.equal(own[name], given[name])  # a rate of 0 shows what it began with
    assert own["pos_embed"].shape[1] == 1 + 16
    assert given["pos_embed"].shape[1] == 1 + 4


def test_both_stages_in_one_run_and_its_encoder_for_others(tmp_path: Path) -> None:
    train("livt", "digits-lt", tmp_path / "run", pretrain_epochs=1, pretrain_batch=64, pretrain_size=16, **QUICK, **SMALL)
    row = json.loads((tmp_path / "run" / "row.json").read_text())
    assert row["epochs"] == {"pretrain": 1, "finetune": 1}
    assert (tmp_path / "run" / "analysis" / "reconstructions.png").exists()
    weights = read_weights(tmp_path / "run")
    assert weights.tensors["pos_embed"].shape[1] == 1 + 16, "the encoder before fine-tuning, at its own size"
    train("livt", "digits-lt", tmp_path / "arm", pretrained=tmp_path / "run", loss="ce", **QUICK)


@pytest.mark.parametrize("recipe", ["vit_scratch", "deit3"])
def test_the_baselines_train(recipe: str, tmp_path: Path) -> None:
    result = train(recipe, "digits-lt", tmp_path / "run", **QUICK)
    assert result.row is not None
    assert result.row["epochs"] == {"train": 1}


def test_the_head_under_lamb_does_not_begin_near_zero(tmp_path: Path) -> None:
    train("deit3", "digits-lt", tmp_path / "run", **QUICK)
    head: Any = load(tmp_path / "run", device="cpu").network.head
    assert float(head.weight.std()) > 0.01, "LAMB's steps are in proportion to the weights: near zero it would stay there"


def test_a_dry_run_goes_through_both_stages_and_writes_nothing(tmp_path: Path) -> None:
    train("livt", "digits-lt", tmp_path / "run", dry_run=True, pretrain_epochs=1, pretrain_batch=64, **QUICK, **SMALL)
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("loss", get_args(Loss))
def test_every_loss_of_table_7_learns_from_hard_and_mixed_targets(loss: Any) -> None:
    torch.manual_seed(0)
    function, head, weights = loss_and_head(loss, COUNTS, 6, tau=1.0, test_prior=None)
    features = torch.randn(5, 6)
    weight = None if weights is None else weights(Clock(0, 1, 0, 1))
    for target in (torch.tensor([0, 0, 0, 1, 2]), torch.rand(5, 3).softmax(1)):
        value = function(head(features), target, weight=weight, features=features)
        value.backward()
        assert value.isfinite()
        gradient = next(head.parameters()).grad
        assert gradient is not None
        assert gradient.any()
    assert isinstance(head, Cosine if loss == "ldam" else Linear)


def test_ldam_deploys_logits_that_can_be_sure() -> None:
    _, head, _ = loss_and_head("ldam", COUNTS, 6, tau=1.0, test_prior=None)
    weight: Any = head.weight
    assert head(weight[1:2]).softmax(1)[0, 1] > 0.99


def test_balanced_bce_begins_at_the_entropies_of_the_prior() -> None:
    function, head, _ = loss_and_head("bal_bce", COUNTS, 6, tau=1.0, test_prior=None)
    prior = COUNTS / COUNTS.sum()
    entropies = -(prior * prior.log() + (1 - prior) * (1 - prior).log()).sum()
    target = torch.arange(3).repeat_interleave(COUNTS)
    assert function(head(torch.randn(len(target), 6)), target).item() == pytest.approx(entropies.item(), rel=1e-3)


def test_the_variants_of_balanced_bce_can_be_asked_for() -> None:
    function, _, _ = loss_and_head("bal_bce", COUNTS, 6, tau=0.5, test_prior="uniform")
    assert isinstance(function, BalancedBCE)
    assert torch.equal(function.bias, BalancedBCE(COUNTS, tau=0.5, test_prior="uniform").bias)


def test_keywords_that_a_loss_cannot_use_are_refused() -> None:
    with pytest.raises(ValueError, match=r"--tau with --loss bal_bce or bal_ce.*got it with ce"):
        loss_and_head("ce", COUNTS, 6, tau=0.5, test_prior=None)
    with pytest.raises(ValueError, match="--test-prior with --loss bal_bce, got it with bal_ce"):
        loss_and_head("bal_ce", COUNTS, 6, tau=1.0, test_prior="uniform")


def test_a_class_without_images_is_named() -> None:
    with pytest.raises(ValueError, match="got none in class 1"):
        loss_and_head("bal_bce", torch.tensor([4, 0, 2]), 6, tau=1.0, test_prior=None)


@pytest.mark.parametrize(
    ("keywords", "said"),
    [
        ({"patch": 3}, "size 8 and patch 3"),
        ({"mask": 1.0}, "mask ratio between 0 and 1, got 1.0"),
        ({"mask": 0.9}, "some of 4 patches and not all"),
        ({"network": "fast_cnn"}, "fast_cnn has no keyword patch"),
        ({"pretrained": "nowhere"}, "got nothing at nowhere"),
        ({"loss": "ce", "tau": 0.5}, "--tau with --loss"),
    ],
)
def test_bad_input_is_refused_before_anything_is_learnt(keywords: dict[str, Any], said: str, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=said):
        train("livt", "digits-lt", tmp_path / "run", **{**QUICK, **keywords})
    assert not list((tmp_path / "run").glob("*/last.pt"))


def test_an_encoder_of_another_patch_or_width_is_refused_with_both(pretrained: Path, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=rf"patch 2, as vit_mini has here, got patch 4 in {pretrained}"):
        train("livt", "digits-lt", tmp_path / "patch", pretrained=pretrained, **{**QUICK, "patch": 2})
    with pytest.raises(ValueError, match=rf"width 192, as vit_tiny has here, got width 128 in {pretrained}"):
        train("livt", "digits-lt", tmp_path / "width", pretrained=pretrained, network="vit_tiny", **QUICK)


def test_the_equations_are_where_the_page_says() -> None:
    root = Path(__file__).parents[2]
    lines = re.findall(r"^\| .* \| `(src/\S+)`: `(.*)` \|$", (root / "docs" / "livt.md").read_text(encoding="utf-8"), re.MULTILINE)
    assert len(lines) == 12
    for path, line in lines:
        assert line in (root / path).read_text(encoding="utf-8"), f"{path} has no line {line}"
