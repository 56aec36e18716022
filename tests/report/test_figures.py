"""Figures show the numbers of the files that they are of."""

from __future__ import annotations

import json
import xml.etree.ElementTree as ET
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from longtail.records.row import read_row
from longtail.records.scores import label
from longtail.report import figures, svg
from longtail.report.figures import ANALYSES, Panel, analysis_figures, write_figures
from longtail.report.folders import read_folder
from longtail.report.rows import read_rows

from .test_svg import inside, places, tree

Finished = Callable[..., Path]

# ------------------------------------------------------------------------------------- analyses

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


# ------------------------------------------------------------------------------------- training


def test_curves_have_every_term_the_groups_and_the_rate(finished: Finished) -> None:
    folder = finished("a")
    words = "\n".join(figures.training_curves(read_folder(folder), "train"))
    for text in (
        "class goes from 2 to 0.5",
        "teacher goes from 0.5 to 0.5",
        "few goes from 10 to 40",
        "rate goes from 0.1 to 0.025",
    ):
        assert text in words
    with (folder / "train" / "journal.jsonl").open("a") as file:
        line = {
            "kind": "epoch",
            "epoch": 5,
            "step": 50,
            "notes/distance": 0.2,
            "val/cls/balanced": 0.5,
            "terms/class": float("nan"),
        }
        file.write(json.dumps(line) + "\n")
    words = "\n".join(figures.training_curves(read_folder(folder), "train"))
    assert "Note: distance" in words
    assert "cls goes from 50 to 50" in words
    (folder / "train" / "journal.jsonl").write_text("")
    assert figures.training_curves(read_folder(folder), "train") == []


@pytest.mark.parametrize(
    "selection", ["last epoch, ema, adjusted on validation", "best ema/val/balanced"]
)
def test_the_weights_that_were_selected_are_shown(finished: Finished, selection: str) -> None:
    folder = finished("a", selection=selection)
    assert figures.metric_prefix(read_folder(folder), "train") == ""
    with (folder / "train" / "journal.jsonl").open("a") as file:
        line = {"kind": "epoch", "epoch": 5, "step": 50, "ema/val/balanced": 0.9}
        file.write(json.dumps(line) + "\n")
    assert figures.metric_prefix(read_folder(folder), "train") == "ema/"


def test_a_headline_that_is_no_share_is_plotted_as_it_is(finished: Finished) -> None:
    labels = {"nll": label("NLL", format="plain"), "few": label("few"), "top1": label("overall")}
    headline = {"name": "nll", "higher_is_better": False}
    folder = finished("a", headline=headline, labels=labels)
    line = {"kind": "epoch", "epoch": 1, "step": 5, "val/nll": 2.5, "val/few": 0.5, "val/top1": 0.9}
    line |= {"val/cls/nll": 1.5}
    (folder / "train" / "journal.jsonl").write_text(json.dumps(line) + "\n")
    shown = figures.training_curves(read_folder(folder), "train")
    assert [tree(plot).findtext("desc") for plot in shown] == [
        "NLL over epoch: NLL goes from 2.5 to 2.5.",
        "validation accuracy, % over epoch: few goes from 50 to 50.",
        "NLL over epoch: cls goes from 1.5 to 1.5.",
    ]


def test_numbers_by_epoch_are_of_the_last_stage_and_the_loss_is_the_sum_of_its_terms(
    finished: Finished,
) -> None:
    folder = finished("a", epochs={"pretrain": 1, "train": 4})
    run = read_folder(folder)
    assert figures.metric_by_epoch(run, "val/few") == {1.0: 0.1, 2.0: 0.3, 3.0: 0.4, 4.0: 0.4}
    assert figures.metric_by_epoch(run, "loss") == {
        epoch: pytest.approx(2.0 / epoch + 0.5) for epoch in (1.0, 2.0, 3.0, 4.0)
    }
    (folder / "train" / "journal.jsonl").unlink()
    assert figures.metric_by_epoch(read_folder(folder), "loss") == {}


# ------------------------------------------------------------------------------------- sweeps


def with_journal(folder: Path, accuracies: Sequence[float], losses: Sequence[float]) -> Path:
    """Give a run a journal with these numbers, the loss in two terms."""
    lines = [
        {
            "kind": "epoch",
            "epoch": epoch,
            "step": 10 * epoch,
            "val/balanced": accuracy,
            "val/top1": 1 - accuracy,
            "terms/a": loss - 1,
            "terms/b": 1.0,
        }
        for epoch, (accuracy, loss) in enumerate(zip(accuracies, losses, strict=True), 1)
    ]
    content = "".join(json.dumps(line) + "\n" for line in lines)
    (folder / "train" / "journal.jsonl").write_text(content)
    return folder


def test_seeds_are_averaged_over_a_keyword(finished: Finished) -> None:
    made = [
        finished(str(n), draw=n, keywords={"tau": tau}) for n, tau in enumerate((1.0, 0.0, 1.0))
    ]
    rows = read_rows(made)
    few = [row["test"]["groups"]["few"] for row in rows if row["test"] is not None]
    errors = [row["test"]["ece"] for row in rows if row["test"] is not None]
    lines: Any = figures.accuracy_by_keyword(rows, "tau")
    assert set(lines) == {"overall", "many", "medium", "few"}
    assert lines["few"] == [
        (0.0, pytest.approx(100 * (few[1] or 0))),
        (1.0, pytest.approx(50 * ((few[0] or 0) + (few[2] or 0)))),
    ]
    calibration: Any = figures.ece_by_keyword(rows, "tau")
    assert calibration == {
        "softmax": [(0.0, errors[1]), (1.0, pytest.approx((errors[0] + errors[2]) / 2))]
    }


def test_groups_without_classes_are_left_out_and_runs_without_test_images_refused(
    finished: Finished,
) -> None:
    row = read_row(finished("a", keywords={"tau": 1.0}))
    assert row["test"] is not None
    row["test"]["groups"]["few"] = None
    assert "few" not in figures.accuracy_by_keyword([row], "tau")
    row["test"] = None
    with pytest.raises(ValueError, match=r"expected runs with test images, got none in .*a"):
        figures.accuracy_by_keyword([row], "tau")


def test_a_sweep_over_epochs_plots_accuracy_and_loss(finished: Finished, tmp_path: Path) -> None:
    made = [
        with_journal(finished(str(n), keywords={"loss": loss}), accuracies, losses)
        for n, (loss, accuracies, losses) in enumerate(
            [
                ("bce", (0.1, 0.3), (4.0, 2.0)),
                ("bce", (0.3, 0.5), (6.0, 3.0)),
                ("ce", (0.2,), (2.0,)),
            ]
        )
    ]
    rows = read_rows(made)
    accuracy: Any = figures.by_epoch(rows, "loss", "val/balanced", scale=100)
    assert accuracy == {
        "bce": [(1.0, pytest.approx(20.0)), (2.0, pytest.approx(40.0))],
        "ce": [(1.0, pytest.approx(20.0))],
    }
    assert figures.by_epoch(rows, "loss", "loss")["bce"] == [(1.0, 5.0), (2.0, 2.5)]
    plot, path = {"x": "epoch", "lines": "loss"}, tmp_path / "plots" / "livt-convergence"
    written = figures.write_sweep_figures(plot, made, path)
    assert [path.name for path in written] == ["livt-convergence.svg", "livt-convergence-loss.svg"]
    balanced = svg.line_file(accuracy, x="epoch", y="balanced accuracy on validation, %")
    assert written[0].read_text() == balanced, "and not of the frequent classes"
    assert "training loss" in written[1].read_text()


def test_without_validation_images_the_loss_is_plotted(finished: Finished, tmp_path: Path) -> None:
    folder = finished("a", keywords={"loss": "ce"})
    line = {"kind": "epoch", "epoch": 1, "step": 9, "terms/class": 2.0}
    (folder / "train" / "journal.jsonl").write_text(json.dumps(line) + "\n")
    plot = {"x": "epoch", "lines": "loss"}
    written = figures.write_sweep_figures(plot, [folder], tmp_path / "sweep")
    assert [path.name for path in written] == ["sweep-loss.svg"]


def test_a_sweep_over_a_keyword_plots_accuracy_and_calibration(
    finished: Finished, tmp_path: Path
) -> None:
    made = [finished(str(n), draw=n, keywords={"tau": tau}) for n, tau in enumerate((0.0, 1.0))]
    written = figures.write_sweep_figures({"x": "tau"}, made, tmp_path / "livt-tau")
    assert [path.name for path in written] == ["livt-tau.svg", "livt-tau-ece.svg"]
    assert "ECE on test images" in written[1].read_text()


def test_a_score_over_a_setting_with_a_line_per_recipe(finished: Finished, tmp_path: Path) -> None:
    made = [
        finished(f"{recipe}-{size}", recipe=recipe, parameters=size, draw=size)
        for recipe in ("livt", "vit")
        for size in (10, 20)
    ]
    rows = read_rows(made)
    lines = figures.score_by(rows, "parameters", "recipe", "few", scale=100)
    assert [[x for x, _ in points] for points in lines.values()] == [[10.0, 20.0]] * 2
    test = rows[0]["test"]
    assert test is not None
    assert lines["livt"][0][1] == pytest.approx(100 * float(test["groups"]["few"] or 0))
    assert figures.score_by(rows, "imbalance", "recipe", "few")["vit"][0][0] == 10.0
    plot = {"x": "parameters", "lines": "recipe", "score": "few"}
    (written,) = figures.write_sweep_figures(plot, made, tmp_path / "size")
    assert "livt" in written.read_text()


# ------------------------------------------------------------------------------------- searches


def test_every_trial_is_a_point_and_the_best_stands_out() -> None:
    points = [(0.01, 50.0), (0.1, 70.0), (1.0, 60.0)]
    names = [("a<b", 50.0), ("c", 70.0), ("c", 60.0)]
    root = tree(
        figures.search_plot(
            [Panel("lr", points, log=True), Panel("network", names)], y="val/balanced, %"
        )
    )
    discs = list(root.iter("circle"))
    assert [element.attrib["class"] for element in discs] == [
        "solid s1",
        "solid s2",
        "solid s1",
    ] * 2
    x, y = ([float(element.attrib[key]) for element in discs] for key in ("cx", "cy"))
    assert x[1] - x[0] == pytest.approx(x[2] - x[1]), "powers of ten lie at equal distances"
    assert x[2] > x[1]
    assert x[3] < x[4] == x[5], "a column for each name"
    assert y[2] == pytest.approx((y[0] + y[1]) / 2, abs=0.01)
    assert y[1] < y[0], "up is better"
    assert y[:3] == y[3:], "one scale for all panels"
    least = tree(figures.search_plot([Panel("lr", points)], y="NLL", higher_is_better=False))
    styles = [element.attrib["class"] for element in least.iter("circle")]
    assert styles == ["solid s2", "solid s1", "solid s1"]
    labels = {element.text: element.attrib for element in root.iter("text")}
    assert float(labels["50"]["y"]) - 4 == pytest.approx(y[0])
    assert {"0.01", "1", "a<b", "c", "lr", "network"} <= set(labels)
    inside(root)


def test_one_trial_and_values_that_are_missing_can_be_plotted() -> None:
    values = [1.0, None, True]
    panels = [Panel(str(value), [(value, 50.0)]) for value in values]
    root = tree(figures.search_plot([*panels, Panel("lr", [(0.1, 50.0)], log=True)], y="%"))
    assert len(list(root.iter("circle"))) == 4
    inside(root)
