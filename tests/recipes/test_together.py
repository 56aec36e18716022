"""Rows that see each other: which division of a step is the same training."""

from __future__ import annotations

from typing import Any

import pytest

from longtail.errors import LongtailError
from longtail.recipes import RECIPES
from longtail.recipes.published import published
from longtail.recipes.signatures import read
from longtail.recipes.together import attending, differences, divided, kept_together

VIT = {"network": "timm:vit_base_patch16_224", "batch": 128, "accumulate": 8}
SOFTMAX = {"network": "resnet32", "batch": 512, "batchformer": "on"}


def changes(name: str, row: dict[str, Any], given: dict[str, Any], **options: int) -> list[str]:
    recipe = read(name)
    expected = recipe.keywords(row)
    return [*differences(recipe, expected, recipe.keywords(row | given), **options)]


def test_recipes_of_transformers_declare_that_rows_do_not_see_each_other() -> None:
    declared = {name for name in RECIPES if read(name).separate_rows}
    transformers = {"vit", "vit_crt", "vit_scratch", "deit", "deit3", "deit_lt", "livt"}
    assert declared == transformers | {"masked_autoencoder"}
    recipe = read("livt")
    assert recipe.rows_are_separate(recipe.keywords({"network": "vit_mini"}))
    # Batch norm in the stem, and a loss that estimates expectations from the batch
    assert not recipe.rows_are_separate(recipe.keywords({"network": "fast_vit"}))
    assert not recipe.rows_are_separate(recipe.keywords(VIT | {"loss": "lade"}))
    published_vit = [row for row in published().values() if row.recipe in transformers]
    separate = {
        row.name
        for row in published_vit
        if read(row.recipe).rows_are_separate(
            row.all_keywords(dict.fromkeys(row.needed_keywords, "given"))
        )
    }
    assert {row.name for row in published_vit} - separate == {
        row.name for row in published_vit if str(row.keywords.get("loss")).startswith("lade")
    }


def test_only_the_images_of_a_step_count_for_separate_rows() -> None:
    assert not changes("vit", VIT, {"batch": 1024, "accumulate": 1})
    assert changes("vit", VIT, {"batch": 64}) == ["batch x accumulate is 512 instead of 1024"]
    mae = VIT | {"pretrain_batch": 256, "pretrain_accumulate": 16}
    assert not changes("livt", mae, {"pretrain_batch": 4096, "pretrain_accumulate": 1})
    assert changes("livt", mae, {"pretrain_batch": 512}) == [
        "pretrain_batch x pretrain_accumulate is 8192 instead of 4096"
    ]


def test_rows_that_see_each_other_stay_together() -> None:
    plain = {"network": "resnet32", "batch": 512}
    assert changes("balanced_softmax", plain, {"batch": 256, "accumulate": 2}) == [
        "batch is 256 instead of 512",
        "accumulate is 2 instead of 1",
    ]
    assert not changes("balanced_softmax", plain, {}, processes=4)  # which share the 512
    ride = {"network": "resnet50", "size": 224, "batch": 100, "accumulate": 4}
    shared = {"batch": 400, "accumulate": 1}  # 100 in each of four processes
    assert not changes("ride", ride, shared, processes=4)
    assert changes("ride", ride, shared, processes=2) == [
        "batch is 400 instead of 100",
        "accumulate is 1 instead of 4",
    ]


def test_the_scope_of_batchformer_is_compared_by_how_many_images_attend() -> None:
    row = SOFTMAX
    assert not changes("balanced_softmax", row, {}, together=512)
    everywhere = {"batchformer_scope": "global"}
    assert not changes("balanced_softmax", row, everywhere, together=512, processes=4)
    assert changes("balanced_softmax", row, {}, together=512, processes=4) == [
        "128 images attend together instead of 512"
    ]
    assert attending(row | everywhere, 4) == 512
    assert attending(row, 4) == 128
    assert attending(row | {"batchformer": "off"}) == 0


@pytest.mark.parametrize(
    ("processes", "together", "given", "scope"),
    [
        (1, 512, {}, None),
        (4, 512, {}, "global"),
        (4, 512, {"batch": 2048}, None),  # 512 in each
        (16, 32, {}, None),
    ],
)
def test_several_processes_keep_the_images_that_attend(
    processes: int, together: int, given: dict[str, int], scope: str | None
) -> None:
    recipe = read("balanced_softmax")
    keywords = recipe.keywords(SOFTMAX | given)
    kept = kept_together(recipe, keywords, together=together, processes=processes, name="row")
    assert kept == ({} if scope is None else {"batchformer_scope": scope})
    assert not kept_together(
        recipe, keywords | {"batchformer": "off"}, together=0, processes=processes, name="row"
    )


@pytest.mark.parametrize("name", ["ride", "paco"])
def test_ride_and_paco_attend_across_processes(name: str) -> None:
    recipe = read(name)
    keywords = recipe.keywords({"batchformer": "on", "batch": 100})
    options: dict[str, Any] = {"processes": 4, "name": "row"}
    assert kept_together(recipe, keywords, together=100, **options) == {
        "batchformer_scope": "global"
    }
    with pytest.raises(
        LongtailError,
        match=r"50 images attend together .* of row, which 4 processes with 100 images \(25 each\)"
        r" cannot keep: start 1 or 2 without --batch, or 1 or 2 with --batch 50",
    ):
        kept_together(recipe, keywords, together=50, **options)
    with pytest.raises(LongtailError, match="start 1, 2, 4 or 5 without --batch"):
        kept_together(recipe, keywords, together=100, processes=8, name="row")


def test_a_batch_is_what_each_process_gets() -> None:
    vit = read("vit")
    assert divided(vit, VIT, batch=128, processes=8) == {"batch": 1024, "accumulate": 1}
    assert divided(vit, VIT, batch=32, accumulate=2, processes=8) == {
        "batch": 256,
        "accumulate": 2,
    }
    mae = {"pretrain_batch": 256, "pretrain_accumulate": 16, **VIT}
    assert divided(read("livt"), mae, batch=64, processes=8) == {
        "batch": 512,
        "accumulate": 2,
        "pretrain_batch": 512,
        "pretrain_accumulate": 8,
    }
    assert divided(read("livt"), VIT, batch=64) == {"batch": 64, "accumulate": 16}
    with pytest.raises(LongtailError, match="2 processes with --batch 300 cannot share"):
        divided(vit, VIT, batch=300, processes=2)
    with pytest.raises(LongtailError, match="eszsl, which has no batches"):
        divided(read("eszsl"), {}, batch=1)
    with pytest.raises(LongtailError, match="at least 1, got 0"):
        divided(vit, VIT, batch=0)


def test_each_published_row_with_batchformer_states_how_many_images_attend() -> None:
    rows = published()
    counts = {name: row.images_together for name, row in rows.items() if row.images_together}
    assert counts.keys() == {
        name for name, row in rows.items() if row.keywords.get("batchformer", "off") != "off"
    }
    stated = {
        "cifar100-lt-balanced-softmax-batchformer": 512,
        "imagenet-lt-balanced-softmax-batchformer": 128,
        "imagenet-lt-resnet50-ride-batchformer": 100,
        "cifar100-lt-paco-batchformer": 128,
        "imagenet-moco-v2-batchformer": 32,
        "imagenet-moco-v3-batchformer": 256,
    }
    assert {name: counts[name] for name in stated} == stated
