"""Costs of published rows: every row is counted, and the operations are those that torch counts."""

from __future__ import annotations

import pytest

from longtail.recipes.costs import FORWARD, TRAINING, gigaflops, hours, parts_of, total_hours
from longtail.recipes.published import published

ROWS = published()


def test_every_long_tailed_row_is_counted_and_no_other() -> None:
    parts = [part for row in ROWS.values() for part in parts_of(row)]
    missing = {part.key for part in parts} - {*gigaflops()}
    assert not missing, "run python benchmarks/network_flops.py"
    assert hours(ROWS["cifar10-lt-balanced-softmax-fast-cnn"]) is None
    assert hours(ROWS["pacs-erm"]) is None


def test_a_total_is_over_seeds_and_over_the_rows_that_are_counted() -> None:
    row, other = ROWS["cifar100-lt-paco"], ROWS["pacs-erm"]
    one = hours(row)
    assert one is not None
    assert total_hours([row, other]) == 3 * one
    assert total_hours([other]) is None


def test_the_operations_of_a_known_network() -> None:
    # ResNet-32 on CIFAR has 69 million multiplications and as many additions (He et al. 2016)
    assert gigaflops()["resnet32 at 32"] == pytest.approx(2 * 0.069, rel=0.02)
    # ViT-B/16 has 17.6 billion (Touvron et al. 2021)
    assert gigaflops()["timm:vit_base_patch16_224 at 224"] == pytest.approx(2 * 17.6, rel=0.02)


def test_passes_of_teachers_momentum_encoders_sam_and_pretraining() -> None:
    (student, teacher) = parts_of(ROWS["cifar10-lt-deit-lt-paco"])
    assert (student.size, teacher.network, teacher.size) == (224, "resnet32", 32)
    shown = 12406 * 1200
    assert (student.passes, teacher.passes) == (TRAINING * shown, FORWARD * shown)
    (plain,) = parts_of(ROWS["cifar100-lt-paco"])
    (flat,) = parts_of(ROWS["cifar100-lt-paco-sam"])
    assert plain.passes == (TRAINING + FORWARD) * 10847 * 400
    assert flat.passes == 2 * plain.passes
    before, after = parts_of(ROWS["inaturalist18-livt"])
    assert (before.size, before.decoder, after.size) == (128, (512, 8, 16), 224)
    assert before.passes == 8 * after.passes
    assert len(parts_of(ROWS["inaturalist18-livt-384"])) == 1, "it starts from an encoder"


def test_hours_follow_the_peak_of_a_gpu() -> None:
    row = ROWS["cifar10-lt-deit-lt-paco"]
    one, other = hours(row, "A100"), hours(row, "RTX 3090")
    assert one is not None
    assert other is not None
    assert other / one == pytest.approx(312 / 71.2)
    # By hand: 35.3 and 0.14 billion operations at a fifth of 312 teraflops a second
    assert one == pytest.approx(12406 * 1200 * (3 * 35.31 + 0.1377) / (62.4e3 * 3600), rel=1e-3)
