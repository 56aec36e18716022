from __future__ import annotations

import io
import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from PIL import Image, ImageEnhance, ImageFilter

from longtail.data.assembly import assemble
from longtail.data.inspect import duplicates as module
from longtail.data.inspect.duplicates import close, duplicates, likeness, work
from longtail.data.inspect.survey import survey
from longtail.data.open import find


def scene(seed: int, size: tuple[int, int] = (96, 72)) -> Image.Image:
    """An image with structure at several scales, unlike any other seed's."""
    rng = np.random.default_rng(seed)
    total = np.zeros((size[1], size[0], 3))
    for side, weight in ((3, 1.0), (7, 0.7), (20, 0.4)):
        noise = Image.fromarray(rng.integers(256, size=(side, side, 3), dtype=np.uint8))
        total += weight * np.asarray(noise.resize(size, Image.Resampling.BICUBIC), dtype=np.float64)
    return Image.fromarray((total / 2.1).clip(0, 255).astype(np.uint8))


def recompressed(image: Image.Image, quality: int = 60) -> Image.Image:
    content = io.BytesIO()
    image.save(content, "JPEG", quality=quality)
    return Image.open(content)


COPIES: dict[str, Callable[[Image.Image], Image.Image]] = {
    "resized to half": lambda image: image.resize(
        (image.width // 2, image.height // 2), Image.Resampling.LANCZOS
    ),
    "enlarged": lambda image: image.resize(
        (image.width * 2, image.height * 2), Image.Resampling.BICUBIC
    ),
    "recompressed": recompressed,
    "brighter by 2": lambda image: image.point([min(255, value + 2) for value in range(256)] * 3),
    "less contrast": lambda image: ImageEnhance.Contrast(image).enhance(0.85),
    "half and recompressed": lambda image: recompressed(
        image.resize((image.width // 2, image.height // 2)), 80
    ),
}
OTHERS: dict[str, Callable[[Image.Image], Image.Image]] = {
    "mirrored": lambda image: image.transpose(Image.Transpose.FLIP_LEFT_RIGHT),
    "cut in half": lambda image: image.crop((0, 0, image.width // 2, image.height)),
    "another channel order": lambda image: Image.merge("RGB", image.split()[::-1]),
    "squeezed": lambda image: image.resize((image.width // 2, image.height)),
    "another of the same colours": lambda image: image.filter(ImageFilter.GaussianBlur(20)),
}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Splits of different scenes: 40 in train, 4 in val, 8 in test."""
    number = 0
    for split, count in (("train", 20), ("val", 2), ("test", 4)):
        for name in "ab":
            (tmp_path / split / name).mkdir(parents=True)
            for i in range(count):
                scene(number).save(tmp_path / split / name / f"{i:02}.png")
                number += 1
    return tmp_path


def duplicates_in(path: Path) -> dict[str, Any]:
    result = duplicates(assemble(survey(find(str(path))).source))
    assert json.loads(json.dumps(result)) == result
    return result


def names(group: dict[str, Any]) -> set[str]:
    return {one["image"] for one in group["images"]}


def test_different_images_are_no_duplicates(folder: Path) -> None:
    result = duplicates_in(folder)
    assert (
        result["exact"],
        result["near"],
        result["surplus"],
        result["groups"],
        result["notes"],
    ) == (0, 0, 0, [], [])
    assert result["across"] == {"train and val": 0, "train and test": 0, "val and test": 0}


def test_noise_is_no_duplicate_of_noise(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    for name in "ab":
        (tmp_path / name).mkdir()
        for i in range(150):
            Image.fromarray(rng.integers(256, size=(24, 24, 3), dtype=np.uint8)).save(
                tmp_path / name / f"{i}.png"
            )
    assert duplicates_in(tmp_path)["groups"] == []


@pytest.mark.parametrize("change", COPIES)
def test_near_copies_are_duplicates_in(folder: Path, change: str) -> None:
    for i in range(4):
        COPIES[change](Image.open(folder / "train" / "a" / f"{i:02}.png")).save(
            folder / "test" / "a" / f"copy{i}.png"
        )
    result = duplicates_in(folder)
    expected = [{f"train/a/{i:02}.png", f"test/a/copy{i}.png"} for i in range(4)]
    assert sorted(map(sorted, map(names, result["groups"]))) == sorted(map(sorted, expected))
    assert (
        result["near"],
        result["across"]["train and test"],
        result["leaked"],
        result["conflicts"],
    ) == (4, 4, 4, 0)
    assert all(
        group["across"]
        and not group["exact"]
        and not group["conflict"]
        and group["likeness"] > 0.96
        for group in result["groups"]
    )


@pytest.mark.parametrize("change", OTHERS)
def test_another_image_is_left_alone(folder: Path, change: str) -> None:
    OTHERS[change](Image.open(folder / "train" / "a" / "00.png")).save(
        folder / "test" / "a" / "other.png"
    )
    assert duplicates_in(folder)["groups"] == []


def test_exact_copies_within_across_and_under_two_labels(folder: Path) -> None:
    shutil.copy(folder / "train" / "a" / "00.png", folder / "train" / "a" / "same.png")
    shutil.copy(folder / "train" / "a" / "01.png", folder / "val" / "a" / "leak.png")
    shutil.copy(folder / "train" / "a" / "01.png", folder / "test" / "a" / "leak.png")
    shutil.copy(folder / "train" / "a" / "02.png", folder / "train" / "b" / "wrong.png")
    shutil.copy(folder / "train" / "a" / "03.png", folder / "test" / "b" / "worst.png")
    recompressed(Image.open(folder / "train" / "a" / "03.png")).save(
        folder / "val" / "b" / "worst.jpg"
    )
    result = duplicates_in(folder)
    assert [names(group) for group in result["groups"]] == [
        {"train/a/03.png", "test/b/worst.png", "val/b/worst.jpg"},
        {"train/a/02.png", "train/b/wrong.png"},
        {"train/a/01.png", "val/a/leak.png", "test/a/leak.png"},
        {"train/a/00.png", "train/a/same.png"},
    ]
    assert [(group["exact"], group["conflict"], group["across"]) for group in result["groups"]] == [
        (False, True, True),
        (True, True, False),
        (True, False, True),
        (True, False, False),
    ]
    assert (
        result["exact"],
        result["near"],
        result["surplus"],
        result["conflicts"],
        result["leaked"],
    ) == (3, 1, 6, 2, 2)
    assert result["across"] == {"train and val": 2, "train and test": 2, "val and test": 2}


def test_a_family_of_similar_images_is_not_one_image(tmp_path: Path) -> None:
    """Discs of about one size on white correlate by 0.98 and more; a recompressed one is still
    found among them.
    """
    rng = np.random.default_rng(0)
    y, x = np.mgrid[:48, :48]
    for name in "ab":
        (tmp_path / name).mkdir()
        for i in range(60):
            texture = np.asarray(
                Image.fromarray(rng.integers(40, 90, size=(12, 12), dtype=np.uint8)).resize(
                    (48, 48)
                )
            )
            radius = rng.uniform(14, 15)
            disc = np.where((x - 24) ** 2 + (y - 24) ** 2 < radius**2, texture, 250).astype(
                np.uint8
            )
            Image.fromarray(disc).save(tmp_path / name / f"{i}.png")
    assert duplicates_in(tmp_path)["groups"] == []
    recompressed(Image.open(tmp_path / "a" / "7.png"), 90).save(tmp_path / "b" / "copy.png")
    assert [names(group) for group in duplicates_in(tmp_path)["groups"]] == [
        {"a/7.png", "b/copy.png"}
    ]


def test_blank_images_are_not_near_duplicates(folder: Path) -> None:
    # Dirt on the lens
    faint = np.kron(np.random.default_rng(0).integers(2, size=(8, 8)), np.ones((5, 5))).astype(
        np.uint8
    )
    for i in range(3):
        Image.fromarray(faint + np.uint8(240 + i)).save(folder / "train" / "a" / f"blank{i}.png")
    assert duplicates_in(folder)["groups"] == []


def test_many_copies_of_one_image_are_one_group(folder: Path) -> None:
    image = Image.open(folder / "train" / "a" / "00.png")
    for i in range(15):
        recompressed(image, 80 + i).save(folder / "train" / "b" / f"copy{i}.png")
    (group,) = duplicates_in(folder)["groups"]
    assert len(group["images"]) == 16


def random_hashes(count: int) -> NDArray[np.uint16]:
    rng = np.random.default_rng(0)
    centres = rng.integers(1 << 16, size=(12, 4), dtype=np.uint16)
    hashes = centres[rng.integers(12, size=count)]
    for _ in range(5):
        flips = np.uint16(1) << rng.integers(16, size=(count, 4)).astype(np.uint16)
        hashes = np.where(rng.random((count, 4)) < 0.3, hashes ^ flips, hashes)
    return np.ascontiguousarray(hashes)


@pytest.mark.parametrize("old", [False, True])
def test_the_search_finds_each_close_pair_once(monkeypatch: pytest.MonkeyPatch, old: bool) -> None:
    hashes = random_hashes(300)
    words = [int.from_bytes(row.tobytes(), "little") for row in hashes]
    expected = {
        (i, j) for i in range(300) for j in range(i) if (words[i] ^ words[j]).bit_count() <= 7
    }
    assert 200 < len(expected) < 20_000
    monkeypatch.setattr(module, "BLOCK", 50)
    if old and hasattr(np, "bitwise_count"):
        monkeypatch.delattr(np, "bitwise_count")
    blocks = list(close(hashes))
    pairs = [
        (max(i, j), min(i, j))
        for a, b, _ in blocks
        for i, j in zip(a.tolist(), b.tolist(), strict=True)
    ]
    assert len(pairs) == len(set(pairs))
    assert set(pairs) == expected
    assert sum(compared for *_, compared in blocks) == work(hashes)


def test_too_much_work_is_left_out_and_reported(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for i in range(4):
        recompressed(Image.open(folder / "train" / "a" / f"{i:02}.png"), 90).save(
            folder / "test" / "a" / f"copy{i}.png"
        )
    shutil.copy(folder / "train" / "a" / "05.png", folder / "train" / "a" / "same.png")
    monkeypatch.setattr(module, "COMPARED", -1)
    result = duplicates_in(folder)
    assert (result["exact"], result["near"]) == (1, 0)
    assert "not searched" in result["notes"][0]
    hashes = np.stack(list({bytes(row["digest"]): row["hash"] for row in stats(folder)}.values()))
    assert work(hashes) > work(hashes, (0,))
    monkeypatch.setattr(module, "COMPARED", work(hashes, (0,)))
    result = duplicates_in(folder)
    assert result["near"] > 0
    assert "for a complete search" in result["notes"][0]
    monkeypatch.undo()
    monkeypatch.setattr(module, "CHECKED", 2)
    result = duplicates_in(folder)
    assert result["near"] <= 2
    assert "more than 2 pairs" in result["notes"][0]


def stats(path: Path) -> list[Any]:
    rows = survey(find(str(path))).source.splits
    return [row for part in rows.values() for row in part.inputs.stats]  # type: ignore[attr-defined]


def test_likeness_is_a_correlation_in_colour() -> None:
    image = scene(1)
    assert likeness(image, image) == pytest.approx(1)
    assert likeness(image, image.resize((48, 36))) > 0.99
    assert likeness(image, scene(2)) < 0.9
    assert likeness(image, Image.merge("RGB", image.split()[::-1])) < 0.95
    white, black = Image.new("RGB", (9, 9), "white"), Image.new("RGB", (9, 9))
    assert (likeness(white, black), likeness(white, image)) == (1.0, 0.0)
    negative = Image.eval(image, lambda value: 255 - value)
    assert likeness(image, negative) == pytest.approx(-1, abs=1e-3)
