import pickle
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from timm.data.mixup import Mixup as TimmMixup
from torch import Tensor

from longtail.core import BatchTransform, Clock, Labelled
from longtail.data.mixing import CutMix, Mixup, MixupCutMix, Smooth
from longtail.schedules import Until

CLOCK = Clock(0, 10, 0, 1)
TRANSFORMS: list[BatchTransform] = [
    Mixup(classes=5, alpha=0.3),
    CutMix(classes=5, alpha=1.0),
    MixupCutMix(classes=5),
    MixupCutMix(classes=5, probability=0.5, smoothing=0.1),
    Smooth(5, 0.1),
]


def made(rows: int) -> Labelled:
    generator = torch.Generator().manual_seed(rows)
    image = torch.rand(rows, 3, 9, 12, generator=generator)
    return {
        "image": image,
        "target": torch.randint(5, (rows,), generator=generator),
        "position": torch.arange(rows),
    }


@pytest.mark.parametrize("rows", [1, 2, 5, 8])
@pytest.mark.parametrize("transform", TRANSFORMS, ids=str)
def test_a_new_batch_with_distributions_and_the_old_one_untouched(
    transform: BatchTransform, rows: int
) -> None:
    batch, before = made(rows), made(rows)
    for _ in range(10):
        mixed = transform(batch, CLOCK)
        assert mixed is not batch
        assert mixed["image"].shape == batch["image"].shape
        assert mixed["target"].shape == (rows, 5)
        assert torch.allclose(mixed["target"].sum(1), torch.ones(rows))
        assert (mixed["target"] >= 0).all()
        assert mixed["position"] is batch["position"]
    assert torch.equal(batch["image"], before["image"])
    assert torch.equal(batch["target"], before["target"])
    assert pickle.loads(pickle.dumps(transform)) == transform


def theirs(
    seed: int, batch: Labelled, mixup: float, cutmix: float, probability: float, smoothing: float
) -> tuple[Tensor, Tensor]:
    np.random.seed(seed)  # noqa: NPY002
    mix: Any = TimmMixup(
        mixup_alpha=mixup,
        cutmix_alpha=cutmix,
        prob=probability,
        label_smoothing=smoothing,
        num_classes=5,
    )
    image, target = mix(batch["image"].clone(), batch["target"])
    return image, target


def ours(
    seed: int, batch: Labelled, transform: Callable[[Labelled, Clock], Labelled]
) -> tuple[Tensor, Tensor]:
    np.random.seed(seed)  # noqa: NPY002
    mixed = transform(batch, CLOCK)
    return mixed["image"], mixed["target"]


@pytest.mark.parametrize(("probability", "smoothing"), [(1.0, 0.0), (0.7, 0.1)])
def test_even_batches_equal_timms(probability: float, smoothing: float) -> None:
    batch = made(6)
    transform = MixupCutMix(classes=5, probability=probability, smoothing=smoothing)
    for seed in range(30):
        image, target = ours(seed, batch, transform)
        expected_image, expected_target = theirs(seed, batch, 0.8, 1.0, probability, smoothing)
        assert torch.allclose(image, expected_image, atol=1e-6)
        assert torch.allclose(target, expected_target, atol=1e-6)


@pytest.mark.parametrize("seed", range(20))
def test_targets_are_the_shares_of_the_mixed_images(seed: int) -> None:
    rows = 5
    # Channel c of image c is 1: the mean says whose pixels they are
    image = torch.eye(rows)[:, :, None, None].expand(rows, rows, 7, 9)
    batch: Labelled = {"image": image, "target": torch.arange(rows), "position": torch.arange(rows)}
    for transform in (Mixup(classes=rows, alpha=0.8), CutMix(classes=rows, alpha=1.0)):
        mixed_image, mixed_target = ours(seed, batch, transform)
        assert torch.allclose(mixed_image.mean((2, 3)), mixed_target, atol=1e-6)


def test_cutmix_moves_pixels_and_mixup_blends_them() -> None:
    batch = made(4)
    cut, _ = ours(3, batch, CutMix(classes=5, alpha=1.0))
    assert ((cut == batch["image"]) | (cut == batch["image"].flip(0))).all()
    blended, _ = ours(3, batch, Mixup(classes=5, alpha=1.0))
    assert not ((blended == batch["image"]) | (blended == batch["image"].flip(0))).any()


def test_smoothing_of_hard_and_soft_targets() -> None:
    batch = made(3)
    smooth = Smooth(5, 0.1)(batch, CLOCK)["target"]
    assert smooth[0, batch["target"][0]] == pytest.approx(0.92)
    assert smooth.min() == pytest.approx(0.02)
    soft: Labelled = {**batch, "target": torch.eye(5)[batch["target"]]}
    assert torch.allclose(Smooth(5, 0.1)(soft, CLOCK)["target"], smooth)


def test_the_clock_switches_mixing_off() -> None:
    batch, transform = made(4), Until(0.5, Mixup(classes=5, alpha=1.0))
    assert transform(batch, Clock(4, 10, 0, 1)) is not batch
    assert transform(batch, Clock(5, 10, 0, 1)) is batch


def test_mistakes_are_named() -> None:
    with pytest.raises(ValueError, match="mixup must be above 0, got 0"):
        Mixup(classes=5, alpha=0)
    with pytest.raises(ValueError, match="cutmix must be above 0, got -1"):
        CutMix(classes=5, alpha=-1)
    with pytest.raises(ValueError, match="switch must be in"):
        MixupCutMix(classes=5, switch=2)
    for smoothing in (1.0, -0.1):
        with pytest.raises(ValueError, match=r"smoothing must be in \[0, 1\)"):
            Smooth(5, smoothing)
        with pytest.raises(ValueError, match=r"smoothing must be in \[0, 1\)"):
            MixupCutMix(classes=5, smoothing=smoothing)
