from __future__ import annotations

import errno
import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from longtail.data.assembly import assemble
from longtail.data.inspect.survey import (
    SurveyedImages,
    files,
    image,
    parts,
    perceptual_hash,
    survey,
    unread,
)
from longtail.data.open import find, open_data

MakeFolder = Callable[..., Path]


def test_surveyed_data_is_what_training_sees(tmp_path: Path, make_folder: MakeFolder) -> None:
    path = str(make_folder(tmp_path, {"a": 20, "b": 10, "c": 6}, side=40))
    surveyed, trained = assemble(survey(find(path)).source), open_data(path)
    assert (surveyed.hash, surveyed.size, surveyed.counts.tolist()) == (
        trained.hash,
        trained.size,
        trained.counts.tolist(),
    )
    assert surveyed.test.ids == trained.test.ids
    for _, split, seen in parts(surveyed):
        for row, name in enumerate(split.ids):
            assert np.array_equal(
                np.asarray(seen.image(row)), np.asarray(Image.open(tmp_path / name))
            )
            grey = (
                Image.open(tmp_path / name).convert("L").resize((32, 32), Image.Resampling.BILINEAR)
            )
            assert np.array_equal(seen.stats[row]["hash"], perceptual_hash(np.asarray(grey)))


def test_sets_in_memory_are_surveyed_too() -> None:
    data = assemble(survey(find("digits-lt")).source)
    assert data.hash == open_data("digits-lt").hash
    result = files(data)
    assert (
        result["images"],
        result["width"]["least"],
        result["height"]["most"],
        result["unusual"],
    ) == (905, 8, 8, {})


def test_what_cannot_be_read_is_named_and_left_out(
    tmp_path: Path, make_folder: MakeFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_folder(tmp_path, {"a": 20, "b": 10, "c": 2}, side=40)
    good = (tmp_path / "a" / "000.png").read_bytes()
    (tmp_path / "a" / "001.png").write_bytes(good[:-2000])
    (tmp_path / "b" / "000.png").write_bytes(b"")
    for name in ("000.png", "001.png"):
        (tmp_path / "c" / name).write_bytes(b"no image")
    Image.new("L", (3000, 3000)).save(tmp_path / "b" / "001.png")
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", 5_000_000)
    with pytest.warns(Image.DecompressionBombWarning):
        result = survey(find(str(tmp_path)))
    assert [entry["image"] for entry in result.unreadable] == [
        "a/001.png",
        "b/000.png",
        "b/001.png",
        "c/000.png",
        "c/001.png",
    ]
    assert [entry["class"] for entry in result.unreadable] == list("abbcc")
    assert (
        "9,000,000" in result.unreadable[2]["reason"] or "pixels" in result.unreadable[2]["reason"]
    )
    assert result.emptied == ("c",)
    data = assemble(result.source)
    assert data.classes == ("a", "b")
    assert data.source_counts.tolist() == [19, 8]
    shutil.rmtree(tmp_path / "c")
    assert data.hash == open_data(str(tmp_path), on_bad_image="skip").hash


def test_nothing_that_can_be_read_is_refused(tmp_path: Path) -> None:
    for name in "ab":
        (tmp_path / name).mkdir()
        (tmp_path / name / "x.png").write_bytes(b"no image")
    with pytest.raises(ValueError, match=r"2 files are unreadable: a/x.png \(not an image"):
        survey(find(str(tmp_path)))


def test_a_class_of_which_only_test_images_can_be_read_is_left_out(
    tmp_path: Path, make_folder: MakeFolder
) -> None:
    make_folder(
        tmp_path, {"train/a": 4, "train/b": 4, "train/c": 1, "test/a": 2, "test/b": 2, "test/c": 2}
    )
    (tmp_path / "train" / "c" / "000.png").write_bytes(b"")
    result = survey(find(str(tmp_path)))
    assert result.emptied == ("c",)
    assert assemble(result.source).classes == ("a", "b")


def test_converted_images_are_counted_and_sizes_are_those_of_the_files(tmp_path: Path) -> None:
    for name in "ab":
        (tmp_path / name).mkdir()
    rng = np.random.default_rng(0)
    original = Image.fromarray(rng.integers(256, size=(30, 40, 3), dtype=np.uint8))
    original.convert("L").save(tmp_path / "a" / "grey.png")
    original.convert("P").save(tmp_path / "a" / "palette.png")
    original.convert("CMYK").save(tmp_path / "a" / "cmyk.jpg")
    original.convert("RGBA").save(tmp_path / "a" / "alpha.png")
    Image.fromarray(rng.integers(65536, size=(30, 40), dtype=np.uint16)).save(
        tmp_path / "a" / "sixteen.png"
    )
    exif = Image.Exif()
    exif[0x0112] = 6
    original.save(tmp_path / "b" / "turned.jpg", exif=exif)
    original.save(
        tmp_path / "b" / "frames.gif",
        save_all=True,
        append_images=[original.transpose(Image.Transpose.FLIP_LEFT_RIGHT)],
    )
    Image.fromarray(rng.integers(256, size=(600, 800, 3), dtype=np.uint8)).save(
        tmp_path / "b" / "large.jpg"
    )
    Image.fromarray(rng.integers(256, size=(4, 160, 3), dtype=np.uint8)).save(
        tmp_path / "b" / "ribbon.png"
    )
    Image.new("RGB", (40, 30), (9, 9, 9)).save(tmp_path / "b" / "blank.png")
    original.resize((8, 6)).save(tmp_path / "b" / "speck.png")
    data = assemble(survey(find(str(tmp_path))).source)
    result = files(data)
    assert json.loads(json.dumps(result)) == result
    kinds = {
        "grey": 1,
        "palette": 2,
        "CMYK": 1,
        "16 bits": 1,
        "transparent": 1,
        "rotated by EXIF": 1,
        "animated": 1,
    }
    assert result["converted"] == kinds
    named = {
        kind: [one["image"] for one in entry["images"]] for kind, entry in result["unusual"].items()
    }
    assert named == {
        "tiny": ["b/speck.png"],
        "huge": ["b/large.jpg"],
        "narrow or wide": ["b/ribbon.png"],
        "blank": ["b/blank.png"],
    }
    everything = [
        image(data, split, row) for split, entry, _ in parts(data) for row in range(len(entry))
    ]
    sizes = {one["image"]: (one["width"], one["height"]) for one in everything}
    assert (sizes["b/turned.jpg"], sizes["b/large.jpg"], sizes["b/ribbon.png"]) == (
        (30, 40),
        (800, 600),
        (160, 4),
    )


def test_thumbnails_are_upright_and_not_enlarged(tmp_path: Path) -> None:
    for name in "ab":
        (tmp_path / name).mkdir()
        Image.new("RGB", (10, 10)).save(tmp_path / name / "x.png")
    exif = Image.Exif()
    exif[0x0112] = 6
    for kind in ("jpg", "tif"):
        Image.new("RGB", (400, 200)).save(tmp_path / "a" / f"turned.{kind}", exif=exif)
    result = survey(find(str(tmp_path)))
    seen = result.source.splits["train"].inputs
    assert isinstance(seen, SurveyedImages)
    assert [seen.small(row, 50).size for row in range(4)] == [
        (25, 50),
        (25, 50),
        (10, 10),
        (10, 10),
    ]
    data = assemble(result.source)
    everything = [
        image(data, split, row) for split, entry, _ in parts(data) for row in range(len(entry))
    ]
    turned = [(one["width"], one["height"]) for one in everything if "turned" in one["image"]]
    assert turned == [(200, 400), (200, 400)], "as they are seen, whatever the kind"


def test_counting_opens_no_file(tmp_path: Path, make_folder: MakeFolder) -> None:
    make_folder(tmp_path, {"a": 20, "b": 10})
    counts = open_data(str(tmp_path)).counts.tolist()
    for file in tmp_path.rglob("*.png"):
        file.write_bytes(b"")
    assert assemble(unread(find(str(tmp_path)))).counts.tolist() == counts


def test_counting_names_the_folders_that_cannot_be_listed(
    tmp_path: Path, make_folder: MakeFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_folder(tmp_path, {"a": 20, "b": 10})
    make_folder(tmp_path / "a", {"sub": 2})
    scandir = os.scandir

    def fail(path: str = ".") -> object:
        if str(path) == str(tmp_path / "a" / "sub"):
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(path))
        return scandir(path)

    monkeypatch.setattr(os, "scandir", fail)
    assert unread(find(str(tmp_path))).warnings[-1] == "1 folders cannot be listed: a/sub."


def test_a_hash_has_64_frequencies_and_forgets_brightness() -> None:
    rng = np.random.default_rng(0)
    grey = rng.integers(20, 200, size=(32, 32))
    result = perceptual_hash(grey)
    assert result.shape == (4,)
    assert result.dtype == np.uint16
    assert np.array_equal(perceptual_hash(grey + 30), result)
    assert np.array_equal(perceptual_hash(grey * 0.5), result)
    assert np.array_equal(perceptual_hash(255.0 - grey), ~result)
    # by the definition of the cosine transform: the second lowest frequency of the first word is
    # (1, 3) of the order by sums
    k = np.arange(32) + 0.5
    order = sorted((i + j, i, j) for i in range(32) for j in range(32) if i + j)[:64]
    bits = [
        float(np.cos(np.pi * k * i / 32) @ grey @ np.cos(np.pi * k * j / 32)) > 0
        for _, i, j in order
    ]
    assert np.unpackbits(result.view(np.uint8)).astype(bool).tolist() == [
        bits[4 * i + word] for word in range(4) for i in range(16)
    ]
