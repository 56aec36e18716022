import os
from collections.abc import Callable
from hashlib import sha256
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from longtail.data.augmentations import RandAugment
from longtail.data.images import reading
from longtail.data.images.reading import read
from longtail.data.images.stores import ArrayImages, FileImages, SquareImages
from longtail.data.loader import EvalLoader, TrainLoader
from longtail.data.open import open_data, open_dataset
from longtail.data.readers.digits import digits
from longtail.data.readers.folders import folder
from longtail.data.request import DataRequest, Geometry
from longtail.data.views import CropFlip
from longtail.errors import LongtailError

MakeFolder = Callable[..., Path]


@pytest.fixture
def path(tmp_path: Path, make_folder: MakeFolder) -> Path:
    return make_folder(tmp_path / "images", {"a": 3, "b": 2}, side=40)


def test_small_sets_are_read_into_memory(path: Path) -> None:
    train = read(folder(path)).splits["train"]
    assert isinstance(train.inputs, ArrayImages)
    assert train.inputs.pixels.shape == (5, 3, 48, 48)  # 40 is between 32 and 48
    assert train.digests[1] == sha256((path / "a" / "001.png").read_bytes()).digest()
    exact = read(folder(path), size=40).splits["train"].inputs
    assert np.array_equal(
        np.asarray(exact.image(4)), np.asarray(Image.open(path / "b" / "001.png"))
    )


@pytest.mark.parametrize("memory", [1 << 30, 0])
def test_pipes_and_devices_are_unreadable_images(path: Path, memory: int) -> None:
    os.mkfifo(path / "a" / "pipe.png")
    (path / "b" / "zero.png").symlink_to("/dev/zero")
    with pytest.raises(LongtailError, match=r"(?s)2 images cannot be read:.*a pipe.*a device"):
        read(folder(path), memory=memory)
    assert len(read(folder(path), memory=memory, on_bad_image="skip").splits["train"]) == 5


def test_large_sets_are_streamed_with_the_same_digests_and_read_once(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    inside = read(folder(path)).splits["train"]
    monkeypatch.setattr(reading, "MEMORY", 100)
    checked: list[bytes] = []
    monkeypatch.setattr(reading, "check", checked.append)
    outside = read(folder(path)).splits["train"]
    assert isinstance(outside.inputs, SquareImages)
    assert outside.digests == inside.digests
    assert len(checked) == 5
    assert read(folder(path)).splits["train"].digests == inside.digests
    assert len(checked) == 5
    Image.new("RGB", (9, 9)).save(path / "b" / "000.png")
    assert read(folder(path)).splits["train"].digests[3] != inside.digests[3]
    assert len(checked) == 6


@pytest.mark.parametrize("memory", [1 << 30, 100])
def test_bad_images_are_all_named_or_all_left_out(
    path: Path, monkeypatch: pytest.MonkeyPatch, memory: int
) -> None:
    monkeypatch.setattr(reading, "MEMORY", memory)
    (path / "b" / "gone.png").symlink_to(path / "nowhere.png")
    good = (path / "a" / "000.png").read_bytes()
    (path / "a" / "001.png").write_bytes(good[:-2000])
    (path / "b" / "000.png").write_bytes(b"")
    for _ in range(2):  # a bad file is not remembered as good
        with pytest.raises(
            ValueError,
            match=(
                r"(?s)3 images cannot be read:\n  a/001.png: .*\n  b/000.png: .*\n  b/gone.png:"
                r" .*--on-bad-image skip"
            ),
        ):
            read(folder(path))
    source = read(folder(path), on_bad_image="skip")
    assert source.splits["train"].ids == ("a/000.png", "a/002.png", "b/001.png")
    assert len(source.splits["train"].inputs) == len(source.splits["train"].digests) == 3
    assert source.warnings == (
        "3 images cannot be read and were left out: a/001.png, b/000.png, b/gone.png.",
    )
    (path / "b" / "001.png").write_bytes(b"")
    with pytest.raises(ValueError, match="no training image can be read in these classes: b"):
        read(folder(path), on_bad_image="skip")


@pytest.mark.parametrize(
    ("side", "size"), [(5, 32), (32, 32), (33, 48), (65, 96), (224, 224), (300, 224)]
)
def test_the_size_follows_the_images(tmp_path: Path, side: int, size: int) -> None:
    for name in "ab":
        (tmp_path / name).mkdir()
        Image.new("L", (3, side)).save(tmp_path / name / "x.png")
    assert read(folder(tmp_path)).size == size


def test_arrays_are_resized_on_request(monkeypatch: pytest.MonkeyPatch) -> None:
    source = digits()
    assert read(source).splits["train"] is source.splits["train"]
    larger = read(source, size=16)
    assert larger.size == 16
    assert isinstance(larger.splits["train"].inputs, ArrayImages)
    assert larger.splits["train"].inputs.pixels.shape == (405, 3, 16, 16)
    assert larger.splits["train"].digests == source.splits["train"].digests
    monkeypatch.setattr(reading, "MEMORY", 100)
    later = read(source, size=16).splits["train"].inputs
    assert isinstance(later, SquareImages)
    assert np.array_equal(
        np.asarray(later.image(7)), np.asarray(larger.splits["train"].inputs.image(7))
    )


def test_images_read_before_an_interruption_are_not_read_twice(
    tmp_path: Path, make_folder: MakeFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = make_folder(tmp_path / "many", {"a": 200, "b": 100}, side=8)
    monkeypatch.setattr(reading, "MEMORY", 100)
    checked: list[bytes] = []

    def tired(content: bytes) -> None:
        checked.append(content)
        if len(checked) == 150:
            raise KeyboardInterrupt

    monkeypatch.setattr(reading, "check", tired)
    with pytest.raises(KeyboardInterrupt):
        read(folder(path))
    before = len(checked)
    source = read(folder(path))
    assert len(source.splits["train"]) == 300
    assert len(checked) - before == 300 - (before - 1), (
        "all is known but the one that was interrupted"
    )


@pytest.fixture
def oblong(tmp_path: Path) -> Path:
    """Images of any shape in two classes."""
    rng = np.random.default_rng(0)
    for row in range(40):
        place = tmp_path / "oblong" / "ab"[row % 2]
        place.mkdir(parents=True, exist_ok=True)
        shape = *rng.integers(8, 60, size=2), 3
        Image.fromarray(rng.integers(256, size=shape, dtype=np.uint8)).save(place / f"{row}.png")
    return tmp_path / "oblong"


@pytest.mark.parametrize("size", [None, 24])
@pytest.mark.parametrize("geometry", ["pad", "crop", "stretch"])
def test_memory_decides_speed_and_never_pixels(
    oblong: Path, monkeypatch: pytest.MonkeyPatch, geometry: Geometry, size: int | None
) -> None:
    inside = open_data(str(oblong), geometry=geometry, size=size)
    monkeypatch.setattr(reading, "MEMORY", 0)
    outside = open_data(str(oblong), geometry=geometry, size=size)
    assert inside.geometry == outside.geometry == geometry
    assert outside.train.inputs.in_memory(outside.size) is None
    assert (inside.train.inputs.in_memory(inside.size) is None) == (geometry == "crop")
    for one, other in (
        (inside, outside),
        (inside.at_native_resolution(), outside.at_native_resolution()),
    ):
        for name in ("train", "val", "test"):
            first, second = (
                torch.cat(
                    [
                        batch["image"]
                        for batch in EvalLoader(getattr(data, name), size=32, batch=7).epoch()
                    ]
                )
                for data in (one, other)
            )
            assert torch.equal(first, second)
    for view in (CropFlip(32), RandAugment(32)):
        kept, streamed = (
            next(TrainLoader(data.train, view=view, batch=9, seed=0).epoch(0))
            for data in (inside, outside)
        )
        assert torch.equal(kept["image"], streamed["image"])


def test_geometries_differ_and_crop_shows_training_the_full_image(oblong: Path) -> None:
    pad, crop, stretch = (
        open_data(str(oblong), geometry=geometry) for geometry in ("pad", "crop", "stretch")
    )
    assert pad.hash == crop.hash == stretch.hash
    shapes = [data.train.inputs.image(0).size for data in (pad, crop, stretch)]
    with Image.open(oblong / crop.train.ids[0]) as image:
        assert shapes == [(pad.size, pad.size), image.size, (pad.size, pad.size)]
    evaluated = [
        next(EvalLoader(data.test, size=32, batch=9).epoch())["image"]
        for data in (pad, crop, stretch)
    ]
    assert not torch.equal(evaluated[0], evaluated[1])
    assert not torch.equal(evaluated[0], evaluated[2])


def test_the_rule_of_versions_that_recorded_no_geometry(
    oblong: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert open_dataset(DataRequest(str(oblong)), legacy=True).geometry == "pad"
    assert open_dataset(DataRequest("digits-lt"), size=16, legacy=True).geometry == "pad"
    monkeypatch.setattr(reading, "MEMORY", 0)
    old = open_dataset(DataRequest(str(oblong)), legacy=True)
    assert old.geometry == "crop"
    assert isinstance(old.train.inputs, FileImages)
    assert open_dataset(DataRequest("digits-lt"), size=16, legacy=True).geometry == "pad"


def test_a_folder_at_another_size_comes_back_at_its_size(path: Path) -> None:
    native = open_data(str(path), protocol="paper")
    for size in (16, 64):
        resized = open_data(str(path), protocol="paper", size=size)
        repeated = resized.at_native_resolution()
        assert (resized.size, repeated.size) == (size, native.size)
        for split in ("train", "test"):
            theirs, restored = getattr(native, split).inputs, getattr(repeated, split).inputs
            assert len(restored) == len(theirs)
            assert all(
                np.array_equal(np.asarray(restored.image(i)), np.asarray(theirs.image(i)))
                for i in range(len(restored))
            )
    assert native.at_native_resolution().train.inputs is native.train.inputs


def test_cropped_arrays_stay_as_they_are_and_are_resized_once() -> None:
    """As DeiT-LT and LiVT enlarge CIFAR: never an image that was enlarged before."""
    data = open_data("digits-lt", size=32, geometry="crop")
    batch = next(EvalLoader(data.test, size=32, batch=4).epoch())
    original = open_data("digits-lt").test.inputs.image(0)
    larger = original.resize((36, 36), Image.Resampling.BICUBIC).crop((2, 2, 34, 34))
    expected = torch.from_numpy(np.array(larger)).permute(2, 0, 1)
    assert torch.equal((255 * batch["image"][0]).round().byte(), expected)
    assert data.train.inputs.image(0).size == (8, 8), "random parts are of the original"
    assert data.geometry == "crop"
    native = data.at_native_resolution()
    assert (native.size, native.test.crop) == (8, 1.0)
    same = open_data("digits-lt", geometry="crop")
    assert same.test.crop == 1.0
    assert same.hash == data.hash == open_data("digits-lt").hash
