"""Strong views. What every view has to keep is in `test_views.py`."""

import random
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from torchvision import transforms
from torchvision.transforms.functional import rotate

from longtail.data.augmentations import (
    CifarAutoAugment,
    JitteredCrop,
    RandAugment,
    Rotated,
    Seeded,
    ThreeAugment,
    _erased,
    _shifted_crop,
)
from longtail.data.views import Array, CenterCrop, CropFlip, View


def random_image(width: int = 32, height: int = 32) -> Image.Image:
    return Image.fromarray(
        np.random.default_rng(0).integers(256, size=(height, width, 3), dtype=np.uint8)
    )


def sampled(view: View, rows: int) -> Array:
    return view.parameters(np.random.default_rng(0), rows)


@pytest.mark.parametrize("make", [CifarAutoAugment, ThreeAugment])
def test_no_flip_means_no_flip(make: type[CifarAutoAugment | ThreeAugment]) -> None:
    dark_left = Image.fromarray(
        np.repeat(np.linspace(0, 255, 32, dtype=np.uint8)[None, :, None], 32, axis=0).repeat(
            3, axis=2
        )
    )
    view = make(32, flip=False, pad=0)
    views = torch.stack([view(dark_left, row) for row in sampled(view, 60)]).float()
    mirrored = torch.stack([make(32, pad=0)(dark_left, row) for row in sampled(view, 60)]).float()
    # AutoAugment inverts or solarizes some, so count instead of asking for all.
    rises, falls = (
        (v[..., 16:].mean((1, 2, 3)) > v[..., :16].mean((1, 2, 3))).sum() for v in (views, mirrored)
    )
    assert rises > falls + 10


def test_strong_views_move_the_image_as_the_weak_one_does() -> None:
    weak, image = CropFlip(8, pad=3), random_image(8, 8)
    possible = {
        weak(image, np.array([top, left, 0, 0, 0])).numpy().tobytes()
        for top in range(7)
        for left in range(7)
    }
    random.seed(0)
    crops = {
        np.asarray(_shifted_crop(image, 8, 3)).transpose(2, 0, 1).tobytes() for _ in range(1000)
    }
    assert len(possible) == 49
    assert crops == possible


def test_the_rand_augment_recipe_does_not_crash() -> None:
    # Pillow 13 rejects what timm's posterize asks for, about once in 570 images.
    view, image = RandAugment(8), random_image(8, 8)
    for row in sampled(view, 5000):
        view(image, row)


def test_erasing_leaves_noise_of_imagenet_colours_in_a_rectangle() -> None:
    random.seed(0)
    torch.manual_seed(0)
    before = torch.full((3, 64, 64), 255, dtype=torch.uint8)
    after = _erased(before.clone(), 1.0)
    hit = (after != before).any(0)
    rows, columns = hit.any(1).nonzero().flatten(), hit.any(0).nonzero().flatten()
    box = after[:, rows[0] : rows[-1] + 1, columns[0] : columns[-1] + 1].float() / 255
    assert 0.02 * 64 * 64 * 0.8 <= box[0].numel() <= 64 * 64 / 3 * 1.2
    assert box.mean((1, 2)).tolist() == pytest.approx([0.485, 0.456, 0.406], abs=0.05)
    assert torch.equal(_erased(before.clone(), 0.0), before)


def test_three_augment_chooses_one_of_three() -> None:
    view, image = ThreeAugment(16, pad=0, jitter=0.0, flip=False), random_image(16, 16)
    original = CenterCrop(16)(image)
    kinds = set()
    for row in sampled(view, 40):
        result = view(image, row)
        grey = torch.equal(result[0], result[1])
        solarized = torch.equal(torch.where(original < 128, original, 255 - original), result)
        kinds.add("grey" if grey else "solarized" if solarized else "blurred")
    assert kinds == {"grey", "solarized", "blurred"}


def test_three_augment_may_take_a_part_of_the_image() -> None:
    # Black, then white
    halves = Image.fromarray(
        np.repeat(np.array([[[0] * 3] * 16 + [[255] * 3] * 16], dtype=np.uint8), 32, axis=0)
    )
    view = ThreeAugment(16, pad=0, jitter=0.0, flip=False, scale=(0.08, 0.1))
    inside = [view(halves, row).float().std() < 1 for row in sampled(view, 40)]
    assert sum(inside) > 10, "a tenth of the image is often of one colour"
    full = ThreeAugment(16, pad=0, jitter=0.0, flip=False)
    assert not any(full(halves, row).float().std() < 1 for row in sampled(full, 10))


def test_rotated_matches_torchvision_within_its_degrees() -> None:
    view, image = Rotated(16, pad=0, degrees=15, flip=False), random_image(16, 16)
    angles = []
    for row in sampled(view, 200):
        rotated = view(image, row)
        random.seed(int(row[0]))
        random.randint(0, 0), random.randint(0, 0)  # the shift
        angles.append(random.uniform(-15, 15))
        # Nearest, and black corners, as transforms.RandomRotation
        expected = rotate(image, angles[-1])
        assert torch.equal(rotated, torch.from_numpy(np.array(expected)).permute(2, 0, 1))
    assert -15 <= min(angles) < -14
    assert 14 < max(angles) <= 15
    assert torch.equal(Rotated(16, pad=0, degrees=0, flip=False)(image, row), CenterCrop(16)(image))


class Noise(Seeded):
    """A user's view that uses all three generators."""

    size = 4

    def apply(self, image: Image.Image) -> torch.Tensor:
        values = random.random(), np.random.rand(), float(torch.rand(()))  # noqa: NPY002
        return (torch.tensor(values) * 255).to(torch.uint8)[:, None, None].expand(3, 4, 4)


def test_a_seed_reaches_all_three_generators() -> None:
    view = Noise()
    rows = sampled(view, 2)
    first, second, repeated = (
        view(random_image(), rows[0]),
        view(random_image(), rows[1]),
        view(random_image(), rows[0]),
    )
    assert torch.equal(first, repeated)
    assert (first != second).all()


def test_jittered_crop_changes_colours_and_takes_most_of_the_image() -> None:
    flat = Image.new("RGB", (40, 40), (200, 100, 50))
    view = JitteredCrop(16, grey=0.5)
    parameters = view.parameters(np.random.default_rng(0), 60)
    means = np.stack([view(flat, row).float().mean((1, 2)).numpy() for row in parameters])
    grey = means.max(1) - means.min(1) < 1
    assert 15 < grey.sum() < 45
    assert means[~grey].std(0).min() > 5
    plain = JitteredCrop(16, jitter=0.0, grey=0.0, flip=False)
    line = np.arange(40, dtype=np.uint8)[:, None, None] * 6
    gradient = Image.fromarray(np.tile(line, (1, 40, 3)))
    crops = np.stack([plain(gradient, row).numpy() for row in parameters])[:, 0].astype(float)
    heights = (crops.max((1, 2)) - crops.min((1, 2))) / 6 / 39
    assert 0.55 < heights.min() < 0.85
    assert heights.max() > 0.9


def test_a_padded_randaugment_shifts_the_image_over_black() -> None:
    view = RandAugment(8, ops="rand-n0", erase=0.0, flip=False, pad=1)
    image = Image.new("RGB", (8, 8), "white")
    views = [view(image, row) for row in sampled(view, 60)]
    black = {(int((crop[0] == 0).all(1).sum()), int((crop[0] == 0).all(0).sum())) for crop in views}
    assert black == {(rows, columns) for rows in (0, 1) for columns in (0, 1)}
    assert {int(value) for crop in views for value in crop.unique()} == {0, 255}
    with pytest.raises(ValueError, match="pad"):
        RandAugment(8, pad=-1)


def test_the_views_of_convolutions_on_large_images_have_torchvisions_jitter() -> None:
    flat = Image.new("RGB", (32, 32), (200, 100, 50))
    view = JitteredCrop(16, scale=(0.08, 1.0), jitter=0.4, hue=0.0, grey=0.0)
    seen = np.stack([view(flat, row).float().mean((1, 2)).numpy() for row in sampled(view, 80)])
    random.seed(1)
    torch.manual_seed(1)
    jitter = transforms.ColorJitter(0.4, 0.4, 0.4, 0.0)
    expected = np.stack([np.asarray(jitter(flat)).mean((0, 1)) for _ in range(400)])
    assert abs(seen.mean(0) - expected.mean(0)).max() < 10
    assert abs(seen.std(0) / expected.std(0) - 1).max() < 0.25
    assert (seen[:, 0] >= seen[:, 1]).all(), "the hue stays"
    assert (seen[:, 1] >= seen[:, 2]).all()


def test_a_jittered_crop_is_blurred_and_has_randaugment_if_requested() -> None:
    plain, image = JitteredCrop(32, grey=0.0), random_image()

    def changed(**more: Any) -> int:
        view = replace(plain, **more)
        rows = sampled(view, 40)
        return sum(not torch.equal(view(image, row), plain(image, row)) for row in rows)

    assert 8 < changed(blur=0.5) < 32
    assert changed(blur=1.0) == 40
    assert changed(ops="rand-n0") == 0
    assert changed(ops="rand-n2-m10-mstd0.5") > 20
