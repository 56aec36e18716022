"""The program of an export predicts as the run does, from the file to the logits."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from finished import changed, finished
from PIL import Image

from longtail.runs import export_program, load
from longtail.runs.export_program import program_logits, write_program, write_unusual_images
from longtail.runs.exporting import export

GEOMETRIES: list[dict[str, Any]] = [
    {"geometry": "pad", "stored": 8, "crop": 1.0},
    {"geometry": "pad", "stored": 12, "crop": 0.8},
    {"geometry": "stretch", "stored": 8, "crop": 1.0},
    {"geometry": "crop", "stored": 8, "crop": 0.875},
]


@pytest.mark.usefixtures("program_in_this_process")
@pytest.mark.parametrize("fit", GEOMETRIES, ids=lambda fit: f"{fit['geometry']}{fit['stored']}")
def test_every_geometry_is_that_of_the_run(fit: dict[str, Any], tmp_path: Path) -> None:
    run = finished(tmp_path / "run")
    changed(run / "model" / "spec.json", fit=fit)
    result = export(run, "torch", images=4)
    assert result.program.images > 20
    assert result.program.difference < 1e-6
    assert result.program.changed == 0


@pytest.mark.usefixtures("program_in_this_process")
@pytest.mark.parametrize(
    ("correct", "wrong"),
    [
        ("image = upright(file)", 'image = file.convert("RGB")'),
        ("to_square(image, 8, 'pad')", "to_square(image, 8, 'stretch')"),
        ("Image.Resampling.BILINEAR", "Image.Resampling.BICUBIC"),
    ],
)
def test_a_program_that_prepares_images_differently_is_refused(
    correct: str, wrong: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = finished(tmp_path / "run")

    def write(folder: Path, *arguments: Any) -> None:
        write_program(folder, *arguments)
        script = folder / "predict.py"
        text = script.read_text(encoding="utf-8")
        assert correct in text
        script.write_text(text.replace(correct, wrong), encoding="utf-8")

    monkeypatch.setattr("longtail.runs.exporting.write_program", write)
    with pytest.raises(ValueError, match="nothing was written"):
        export(run, "torch", images=4)
    assert not (run / "export" / "torch").exists()


def test_a_program_that_fails_is_refused_in_one_sentence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = finished(tmp_path / "run")
    monkeypatch.setattr(export_program, "_FUNCTIONS", ())
    with pytest.raises(ValueError, match=r"failed \(NameError: .*upright.*nothing was written"):
        export(run, "onnx", images=4)


@pytest.mark.usefixtures("program_in_this_process")
def test_files_of_the_run_are_read_where_there_are_some(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    for index in range(60):
        path = tmp_path / "data" / f"{index % 10}" / f"{index}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(rng.integers(0, 255, (9, 14, 3), dtype=np.uint8)).save(path)
    run = finished(tmp_path / "run")
    record = json.loads((run / "recipe.json").read_text())
    record["data"]["source"] = str(tmp_path / "data")
    changed(run / "recipe.json", data=record["data"])
    result = export(run, "torch", images=5)
    assert "(5 of the run, " in result.program.source


def test_the_program_prints_a_class_for_each_file(tmp_path: Path) -> None:
    run = finished(tmp_path / "run")
    folder = export(run, "onnx", images=4).folder
    (tmp_path / "images").mkdir()
    paths = write_unusual_images(tmp_path / "images", 8)
    process = subprocess.run(
        [sys.executable, folder / "predict.py", *paths], capture_output=True, text=True, check=True
    )
    predictions = load(run).predict(paths)
    lines = [line.split("\t") for line in process.stdout.splitlines()]
    assert [line[0] for line in lines] == [str(path) for path in paths]
    assert [line[1] for line in lines] == list(predictions.labels)
    for line, record in zip(lines, predictions.records(1), strict=True):
        assert abs(float(line[2]) - record["probability"]) < 1e-3
    assert program_logits(folder, paths[:2]).shape == (2, 10)
