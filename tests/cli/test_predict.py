from __future__ import annotations

import contextlib
import csv
import io
import json
import os
import threading
from pathlib import Path
from typing import Any

import odd_images
import pytest
from finished import CLASSES, calibrated, finished
from PIL import Image

from longtail.runs import load


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return finished(tmp_path_factory.mktemp("run"))


@pytest.fixture
def images(tmp_path: Path) -> Path:
    folder = odd_images.write_all(tmp_path / "images" / "deep").parent
    (folder / "notes.txt").write_text("nothing")
    return folder


def test_names_that_are_not_utf8_are_kept(tmp_path: Path, longtail: Any) -> None:
    run, odd = finished(tmp_path / "run"), os.fsencode(tmp_path) + b"/caf\xe9.png"
    Image.new("RGB", (8, 8)).save(tmp_path / "plain.png")
    os.rename(tmp_path / "plain.png", odd)
    for name in ("answers.csv", "answers.json"):
        assert longtail("predict", run, os.fsdecode(odd), "--out", tmp_path / name).code == 0
        assert b"caf\xe9.png" in (tmp_path / name).read_bytes()


def test_a_folder_becomes_a_table_and_bad_images_a_count(
    longtail: Any, run: Path, images: Path
) -> None:
    result = longtail("predict", run, images, "--top", 3, "--device", "cpu")
    assert result.code == 0
    rows = list(csv.DictReader(io.StringIO(result.out)))
    assert [*rows[0]] == [
        "path",
        "class",
        "probability",
        "abstain",
        "class_2",
        "probability_2",
        "class_3",
        "probability_3",
    ]
    assert [Path(row["path"]).stem for row in rows] == sorted(odd_images.GOOD)
    predictions = load(run, device="cpu").predict([row["path"] for row in rows])
    assert [row["class"] for row in rows] == list(predictions.labels)
    assert [float(row["probability"]) for row in rows] == pytest.approx(
        predictions.probabilities.max(1).values.tolist(), abs=1e-5
    )
    assert {row["abstain"] for row in rows} == {"false"}
    for kind in odd_images.BAD:
        assert f"{kind}.png: " in result.err
    assert f"skipped unreadable images: {len(odd_images.BAD)}" in result.err
    assert "without an image suffix: 1" in result.err


def test_json_says_the_same_with_the_prediction_set(
    longtail: Any, images: Path, tmp_path: Path
) -> None:
    run, out = calibrated(finished(tmp_path / "run"), [1.0] * 10), tmp_path / "new" / "answers.json"
    result = longtail(
        "predict", run, images, "--out", out, "--abstain-below", 0.99, "--device", "cpu"
    )
    assert result.code == 0
    rows = json.loads(out.read_text(encoding="utf-8"))
    assert len(rows) == len(odd_images.GOOD)
    assert all(
        row["set"] == list(CLASSES)
        and row["abstain"]
        and row["level"] == 0.9
        and len(row["top"]) == 5
        for row in rows
    )
    assert "next: longtail serve" in result.out
    assert [path.name for path in out.parent.iterdir()] == ["answers.json"]
    table = longtail("predict", run, images, "--device", "cpu").out
    assert ";".join(CLASSES) in table


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["nothing.png"], "got nothing at"),
        (["empty"], "expected a folder with images"),
        (["bad"], "none of the 4 images can be read"),
        (["bad/text.png"], "none of the 1 images can be read"),
        (["good", "--out", "empty"], "got the folder"),
        (["good", "--abstain-below", "2"], "--abstain-below"),
        (["good", "--top", "0"], "--top"),
        (["good", "--format", "xml"], "xml"),
    ],
)
def test_what_cannot_be_done_is_refused_with_a_message(
    longtail: Any,
    run: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    words: list[str],
    message: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("empty").mkdir()
    odd_images.write_all(Path("bad"), odd_images.BAD)
    odd_images.write_all(Path("good"), odd_images.GOOD)
    result = longtail("predict", run, *words, "--device", "cpu")
    assert result.code == 2
    assert message in result.err
    assert result.out == ""
    out = tmp_path / "kept.csv"
    out.write_text("before")
    assert longtail("predict", run, "bad", "--out", out, "--device", "cpu").code == 2
    assert out.read_text() == "before"  # nothing replaces it but a whole table
    assert not list(tmp_path.glob("*.part"))


def test_a_pipe_and_a_link_are_written_in_place(
    longtail: Any, run: Path, images: Path, tmp_path: Path
) -> None:
    table = longtail("predict", run, images, "--device", "cpu").out
    (tmp_path / "table.csv").write_text("before")
    (tmp_path / "link.csv").symlink_to(tmp_path / "table.csv")
    os.mkfifo(tmp_path / "pipe")
    read: list[str] = []
    reader = threading.Thread(
        target=lambda: read.append((tmp_path / "pipe").read_text()), daemon=True
    )
    reader.start()
    for out in ("link.csv", "pipe"):
        assert (
            longtail("predict", run, images, "--out", tmp_path / out, "--device", "cpu").code == 0
        )
    reader.join(timeout=60)
    assert (tmp_path / "link.csv").is_symlink()
    assert (tmp_path / "table.csv").read_text() == read[0] == table


@pytest.mark.parametrize("kind", ["unfinished", "empty", "newer"])
def test_a_run_that_cannot_predict_gives_the_reason(
    longtail: Any, images: Path, tmp_path: Path, kind: str
) -> None:
    folder = finished(tmp_path / "run")
    if kind == "unfinished":
        (folder / "row.json").unlink()
    elif kind == "newer":
        spec = folder / "model" / "spec.json"
        spec.write_text(json.dumps(json.loads(spec.read_text()) | {"format": 99}))
    else:
        (folder := tmp_path / "none").mkdir()
    for verb in (
        ["predict", folder, images],
        ["export", folder, "--to", "torch"],
        ["serve", folder, "--port", 0],
    ):
        result = longtail(*verb)
        assert result.code == 2
        assert kind in result.err
        assert result.err.startswith("error: expected")


def test_names_of_classes_and_files_stay_data(longtail: Any, tmp_path: Path) -> None:
    names = ("=1+1", "a;b", 'quo"te', "plain", *"456789")
    run = calibrated(finished(tmp_path / "run", classes=names), [1.0] * 10)
    (tmp_path / "images").mkdir()
    for name in ("=x.png", "+x.png"):
        Image.new("RGB", (9, 7)).save(tmp_path / "images" / name)
    out = tmp_path / "out.csv"
    with contextlib.chdir(tmp_path / "images"):
        assert longtail("predict", run, "=x.png", "+x.png", "--top", 10, "--out", out).code == 0
        with out.open(newline="") as file:
            first, second = csv.DictReader(file)
        assert Path(first["path"]).exists()
        assert (first["path"], second["path"]) == ("./=x.png", "./+x.png")
    assert next(csv.reader([first["set"]], delimiter=";")) == ["'=1+1", *names[1:]]
    named = {first["class"], *(first[f"class_{place}"] for place in range(2, 11))}
    assert "'=1+1" in named
    assert not any(text.startswith("=") for text in named)
