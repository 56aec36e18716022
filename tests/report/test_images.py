from __future__ import annotations

import base64
import io
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from longtail.report import images


def decoded(address: str) -> Image.Image:
    return Image.open(io.BytesIO(base64.b64decode(address.partition(",")[2])))


def test_small_images_are_kept_to_the_bit() -> None:
    pixels = np.random.default_rng(0).integers(256, size=(32, 32, 3), dtype=np.uint8)
    assert np.array_equal(np.asarray(decoded(images.data_uri(pixels))), pixels)
    large = images.data_uri(np.zeros((64, 64, 3), dtype=np.uint8))
    assert large.startswith("data:image/jpeg;base64,")
    assert decoded(large).size == (64, 64)


def test_large_images_are_shrunk_by_their_means() -> None:
    pixels = np.zeros((4, 4, 3), dtype=np.uint8)
    pixels[:2, 2:] = 200
    assert images.shrink(pixels, 2)[..., 0].tolist() == [[0, 200], [0, 0]]
    assert images.shrink(pixels, 4) is pixels


def test_the_spotlight_darkens_what_is_not_salient() -> None:
    pixels = np.full((8, 8, 3), 200, dtype=np.uint8)
    lit = images.spotlight(pixels, np.array([[255, 0], [255, 0]], dtype=np.uint8))
    assert lit.shape == (8, 8, 3)
    assert lit[0, 0, 0] == 200
    assert lit[0, -1, 0] == 36
    assert (np.diff(lit[0, :, 0].astype(int)) <= 0).all()


def test_a_matrix_is_dark_where_it_is_large_and_grey_where_unknown() -> None:
    image = decoded(images.heat_map(np.array([[0.0, 2.0], [np.nan, 1.0]])))
    assert min(image.size) >= 240
    side = image.width // 4
    assert image.getpixel((side, side)) == (255, 255, 255)
    assert image.getpixel((3 * side, side)) == (18, 62, 120)
    assert image.getpixel((side, 3 * side)) == (190, 190, 190)
    decoded(images.heat_map(np.full((2, 2), np.nan)))


def test_files_are_made_smaller_and_broken_ones_refused(tmp_path: Path) -> None:
    Image.new("RGB", (3000, 300), "white").save(tmp_path / "wide.png")
    assert decoded(images.file_uri(tmp_path / "wide.png")).size == (1200, 120)
    (tmp_path / "drawing.svg").write_text("<svg/>")
    assert (
        images.file_uri(tmp_path / "drawing.svg")
        == "data:image/svg+xml;base64," + base64.b64encode(b"<svg/>").decode()
    )
    (tmp_path / "broken.png").write_bytes(b"no image")
    with pytest.raises(ValueError, match=r"broken\.png is broken or not an image"):
        images.file_uri(tmp_path / "broken.png")
