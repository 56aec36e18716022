from __future__ import annotations

import errno
import os
from pathlib import Path
from typing import Any

import numpy as np
import odd_images
import pytest
import torch
from PIL import Image

from longtail.data.open import open_data
from longtail.data.views import CenterCrop
from longtail.errors import LongtailError
from longtail.runs.images import Preprocessing, as_list, check_tensor, images_at, open_image


def test_a_padded_image_keeps_its_edges_and_a_cropped_one_does_not() -> None:
    wide = Image.new("RGB", (24, 8), (0, 0, 255))
    wide.paste((255, 0, 0), (0, 0, 4, 8))
    padded, cut = Preprocessing(8, "pad", 8)(wide), Preprocessing(8, "crop", 8)(wide)
    assert padded.shape == cut.shape == (3, 8, 8)
    assert padded[0].max() > 150
    assert cut[0].max() == 0
    assert torch.equal(cut, CenterCrop(8)(wide))
    assert "nothing is cut off" in str(Preprocessing(8, "pad", 8))
    assert "central square" in str(Preprocessing(8, "crop", 8))
    assert str(Preprocessing(224, "crop", 224, 0.875)).startswith(
        "the shorter side becomes 256 (bicubic), then the central square of 224"
    )


def test_the_fit_is_that_of_the_data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert Preprocessing.of(open_data("digits-lt"), 8) == Preprocessing(8, "pad", 8)
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        for number in range(6):
            Image.new("RGB", (9, 5)).save(tmp_path / name / f"{number}.png")
    assert Preprocessing.of(open_data(str(tmp_path), size=16), 12) == Preprocessing(12, "pad", 16)
    monkeypatch.setattr("longtail.data.images.reading.MEMORY", 0)  # streamed from disk
    assert Preprocessing.of(open_data(str(tmp_path), size=16), 12) == Preprocessing(12, "pad", 16)
    assert Preprocessing.of(open_data(str(tmp_path), geometry="crop"), 16) == Preprocessing(
        16, "crop", 32
    )


def test_specs_of_earlier_versions_are_read() -> None:
    assert Preprocessing.from_spec({"size": 8, "fit": {"kept": 16, "crop": 1.0}}) == Preprocessing(
        8, "pad", 16
    )
    assert Preprocessing.from_spec(
        {"size": 8, "fit": {"kept": None, "crop": 0.875}}
    ) == Preprocessing(8, "crop", 8, 0.875)
    assert Preprocessing.from_spec({"size": 8}) == Preprocessing(8, "pad", 8)
    fit = Preprocessing(8, "stretch", 16)
    assert Preprocessing.from_spec({"size": 8, "fit": fit.to_spec()}) == fit
    assert "stretched to 16" in str(fit)


@pytest.mark.parametrize("kind", odd_images.GOOD)
def test_pil_images_are_read_as_files_are(kind: str, tmp_path: Path) -> None:
    odd_images.write_all(tmp_path, (kind,))
    with Image.open(tmp_path / f"{kind}.png") as image:
        assert open_image(image).tobytes() == open_image(tmp_path / f"{kind}.png").tobytes()


@pytest.mark.parametrize("kind", odd_images.BAD)
def test_files_that_are_no_images_are_refused_by_name(kind: str, tmp_path: Path) -> None:
    odd_images.write_all(tmp_path, (kind,))
    with pytest.raises(ValueError, match=f"expected an image.*{kind}.png"):
        open_image(tmp_path / f"{kind}.png")
    with pytest.raises(ValueError, match="no file"):
        open_image(str(tmp_path / "nothing.png"))


@pytest.mark.parametrize(
    "unexpected",
    [
        np.zeros((8, 8), np.uint8),
        np.zeros((8, 8, 4), np.uint8),
        np.zeros((8, 8, 3), np.float32),
        np.zeros((0, 8, 3), np.uint8),
        7,
    ],
)
def test_other_arrays_are_refused(unexpected: Any) -> None:
    with pytest.raises(ValueError, match=r"uint8 \(H, W, 3\), got"):
        open_image(unexpected)


def test_one_and_several_become_a_list_or_a_tensor() -> None:
    array, tensor = np.zeros((2, 8, 8, 3), np.uint8), torch.zeros(3, 8, 8)
    assert [
        len(as_list(given))
        for given in (array, array[0], list(array), "a.png", ["a.png"], iter(["a.png", "b.png"]))
    ] == [2, 1, 2, 1, 1, 2]
    for given in (tensor, tensor[None], [tensor], (tensor,)):
        result = as_list(given)
        assert isinstance(result, torch.Tensor)
        assert result.shape == (1, 3, 8, 8)
    for unexpected in (3, [], [tensor, tensor[:, 1:]], np.zeros((0, 8, 8, 3), np.uint8)):
        with pytest.raises(ValueError, match="expected"):
            as_list(unexpected)


@pytest.mark.parametrize(
    "unexpected",
    [
        torch.zeros(1, 3, 8, 8, dtype=torch.uint8),
        torch.full((1, 3, 8, 8), 255.0),
        torch.full((1, 3, 8, 8), -0.1),
        torch.full((1, 3, 8, 8), torch.nan),
        torch.zeros(1, 1, 8, 8),
        torch.zeros(1, 3, 8, 9),
        torch.zeros(0, 3, 8, 8),
        torch.zeros(8, 8),
    ],
)
def test_other_tensors_are_refused(unexpected: torch.Tensor) -> None:
    with pytest.raises(ValueError, match=r"floats \(N, 3, 8, 8\) in \[0, 1\], got"):
        check_tensor(unexpected, 8)
    assert check_tensor(torch.ones(1, 3, 8, 8), 8).shape == (1, 3, 8, 8)


def test_images_of_folders_are_listed_in_a_fixed_order(tmp_path: Path) -> None:
    for name in ("b/2.PNG", "b/1.jpg", "a/x.webp", "c/notes.txt", ".hidden/z.png", "a/.thumb.png"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).touch()
    (tmp_path / "a" / "up").symlink_to(tmp_path)  # must not go round for ever
    result = images_at([tmp_path, tmp_path / "c" / "notes.txt"])
    assert [path.relative_to(tmp_path).as_posix() for path in result.paths] == [
        "a/x.webp",
        "b/1.jpg",
        "b/2.PNG",
        "c/notes.txt",
    ]
    assert result.others == 1
    for path, message in ((tmp_path / "c", "got none in"), (tmp_path / "d", "got nothing at")):
        with pytest.raises(ValueError, match=message):
            images_at([path])


def test_a_folder_in_the_place_of_an_image_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="expected an image, got the folder"):
        open_image(tmp_path)


def test_a_pipe_in_the_place_of_an_image_is_refused(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "x.png")
    with pytest.raises(LongtailError, match="is a pipe, not a file"):
        open_image(tmp_path / "x.png")


def test_a_folder_that_cannot_be_listed_is_reported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "sub").mkdir()
    Image.new("L", (4, 4)).save(tmp_path / "a.png")
    scandir = os.scandir

    def fail(path: Any) -> Any:
        if str(path).endswith("sub"):
            raise PermissionError(errno.EACCES, "Permission denied", str(path))
        return scandir(path)

    monkeypatch.setattr(os, "scandir", fail)
    assert images_at([tmp_path]).paths == (tmp_path / "a.png", tmp_path / "sub")
    with pytest.raises(LongtailError, match="Permission denied"):
        open_image(tmp_path / "sub")
