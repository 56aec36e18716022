"""Whatever a method left in `analysis/` is shown, or named."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from longtail.report.analyses import KNOWN, figures

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


@pytest.mark.parametrize("name", ARRAYS)
def test_known_arrays_become_figures_with_captions_and_words(name: str, tmp_path: Path) -> None:
    assert set(ARRAYS) == set(KNOWN)
    np.savez(tmp_path / name, **ARRAYS[name])
    drawn_by_matplotlib = [tmp_path / own for own in KNOWN[name][1]]
    for path in drawn_by_matplotlib:
        path.write_text("<svg/>")
    found, unknown = figures((tmp_path / name, *drawn_by_matplotlib))
    assert found
    assert unknown == []
    for own in found:
        assert own.caption.endswith(".")
        assert own.drawing is not None or own.pictures
        assert all(
            address.startswith("data:image/") and words for address, words, _ in own.pictures
        )
    with np.load(tmp_path / name) as stored:
        some = dict(list(stored.items())[1:])
    np.savez(tmp_path / name, **some)
    if name != "training.npz":
        with pytest.raises(ValueError, match=f"expected an array .* in .*{name}"):
            figures((tmp_path / name,))


def test_maps_are_called_what_they_are() -> None:
    (own,) = KNOWN["gradcam.npz"][0](ARRAYS["gradcam.npz"])
    assert "looks for the true class (Grad-CAM)" in own.caption
    (own,) = KNOWN["gradcam.npz"][0](
        {**ARRAYS["gradcam.npz"], "kind": np.array("attention rollout")}
    )
    assert "looks (attention rollout)" in own.caption


def test_tokens_have_lines_of_their_own_and_the_start_of_reweighting_a_mark() -> None:
    apart, right = KNOWN["training.npz"][0](ARRAYS["training.npz"])
    for own in (apart, right):
        assert str(own.drawing).count('class="mark"') == 1
        assert "Dashed: where re-weighting begins." in own.caption
    assert "a DIST goes from 20 to 30" in str(right.drawing)
    assert "a goes from 10 to 10" in str(right.drawing)
    assert "CLS" not in str(right.drawing)
    (apart, _) = KNOWN["training.npz"][0]({**ARRAYS["training.npz"], "0/begin": np.array(np.nan)})
    assert "mark" not in str(apart.drawing)
    assert "Dashed" not in apart.caption


def test_pictures_are_shown_and_other_files_named(tmp_path: Path) -> None:
    Image.new("RGB", (20, 10)).save(tmp_path / "reconstructions.png")
    Image.new("RGB", (20, 10)).save(tmp_path / "mine.PNG", "PNG")
    (tmp_path / "notes.txt").touch()
    np.savez(tmp_path / "mine.npz", a=np.zeros(3))
    found, unknown = figures(tuple(sorted(tmp_path.iterdir())))
    assert next(own.caption for own in found) == "analysis/mine.PNG"
    assert found[1].caption.startswith("Masked autoencoding")
    assert unknown == ["mine.npz", "notes.txt"]
