import pickle
import random
from collections.abc import Callable

import numpy as np
import pytest
import torch
from PIL import Image
from torchvision.transforms.functional import rotate

from longtail.data.views import (
    Array,
    CifarAutoAugment,
    Plain,
    RandAugment,
    ResizedCrop,
    Rotated,
    Seeded,
    SimClr,
    ThreeAugment,
    TwoViews,
    View,
    Weak,
    _erased,
    _shifted,
)

VIEWS: list[View] = [
    Plain(32),
    Weak(32, cutout=8),
    CifarAutoAugment(32),
    RandAugment(32),
    ThreeAugment(32),
    Rotated(32),
    ResizedCrop(32),
    SimClr(32),
    TwoViews(Weak(32), SimClr(32)),
]
names = [str(view).split("(")[0] for view in VIEWS]


def picture(width: int = 32, height: int = 32, seed: int = 0) -> Image.Image:
    return Image.fromarray(np.random.default_rng(seed).integers(256, size=(height, width, 3), dtype=np.uint8))


def drawn(view: View, rows: int, seed: int = 0) -> Array:
    return view.parameters(np.random.default_rng(seed), rows)


@pytest.mark.parametrize("view", VIEWS, ids=names)
def test_a_view_is_a_function_of_image_and_parameters(view: View) -> None:
    parameters = drawn(view, 8)
    first = torch.stack([view(picture(), row) for row in parameters])
    random.seed(99)
    again = torch.stack([view(picture(), row) for row in reversed(parameters)]).flip(0)
    assert first.dtype == torch.uint8
    assert first.shape[-3:] == (3, 32, 32)
    assert torch.equal(first, again)
    if not isinstance(view, Plain):
        assert len(first.flatten(1).unique(dim=0)) >= 5
    assert pickle.loads(pickle.dumps(view)) == view


@pytest.mark.parametrize("view", VIEWS, ids=names)
@pytest.mark.parametrize("shape", [(8, 8), (50, 40), (33, 70)])
def test_every_picture_becomes_a_square_of_one_size(view: View, shape: tuple[int, int]) -> None:
    assert view(picture(*shape), drawn(view, 1)[0]).shape[-2:] == (32, 32)


def reference(image: Array, row: Array, view: Weak) -> Array:
    """Crop, flip and cut out pixel by pixel."""
    top, left, flipped, y, x = (int(value) for value in row)
    result = np.empty_like(image)
    for i in range(view.size):
        for j in range(view.size):
            column = view.size - 1 - j if flipped else j
            source = [abs(at - view.pad) for at in (top + i, left + column)]
            source = [2 * (view.size - 1) - at if at >= view.size else at for at in source]
            result[:, i, j] = image[:, source[0], source[1]]
            if -(view.cutout // 2) <= i - y < (view.cutout + 1) // 2 and -(view.cutout // 2) <= j - x < (view.cutout + 1) // 2:
                result[:, i, j] = view.fill
    return result


@pytest.mark.parametrize("view", [Weak(8), Weak(8, pad=7, cutout=3), Weak(8, pad=0, cutout=4, fill=7), Weak(8, flip=False)], ids=str)
def test_weak_batched_equals_one_by_one_and_the_slow_reference(view: Weak) -> None:
    pixels = np.random.default_rng(1).integers(256, size=(20, 3, 8, 8), dtype=np.uint8)
    before, parameters = pixels.copy(), drawn(view, 20)
    together = view.batch(pixels, parameters)
    assert np.array_equal(pixels, before)
    for image, row, result in zip(pixels, parameters, together, strict=True):
        assert np.array_equal(view(Image.fromarray(image.transpose(1, 2, 0)), row).numpy(), result)
        assert np.array_equal(reference(image, row, view), result)


def test_weak_parameters_are_uniform_and_flip_can_be_off() -> None:
    parameters = drawn(Weak(8), 9000)
    top, left, flipped, row, column = parameters.T
    for values, choices in ((top, 9), (left, 9), (flipped, 2), (row, 8), (column, 8)):
        shares = np.bincount(values) / len(values)
        assert len(shares) == choices
        assert shares == pytest.approx(1 / choices, abs=0.02)
    assert not drawn(Weak(8, flip=False), 100)[:, 2].any()


@pytest.mark.parametrize("make", [CifarAutoAugment, ThreeAugment])
def test_no_flip_means_no_flip(make: type[CifarAutoAugment | ThreeAugment]) -> None:
    dark_left = Image.fromarray(np.repeat(np.linspace(0, 255, 32, dtype=np.uint8)[None, :, None], 32, axis=0).repeat(3, axis=2))
    view = make(32, flip=False, pad=0)
    views = torch.stack([view(dark_left, row) for row in drawn(view, 60)]).float()
    mirrored = torch.stack([make(32, pad=0)(dark_left, row) for row in drawn(view, 60)]).float()
    # AutoAugment inverts or solarizes some, so count instead of asking for all.
    rises, falls = ((v[..., 16:].mean((1, 2, 3)) > v[..., :16].mean((1, 2, 3))).sum() for v in (views, mirrored))
    assert rises > falls + 10


def test_strong_views_move_the_image_as_the_weak_one_does() -> None:
    weak, image = Weak(8, pad=3), picture(8, 8)
    possible = {weak(image, np.array([top, left, 0, 0, 0])).numpy().tobytes() for top in range(7) for left in range(7)}
    random.seed(0)
    found = {np.asarray(_shifted(image, 8, 3)).transpose(2, 0, 1).tobytes() for _ in range(1000)}
    assert len(possible) == 49
    assert found == possible


def test_plain_leaves_the_right_size_alone_and_cuts_the_middle() -> None:
    image = picture(32, 32)
    assert np.array_equal(Plain(32)(image).numpy().transpose(1, 2, 0), np.asarray(image))
    wide = picture(64, 32)
    assert np.array_equal(Plain(32)(wide).numpy().transpose(1, 2, 0), np.asarray(wide)[:, 16:48])
    large = picture(300, 256)
    assert np.array_equal(Plain(224, crop=0.875)(large).numpy().transpose(1, 2, 0), np.asarray(large)[16:240, 38:262])
    pixels = np.asarray(image).transpose(2, 0, 1)[None]
    for view in (Plain(32), Plain(32, crop=0.8)):
        assert np.array_equal(view.batch(pixels, drawn(view, 1))[0], view(image).numpy())


def test_the_rand_augment_recipe_does_not_crash() -> None:
    # Pillow 13 rejects what timm's posterize asks for, about once in 570 images.
    view, image = RandAugment(8), picture(8, 8)
    for row in drawn(view, 5000):
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
    view, image = ThreeAugment(16, pad=0, jitter=0.0, flip=False), picture(16, 16)
    original = Plain(16)(image)
    kinds = set()
    for row in drawn(view, 40):
        result = view(image, row)
        grey = torch.equal(result[0], result[1])
        solarized = torch.equal(torch.where(original < 128, original, 255 - original), result)
        kinds.add("grey" if grey else "solarized" if solarized else "blurred")
    assert kinds == {"grey", "solarized", "blurred"}


def test_rotated_turns_the_shifted_image_by_up_to_so_many_degrees_as_torchvision_does() -> None:
    view, image = Rotated(16, pad=0, degrees=15, flip=False), picture(16, 16)
    found = []
    for row in drawn(view, 200):
        looked = view(image, row)
        random.seed(int(row[0]))
        random.randint(0, 0), random.randint(0, 0)  # the shift
        found.append(random.uniform(-15, 15))
        expected = rotate(image, found[-1])  # nearest, and black corners, as transforms.RandomRotation
        assert torch.equal(looked, torch.from_numpy(np.array(expected)).permute(2, 0, 1))
    assert -15 <= min(found) < -14
    assert 14 < max(found) <= 15
    assert torch.equal(Rotated(16, pad=0, degrees=0, flip=False)(image, row), Plain(16)(image))


def test_the_two_views_are_the_views_they_are_made_of() -> None:
    both = TwoViews(Weak(32), SimClr(32))
    rng = np.random.default_rng(5)
    weak, strong = Weak(32).parameters(rng, 3), SimClr(32).parameters(rng, 3)
    for row, first, second in zip(drawn(both, 3, seed=5), weak, strong, strict=True):
        pair = both(picture(), row)
        assert torch.equal(pair[0], Weak(32)(picture(), first))
        assert torch.equal(pair[1], SimClr(32)(picture(), second))


class Noise(Seeded):
    """A view of one's own that reads all three generators."""

    size = 4

    def look(self, image: Image.Image) -> torch.Tensor:
        values = random.random(), np.random.rand(), float(torch.rand(()))  # noqa: NPY002
        return (torch.tensor(values) * 255).to(torch.uint8)[:, None, None].expand(3, 4, 4)


def test_a_seed_reaches_all_three_generators() -> None:
    view = Noise()
    rows = drawn(view, 2)
    first, second, again = view(picture(), rows[0]), view(picture(), rows[1]), view(picture(), rows[0])
    assert torch.equal(first, again)
    assert (first != second).all()


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Weak(8, pad=8), "pad must be in"),
        (lambda: Weak(8, cutout=-1), "cutout must be"),
        (lambda: Plain(0), "size must be"),
        (lambda: Plain(32, crop=1.1), "crop must be a share"),
        (lambda: RandAugment(32, ops="m9"), "timm's spelling"),
        (lambda: RandAugment(32, erase=2), "probability"),
        (lambda: SimClr(32, blur=2), "probability"),
        (lambda: Rotated(32, degrees=-1), "degrees must be"),
        (lambda: Rotated(8, pad=8), "pad must be in"),
        (lambda: TwoViews(Plain(8), Plain(9)), "one size"),
    ],
)
def test_mistakes_are_named(make: Callable[[], View], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        make()
