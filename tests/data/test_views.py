import pickle
import random
import subprocess
import sys
from collections.abc import Callable

import numpy as np
import pytest
import torch
from PIL import Image

from longtail.data.augmentations import (
    CifarAutoAugment,
    JitteredCrop,
    RandAugment,
    ResizedCrop,
    Rotated,
    SimClr,
    ThreeAugment,
)
from longtail.data.views import Array, CenterCrop, CropFlip, TwoViews, View

VIEWS: list[View] = [
    CenterCrop(32),
    CropFlip(32, cutout=8),
    CifarAutoAugment(32),
    RandAugment(32),
    ThreeAugment(32),
    Rotated(32),
    ResizedCrop(32),
    SimClr(32),
    JitteredCrop(32, grey=0.2, blur=0.5, ops="rand-n2-m10-mstd0.5"),
    TwoViews(CropFlip(32), SimClr(32)),
]
names = [str(view).split("(")[0] for view in VIEWS]


def random_image(width: int = 32, height: int = 32, seed: int = 0) -> Image.Image:
    return Image.fromarray(
        np.random.default_rng(seed).integers(256, size=(height, width, 3), dtype=np.uint8)
    )


def sampled(view: View, rows: int, seed: int = 0) -> Array:
    return view.parameters(np.random.default_rng(seed), rows)


@pytest.mark.parametrize("view", VIEWS, ids=names)
def test_a_view_is_a_function_of_image_and_parameters(view: View) -> None:
    parameters = sampled(view, 8)
    first = torch.stack([view(random_image(), row) for row in parameters])
    random.seed(99)
    repeated = torch.stack([view(random_image(), row) for row in reversed(parameters)]).flip(0)
    assert first.dtype == torch.uint8
    assert first.shape[-3:] == (3, 32, 32)
    assert torch.equal(first, repeated)
    if not isinstance(view, CenterCrop):
        assert len(first.flatten(1).unique(dim=0)) >= 5
    assert pickle.loads(pickle.dumps(view)) == view


@pytest.mark.parametrize("view", VIEWS, ids=names)
@pytest.mark.parametrize("shape", [(8, 8), (50, 40), (33, 70)])
def test_every_image_becomes_a_square_of_one_size(view: View, shape: tuple[int, int]) -> None:
    assert view(random_image(*shape), sampled(view, 1)[0]).shape[-2:] == (32, 32)


def reference(image: Array, row: Array, view: CropFlip) -> Array:
    """Crop, flip and cut out pixel by pixel."""
    top, left, flipped, y, x = (int(value) for value in row)
    result = np.empty_like(image)
    for i in range(view.size):
        for j in range(view.size):
            column = view.size - 1 - j if flipped else j
            source = [abs(at - view.pad) for at in (top + i, left + column)]
            source = [2 * (view.size - 1) - at if at >= view.size else at for at in source]
            result[:, i, j] = image[:, source[0], source[1]]
            if (
                -(view.cutout // 2) <= i - y < (view.cutout + 1) // 2
                and -(view.cutout // 2) <= j - x < (view.cutout + 1) // 2
            ):
                result[:, i, j] = view.fill
    return result


@pytest.mark.parametrize(
    "view",
    [
        CropFlip(8),
        CropFlip(8, pad=7, cutout=3),
        CropFlip(8, pad=0, cutout=4, fill=7),
        CropFlip(8, flip=False),
    ],
    ids=str,
)
def test_weak_batched_equals_one_by_one_and_the_slow_reference(view: CropFlip) -> None:
    pixels = np.random.default_rng(1).integers(256, size=(20, 3, 8, 8), dtype=np.uint8)
    before, parameters = pixels.copy(), sampled(view, 20)
    together = view.batch(pixels, parameters)
    assert np.array_equal(pixels, before)
    for image, row, result in zip(pixels, parameters, together, strict=True):
        assert np.array_equal(view(Image.fromarray(image.transpose(1, 2, 0)), row).numpy(), result)
        assert np.array_equal(reference(image, row, view), result)


def test_weak_parameters_are_uniform_and_flip_can_be_off() -> None:
    parameters = sampled(CropFlip(8), 9000)
    top, left, flipped, row, column = parameters.T
    for values, choices in ((top, 9), (left, 9), (flipped, 2), (row, 8), (column, 8)):
        shares = np.bincount(values) / len(values)
        assert len(shares) == choices
        assert shares == pytest.approx(1 / choices, abs=0.02)
    assert not sampled(CropFlip(8, flip=False), 100)[:, 2].any()


def test_plain_leaves_the_right_size_alone_and_cuts_the_middle() -> None:
    image = random_image(32, 32)
    assert np.array_equal(CenterCrop(32)(image).numpy().transpose(1, 2, 0), np.asarray(image))
    wide = random_image(64, 32)
    assert np.array_equal(
        CenterCrop(32)(wide).numpy().transpose(1, 2, 0), np.asarray(wide)[:, 16:48]
    )
    large = random_image(300, 256)
    assert np.array_equal(
        CenterCrop(224, crop=0.875)(large).numpy().transpose(1, 2, 0),
        np.asarray(large)[16:240, 38:262],
    )
    pixels = np.asarray(image).transpose(2, 0, 1)[None]
    for view in (CenterCrop(32), CenterCrop(32, crop=0.8)):
        assert np.array_equal(view.batch(pixels, sampled(view, 1))[0], view(image).numpy())


def test_the_two_views_are_the_views_they_are_made_of() -> None:
    both = TwoViews(CropFlip(32), SimClr(32))
    rng = np.random.default_rng(5)
    weak, strong = CropFlip(32).parameters(rng, 3), SimClr(32).parameters(rng, 3)
    for row, first, second in zip(sampled(both, 3, seed=5), weak, strong, strict=True):
        pair = both(random_image(), row)
        assert torch.equal(pair[0], CropFlip(32)(random_image(), first))
        assert torch.equal(pair[1], SimClr(32)(random_image(), second))


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: CropFlip(8, pad=8), "pad must be in"),
        (lambda: CropFlip(8, cutout=-1), "cutout must be"),
        (lambda: CenterCrop(0), "size must be"),
        (lambda: CenterCrop(32, crop=1.1), "crop must be a share"),
        (lambda: RandAugment(32, ops="m9"), "timm configuration string"),
        (lambda: RandAugment(32, erase=2), "probability"),
        (lambda: SimClr(32, blur=2), "probability"),
        (lambda: Rotated(32, degrees=-1), "degrees must be"),
        (lambda: Rotated(8, pad=8), "pad must be in"),
        (lambda: TwoViews(CenterCrop(8), CenterCrop(9)), "the same size"),
    ],
)
def test_mistakes_are_named(make: Callable[[], View], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        make()


def test_asking_a_network_imports_no_augmentations() -> None:
    code = (
        "import sys, longtail.runs.model; sys.exit(', '.join({'timm', 'torchvision'} &"
        " set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.stderr.strip() == "", f"seconds of every start: {done.stderr}"
