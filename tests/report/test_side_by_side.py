from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from longtail.records.layout import AnalysisFolder
from longtail.report.page import build
from longtail.report.side_by_side import side_by_side, write_side_by_side

CLASSES = np.array(["cat", "dog"])


def arrays_of(folder: Path, seed: int, ids: tuple[str, ...] = ("a", "b")) -> list[Path]:
    """Every analysis of a transformer with two blocks and three heads, and Grad-CAM."""
    rng = np.random.default_rng(seed)
    files = AnalysisFolder(folder)
    folder.mkdir(parents=True, exist_ok=True)
    images: dict[str, Any] = {
        "image": np.stack([np.full((3, 8, 8), ord(name[0]) / 255, np.float32) for name in ids]),
        "target": np.zeros(len(ids), int),
        "classes": CLASSES,
        "id": np.array(ids),
    }
    maps = rng.uniform(size=(len(ids), 8, 8))
    np.savez(files.arrays("gradcam"), map=maps, answer=images["target"], **images)
    np.savez(files.arrays("rollout"), map=np.stack([maps, maps], axis=1), **images)
    distance, group = np.array([[3.0, 1.0, 2.0], [4.0, 6.0, 5.0]]) + seed, np.array("few")
    np.savez(files.arrays("attention_distance"), distance=distance, group=group)
    rank, tokens = np.array([[9, 8], [7, 6]]), np.array(["cls", "dist"])
    np.savez(files.arrays("rank"), rank=rank, tokens=tokens, group=group)
    training: dict[str, Any] = {
        "0/epoch": np.array([1.0, 2.0]),
        "0/notes/distance": np.array([0.1, 0.2 + seed]),
    }
    training |= {"0/begin": np.array(np.nan)}
    np.savez(files.arrays("training"), runs=np.array(["student"]), **training)
    Image.new("RGB", (8, 4)).save(files.reconstructions)
    return files.files()


def test_every_analysis_is_shown_for_all_runs_together(tmp_path: Path) -> None:
    runs = {name: arrays_of(tmp_path / name, seed) for seed, name in enumerate(("vit", "deit"))}
    figures = {figure.name: figure for figure in side_by_side(runs)}
    assert [*figures] == [
        "saliency",
        "rollouts",
        "heads",
        "distances",
        "ranks",
        "experts",
        "reconstructions",
    ]
    heads = str(figures["heads"].drawing)
    assert "vit goes from 1 to 3; deit goes from 2 to 4" in heads, "the first block, sorted"
    blocks = str(figures["distances"].drawing)
    assert "vit goes from 2 to 5; deit goes from 3 to 6" in blocks, "the mean over heads"
    assert "deit dist goes from 8 to 6" in str(figures["ranks"].drawing)
    distances = str(figures["experts"].drawing)
    assert "vit goes from 0.1 to 0.2; deit goes from 0.1 to 1.2" in distances
    sheets = str(figures["reconstructions"].drawing)
    assert sheets.count("<image") == 2
    assert 'width="520" height="260"' in sheets, "in the shape of the sheets"
    assert str(figures["rollouts"].drawing).count("<image") == 2 * (1 + 2 * 2)


def test_images_are_matched_by_id(tmp_path: Path) -> None:
    first = arrays_of(tmp_path / "a", 0, ids=("x", "y", "z"))
    second = arrays_of(tmp_path / "b", 0, ids=("z", "w", "x"))
    grid = next(figure for figure in side_by_side({"a": first, "b": second}))
    assert str(grid.drawing).count("<image") == 2 * 3, "x and z, each with two maps"
    other = arrays_of(tmp_path / "c", 0, ids=("v",))
    names = [figure.name for figure in side_by_side({"a": first, "c": other})]
    assert "saliency" not in names, "no image is in both"


def test_an_analysis_of_one_run_alone_is_left_to_its_section(tmp_path: Path) -> None:
    files = arrays_of(tmp_path / "a", 0)
    assert side_by_side({"a": files, "b": []}) == []


@pytest.fixture
def analysed(finished: Callable[..., Path]) -> list[Path]:
    folders = [finished(f"{name}-seed=0", recipe=name) for name in ("cross_entropy", "livt")]
    for seed, folder in enumerate(folders):
        arrays_of(folder / "analysis", seed)
    return folders


def test_the_figures_are_files_beside_a_sweep_and_a_section_of_the_page(
    analysed: list[Path], tmp_path: Path
) -> None:
    written = write_side_by_side(analysed, tmp_path / "sweep")
    assert tmp_path / "sweep-ranks.svg" in written
    assert "livt cls goes from 9 to 7" in (tmp_path / "sweep-ranks.svg").read_text()
    page, _ = build(analysed)
    assert "Analyses, side by side" in page
    assert "Attention distance by block" in page
    assert page.count('<div class="sheets">') == 3, "grids of images are as wide as the page"


def test_runs_are_named_by_what_differs(finished: Callable[..., Path], tmp_path: Path) -> None:
    folders = [finished(f"softmax-batchformer={value}-seed=0") for value in ("off", "on")]
    for seed, folder in enumerate(folders):
        arrays_of(folder / "analysis", seed)
    write_side_by_side(folders, tmp_path / "sweep")
    drawing = (tmp_path / "sweep-saliency.svg").read_text()
    assert ">batchformer=off<" in drawing
    assert ">softmax" not in drawing
