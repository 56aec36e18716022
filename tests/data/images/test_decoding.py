import io
import tracemalloc
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from PIL import EpsImagePlugin, Image
from PIL.PngImagePlugin import PngImageFile

from longtail.data.images.decoding import check, decode, to_square
from longtail.data.views import CenterCrop
from longtail.errors import LongtailError


def encoded(image: Image.Image, kind: str, **keywords: Any) -> bytes:
    stream = io.BytesIO()
    image.save(stream, kind, **keywords)
    return stream.getvalue()


def pixel(content: bytes) -> tuple[int, ...]:
    image = decode(content)
    assert image.mode == "RGB"
    return tuple(int(v) for v in np.asarray(image)[0, 0])


@pytest.mark.parametrize(
    ("mode", "colour", "kind", "expected"),
    [
        ("1", 1, "PNG", (255, 255, 255)),
        ("L", 77, "PNG", (77, 77, 77)),
        ("RGB", (1, 2, 3), "PNG", (1, 2, 3)),
        ("LA", (0, 0), "PNG", (255, 255, 255)),
        ("RGBA", (200, 0, 0, 0), "PNG", (255, 255, 255)),
        ("RGBA", (255, 0, 0, 51), "PNG", (255, 204, 204)),
        ("CMYK", (0, 255, 255, 0), "TIFF", (255, 0, 0)),
    ],
)
def test_every_mode_becomes_rgb(
    mode: str, colour: Any, kind: str, expected: tuple[int, ...]
) -> None:
    assert pixel(encoded(Image.new(mode, (4, 4), colour), kind)) == expected


def test_palettes_with_and_without_transparency() -> None:
    image = Image.new("P", (4, 4), 1)
    image.putpalette([9, 9, 9, 10, 20, 30])
    assert pixel(encoded(image, "PNG")) == (10, 20, 30)
    assert pixel(encoded(image, "PNG", transparency=1)) == (255, 255, 255)


@pytest.mark.parametrize("kind", ["PNG", "TIFF"])
def test_sixteen_bits_are_scaled_not_clipped(kind: str) -> None:
    values = np.array([[0, 257, 32896, 65535]], dtype=np.uint16)
    image = decode(encoded(Image.fromarray(values), kind))
    assert np.asarray(image)[0, :, 0].tolist() == [0, 1, 128, 255]


def test_all_values_of_sixteen_bits_round_to_the_nearest_in_little_memory() -> None:
    values = np.tile(np.arange(65536, dtype=np.uint16), 16).reshape(1024, 1024)
    content = encoded(Image.fromarray(values), "PNG")
    tracemalloc.start()
    image = decode(content)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert np.array_equal(
        np.asarray(image)[..., 0], np.round(values.astype(np.float64) / 257).astype(np.uint8)
    )
    assert peak < 12 * values.size, "a copy of a large image takes much memory"


def test_what_is_no_image_has_a_message_that_does_not_change() -> None:
    with pytest.raises(ValueError, match=r"^not an image of a known kind$"):
        decode(b"no image")


def test_real_numbers_must_lie_in_the_unit_interval() -> None:
    assert pixel(encoded(Image.fromarray(np.full((2, 2), 0.5, dtype=np.float32)), "TIFF")) == (
        128,
        128,
        128,
    )
    with pytest.raises(ValueError, match="from 0 to 300"):
        decode(encoded(Image.fromarray(np.array([[0.0, 300.0]], dtype=np.float32)), "TIFF"))


def test_a_rotated_photo_is_upright() -> None:
    # Red on the left, 2 x 1
    image = Image.fromarray(np.array([[[255, 0, 0], [0, 0, 255]]], dtype=np.uint8))
    exif = Image.Exif()
    exif[0x0112] = 6  # to be turned clockwise
    upright = decode(encoded(image, "PNG", exif=exif))
    assert upright.size == (1, 2)
    assert np.asarray(upright)[0, 0].tolist() == [255, 0, 0]


def test_of_an_animation_the_first_frame_counts() -> None:
    first, second = Image.new("RGB", (4, 4), (255, 0, 0)), Image.new("RGB", (4, 4), (0, 0, 255))
    assert pixel(encoded(first, "GIF", save_all=True, append_images=[second])) == (255, 0, 0)


def noise(side: int) -> Image.Image:
    return Image.fromarray(
        np.random.default_rng(0).integers(256, size=(side, side, 3), dtype=np.uint8)
    )


@pytest.mark.parametrize("kind", ["JPEG", "PNG", "BMP", "WEBP"])
def test_what_is_cut_short_is_refused_by_decode_and_check(kind: str) -> None:
    content = encoded(noise(64), kind)
    check(content)
    for read in (decode, check):
        with pytest.raises(ValueError, match=r"\w"):
            read(content[: len(content) * 2 // 3])
        with pytest.raises(ValueError, match="not an image of a known kind"):
            read(b"not an image")


@pytest.mark.filterwarnings("ignore::PIL.Image.DecompressionBombWarning")
def test_decompression_bombs_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    content = encoded(Image.new("L", (100, 100)), "PNG")
    # Pillow itself warns above the limit, and raises above twice the limit
    for limit in (9_000, 4_000):
        monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", limit)
        for read in (decode, check):
            with pytest.raises(ValueError, match="pixels"):
                read(content)


@pytest.mark.parametrize("size", [(70_000, 100), (100, 70_000), (5000, 1), (1, 5000)])
def test_very_long_images_are_refused_before_they_are_decoded(
    size: tuple[int, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    content = encoded(Image.new("1", size), "PNG")
    monkeypatch.setattr(PngImageFile, "load", lambda image: pytest.fail("it was decoded"))
    for read in (decode, check):
        with pytest.raises(ValueError, match=f"{size[0]} x {size[1]} pixels: .* image"):
            read(content)


def test_long_images_are_decoded() -> None:
    for size in ((20_000, 100), (1, 1000)):
        assert decode(encoded(Image.new("1", size), "PNG")).size == size


def test_a_square_is_padded_with_the_borders_colour() -> None:
    pixels = np.full((10, 20, 3), 200, dtype=np.uint8)
    pixels[3:7, 5:15] = 0
    result = np.asarray(to_square(Image.fromarray(pixels), 20, "pad"))
    assert result.shape == (20, 20, 3)
    assert (result[:5] == 200).all()
    assert (result[15:] == 200).all()
    assert (result[5:15] == pixels).all()
    assert to_square(Image.fromarray(pixels), 7, "pad").size == (7, 7)


def test_a_stretched_image_loses_nothing_and_gains_no_border() -> None:
    pixels = np.zeros((10, 20, 3), dtype=np.uint8)
    pixels[:, 10:] = 255
    result = np.asarray(to_square(Image.fromarray(pixels), 20, "stretch"))
    assert result.shape == (20, 20, 3)
    assert (result[:, :10] == 0).all()
    assert (result[:, 10:] == 255).all()


def test_a_ribbon_does_not_fill_the_memory() -> None:
    ribbon = Image.new("RGB", (400_000, 2), "red")
    assert to_square(ribbon, 16, "pad").size == (16, 16)
    assert CenterCrop(16)(ribbon).shape == (3, 16, 16)


def test_a_large_jpeg_of_very_many_scans_is_refused_in_single_and_multi_picture_files() -> None:
    image = Image.new("RGB", (600, 600))
    jpeg = encoded(image, "JPEG", progressive=True)
    start = jpeg.index(b"\xff\xda")
    many = jpeg[:-2] + 400 * jpeg[start:-2] + b"\xff\xd9"
    mpo = encoded(image, "MPO", save_all=True, append_images=[image])
    for content in (many, mpo[:-2] + 3000 * b"\xff\xda" + b"\xff\xd9"):
        for read in (decode, check):
            with pytest.raises(LongtailError, match=r"of 600 x 600 pixels with \d,\d{3} scans"):
                read(content)
    assert decode(jpeg).size == decode(mpo).size == (600, 600)


@pytest.mark.parametrize("read", [decode, check])
def test_an_eps_file_is_refused_before_another_program_reads_it(
    read: Callable[[bytes], object], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(EpsImagePlugin, "Ghostscript", lambda *_: pytest.fail("Ghostscript ran"))
    with pytest.raises(LongtailError, match="EPS files are not read"):
        read(encoded(Image.new("RGB", (9, 7)), "EPS"))
