"""Figures show the numbers of the files that they are of."""

from __future__ import annotations

import xml.etree.ElementTree as ET
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from longtail.report.figures import ANALYSES, analysis_figures, write_figures

from .test_svg import inside, places, tree

IMAGE = np.random.default_rng(0).uniform(size=(2, 3, 8, 8)).astype(np.float32)
NAMES = np.array(["cat", "<b>"])
ARRAYS: dict[str, dict[str, Any]] = {
    "gradcam.npz": {
        "image": IMAGE,
        "map": IMAGE[:, 0],
        "target": np.array([0, 1]),
        "answer": np.array([1, 1]),
        "classes": NAMES,
    },
    "rollout.npz": {
        "image": IMAGE,
        "map": IMAGE[:, :2, :4, :4],
        "target": np.array([0, 1]),
        "classes": NAMES,
    },
    "relations.npz": {
        "gradient": np.array([1.0, np.nan, 3.0]),
        "attention_pairs": np.array([[1.0, np.nan, 2.0]] * 3),
        "uniform": np.array(0.5),
        "counts": np.array([1, 3, 2]),
        "at": np.array("image"),
    },
    "attention_distance.npz": {
        "distance": np.array([[2.0, 1.0], [3.0, 4.0]]),
        "group": np.array("few"),
    },
    "rank.npz": {
        "rank": np.array([[1, 2], [3, 4]]),
        "tokens": np.array(["cls", "dist"]),
        "group": np.array("few"),
    },
    "entropy.npz": {
        "inside": np.array([0.1, 0.2]),
        "outside": np.array([0.3, np.nan]),
        "inside_accuracy": np.array(0.9),
        "outside_accuracy": np.array(0.7),
        "counts": np.array([1, 2]),
    },
    "training.npz": {
        "runs": np.array(["a"]),
        "0/epoch": np.array([1.0, 2.0]),
        "0/begin": np.array(1.6),
        "0/val/balanced": np.array([0.1, np.nan]),
        "0/val/dist/balanced": np.array([0.2, 0.3]),
        "0/notes/distance": np.array([0.5, 0.4]),
    },
}
FILES = {
    "gradcam.npz": ["looks.svg"],
    "rollout.npz": ["attended.svg"],
    "relations.npz": ["gradient.svg", "by_pairs.svg"],
    "attention_distance.npz": ["locality.svg"],
    "rank.npz": ["ranks.svg"],
    "entropy.npz": ["uncertainty.svg"],
    "training.npz": ["experts.svg", "convergence.svg"],
}
"""What stands in the folders of earlier versions too."""


@pytest.mark.parametrize("name", ARRAYS)
def test_known_arrays_become_figures_once_on_the_page_and_in_files(
    name: str, tmp_path: Path
) -> None:
    assert set(ARRAYS) == set(FILES) == set(ANALYSES)
    np.savez(tmp_path / name, **ARRAYS[name])
    written = write_figures(tmp_path)
    assert [path.name for path in written] == FILES[name]
    shown, unknown = analysis_figures((tmp_path / name, *written))
    assert [f"{figure.name}.svg" for figure in shown] == FILES[name], "files are not shown again"
    assert unknown == []
    for figure, path in zip(shown, written, strict=True):
        root = ET.fromstring(path.read_text(encoding="utf-8"))
        assert root.tag == "{http://www.w3.org/2000/svg}svg"
        assert figure.caption.endswith(".")
        assert (figure.drawing is None) == bool(figure.images)
        assert all(image.address.startswith("data:image/") and image.alt for image in figure.images)
        if figure.drawing is not None:
            inside(tree(figure.drawing))
            assert str(figure.drawing).partition(">")[2].strip() in path.read_text(encoding="utf-8")
        else:
            kinds = [element.tag.partition("}")[2] for element in root.iter()]
            assert kinds.count("image") == len(figure.images)
    with np.load(tmp_path / name) as stored:
        some = dict(list(stored.items())[1:])
    np.savez(tmp_path / name, **some)
    if name != "training.npz":
        with pytest.raises(ValueError, match=f"expected an array .* in .*{name}"):
            analysis_figures((tmp_path / name,))


def test_a_folder_without_arrays_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"has none of relations\.npz, .*longtail\.analysis"):
        write_figures(tmp_path)


def test_maps_are_called_what_they_are_and_mistakes_named() -> None:
    (shown,) = ANALYSES["gradcam.npz"](ARRAYS["gradcam.npz"])
    assert "Saliency maps for the true class (Grad-CAM)" in shown.caption
    assert [image.label for image in shown.images] == ["cat", "predicted <b>", "<b>", ""]
    assert shown.rows == 2
    arrays = {**ARRAYS["gradcam.npz"], "kind": np.array("attention rollout")}
    assert "Saliency maps (attention rollout)" in ANALYSES["gradcam.npz"](arrays)[0].caption
    (shown,) = ANALYSES["rollout.npz"](ARRAYS["rollout.npz"])
    assert shown.rows == 3


def test_classes_are_sorted_by_frequency_with_their_counts_behind() -> None:
    gradient, pairs = ANALYSES["relations.npz"](ARRAYS["relations.npz"])
    assert gradient.drawing is not None
    assert "gradient goes from 3 to 1" in gradient.drawing  # the most frequent has none
    (line,), (shade,) = (list(tree(gradient.drawing).iter(tag)) for tag in ("polyline", "polygon"))
    assert [x for x, _ in places(line)] == [x for x, _ in places(shade)[2:4]]
    assert "Shaded: training images, logarithmic, 3 to 1." in gradient.caption
    assert pairs.drawing is not None
    assert "From 2, white, to 4, dark." in pairs.drawing


def test_tokens_have_dashes_and_the_start_of_reweighting_a_mark() -> None:
    experts, convergence = ANALYSES["training.npz"](ARRAYS["training.npz"])
    for figure in (experts, convergence):
        assert str(figure.drawing).count('class="mark"') == 1
        assert "Dashed: start of re-weighting." in figure.caption
    drawn = str(convergence.drawing)
    assert "a DIST goes from 20 to 30" in drawn
    assert "a goes from 10 to 10" in drawn
    assert "CLS" not in drawn
    assert 'class="line s1"' in drawn
    assert 'class="line s1 d3"' in drawn
    arrays = {**ARRAYS["training.npz"], "0/begin": np.array(np.nan)}
    arrays = {key: values for key, values in arrays.items() if "val/" not in key}
    (experts,) = ANALYSES["training.npz"](arrays)
    assert "mark" not in str(experts.drawing)
    assert "Dashed" not in experts.caption


def test_image_files_are_shown_and_other_files_named(tmp_path: Path) -> None:
    Image.new("RGB", (20, 10)).save(tmp_path / "reconstructions.png")
    Image.new("RGB", (20, 10)).save(tmp_path / "mine.PNG", "PNG")
    (tmp_path / "notes.txt").touch()
    np.savez(tmp_path / "mine.npz", a=np.zeros(3))
    shown, unknown = analysis_figures(tuple(sorted(tmp_path.iterdir())))
    assert [figure.caption[:19] for figure in shown] == ["analysis/mine.PNG", "Masked autoencoding"]
    assert unknown == ["mine.npz", "notes.txt"]
