"""Every network and head through every door: what comes out predicts as the run does, or is refused
in words.
"""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from functools import partial
from pathlib import Path
from typing import Any, get_args

import numpy as np
import pytest
import torch
from finished import CLASSES, adjusted, calibrated, finished
from PIL import Image

from longtail.nn import NETWORKS, Classifier, Cosine, CosineExperts, Linear, TokenHeads, build
from longtail.runs import exporting, load
from longtail.runs.export_program import Target
from longtail.runs.exporting import check_agreement, export

CASES: dict[str, tuple[dict[str, Any], Any]] = {
    "resnet32": ({"name": "resnet32", "size": 8, "width": 4}, Linear),
    "fast_cnn": ({"name": "fast_cnn", "size": 8, "width": 8}, Cosine),
    "vit_mini": (
        {
            "name": "vit_mini",
            "size": 8,
            "width": 16,
            "depth": 1,
            "pool": "avg_norm",
            "layer_scale": 0.1,
        },
        Linear,
    ),
    "vit_tiny": (
        {"name": "vit_tiny", "size": 8, "patch": 4, "width": 12, "depth": 1, "pool": "tokens"},
        TokenHeads,
    ),
    "fast_vit": ({"name": "fast_vit", "size": 8, "width": 12, "depth": 1}, Linear),
    "resnet32_experts": (
        {"name": "resnet32_experts", "size": 8, "width": 4, "experts": 2},
        partial(CosineExperts, experts=2),
    ),
    "fast_cnn_experts": (
        {"name": "fast_cnn_experts", "size": 8, "width": 8, "slim": 0.5},
        CosineExperts,
    ),
    "resnet10": ({"name": "resnet10", "size": 8}, Linear),
    "resnet10_experts": (
        {"name": "resnet10_experts", "size": 8, "experts": 2},
        partial(CosineExperts, experts=2),
    ),
    "timm": ({"name": "timm:test_vit", "size": 32, "patch": 8}, Linear),
}
pytestmark = pytest.mark.usefixtures("program_in_this_process")
IN_TIMM = {"vit_mini", "vit_tiny", "timm"}


def test_the_list_has_every_network() -> None:
    slow = {"resnet50_experts"}  # built as resnet10_experts, with five times the parameters
    assert {*NETWORKS} == {*CASES} - {"timm"} | slow


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("to", get_args(Target))
def test_every_network_leaves_by_every_door(name: str, to: Target, tmp_path: Path) -> None:
    spec, head = CASES[name]
    run = finished(tmp_path, adjusted(spec, head), size=spec["size"])
    if to == "timm" and name not in IN_TIMM:
        with pytest.raises(ValueError, match=r"(which|that) timm has"):
            export(run, to, images=8)
        assert not (run / "export" / "timm").exists()
        return
    exported = export(run, to, images=40)
    assert exported.folder == run / "export" / to
    assert exported.agreement.images == 40
    assert exported.agreement.source == "test images"
    assert exported.agreement.difference < 1e-5
    about = json.loads((exported.folder / "model.json").read_text(encoding="utf-8"))
    assert about["classes"] == list(CLASSES)
    assert about["check"]["images"] == 40
    assert about["check"]["program"]["images"] > 20
    assert exported.program.difference < 1e-5
    assert not list(run.glob("**/.export-*"))


def ran(readme: Path, *, without: str) -> str:
    """What the code in a README prints in its own folder, where `longtail` cannot be imported."""
    (code,) = re.findall(r"```python\n(.*?)```", readme.read_text(encoding="utf-8"), re.DOTALL)
    forbidden = f"import sys\nsys.modules[{without!r}] = None\n"
    done = subprocess.run(
        [sys.executable, "-c", forbidden + code],
        cwd=readme.parent,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


@pytest.mark.parametrize("to", get_args(Target))
def test_what_is_written_is_used_without_us(to: Target, tmp_path: Path) -> None:
    spec, head = CASES["vit_mini"]
    run = calibrated(finished(tmp_path / "run", adjusted(spec, head)), [0.5] * 10)
    exported = export(run, to, out=tmp_path / "out", images=8)
    exif = Image.Exif()
    exif[0x0112] = 6  # lies on its side
    pixels = np.random.default_rng(5).integers(0, 255, (19, 31, 3), dtype=np.uint8)
    Image.fromarray(pixels).save(tmp_path / "out" / "image.png", exif=exif)
    assert (
        ran(tmp_path / "out" / "README.md", without="longtail")
        == load(run).predict(tmp_path / "out" / "image.png").labels[0]
    )
    (tmp_path / "out" / "image.png").unlink()
    shutil.rmtree(tmp_path / "out" / "__pycache__", ignore_errors=True)
    about = json.loads((tmp_path / "out" / "model.json").read_text(encoding="utf-8"))
    assert about["abstain"]["thresholds"] == [0.5] * 10
    assert ("inside" in about["normalisation"]) == (to != "timm")
    assert {"README.md", "model.json"} < {*exported.files}
    export(run, to, out=tmp_path / "out", images=8)  # once more over its own files
    if to == "onnx":
        import onnxruntime

        session = onnxruntime.InferenceSession(tmp_path / "out" / "model.onnx")
        assert json.loads(session.get_modelmeta().custom_metadata_map["classes"]) == list(CLASSES)
        assert [tensor.shape for tensor in session.get_inputs()] == [["batch", 3, 8, 8]]
        assert [tensor.name for tensor in session.get_outputs()] == ["logits"]


def test_what_disagrees_is_not_handed_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = finished(tmp_path)
    write, read = exporting._WRITERS["torch"]

    def skewed(folder: Path) -> Any:
        network = read(folder)
        return lambda image: network(image) * 1.001

    monkeypatch.setitem(exporting._WRITERS, "torch", (write, skewed))
    with pytest.raises(
        ValueError, match=r"agree with ours to 0\.0001 of the largest logit, got 0\.001"
    ):
        export(run, "torch", images=8)
    assert not (run / "export" / "torch").exists()


def test_another_answer_is_allowed_for_ties_only(tmp_path: Path) -> None:
    loaded, image = load(finished(tmp_path), device="cpu"), torch.rand(4, 3, 8, 8)
    ours = loaded.network(image)
    largest = ours.abs().max()

    def swapped(gap: float) -> Any:
        """Networks that differ from ours by less than the tolerance in every logit, at a place
        where two of ours are this close.
        """
        best, second = ours.topk(2, dim=1).indices[0].tolist()
        tied = ours.clone()
        tied[0, second] = tied[0, best] - gap * largest
        other = tied.clone()
        other[0, second] += 0.9e-4 * largest
        other[0, best] -= 0.9e-4 * largest
        return tied, other

    for gap, fine in ((0.5e-4, True), (1.5e-4, False)):
        tied, other = swapped(gap)
        parts = iter([other[:1], other[1:]])
        if fine:
            agreement = check_agreement(tied, lambda _: next(parts), image, source="images")  # noqa: B023
            assert agreement.changed == 1
        else:
            with pytest.raises(ValueError, match="1 other predictions"):
                check_agreement(tied, lambda _: next(parts), image, source="images")  # noqa: B023


def test_random_images_stand_in_for_data_that_is_gone(tmp_path: Path) -> None:
    run = finished(tmp_path)
    record = json.loads((run / "recipe.json").read_text())
    record["data"]["source"] = str(tmp_path / "moved")
    (run / "recipe.json").write_text(json.dumps(record))
    assert export(run, "torch", images=8).agreement.source == "random images"


def test_what_only_training_needs_is_left_behind(tmp_path: Path) -> None:
    from longtail.losses import LogitAdjusted
    from longtail.methods import Classify
    from longtail.recipes.batchformer import batchformer_neck

    network = build({"name": "fast_cnn", "size": 8, "width": 8})
    method = Classify(
        network,
        Linear(network.dim, 10),
        LogitAdjusted(torch.arange(10, 0, -1)),
        neck=batchformer_neck(network.dim, "on"),
    )
    deployed = method.eval().deploy()
    assert isinstance(deployed, Classifier)
    folder = export(finished(tmp_path, deployed), "torch", images=8).folder
    inside = torch.export.load(folder / "model.pt2").state_dict
    assert sum(tensor.numel() for tensor in inside.values()) == sum(
        tensor.numel() for tensor in deployed.state_dict().values()
    )
    assert sum(tensor.numel() for tensor in method.state_dict().values()) > sum(
        tensor.numel() for tensor in inside.values()
    )


def test_an_export_over_another_leaves_none_of_it(tmp_path: Path) -> None:
    spec, head = CASES["vit_mini"]
    run = finished(tmp_path / "run", adjusted(spec, head))
    for to in ("timm", "onnx", "torch"):
        exported = export(run, to, out=tmp_path / "out", images=8)
        assert {path.name for path in exported.folder.iterdir()} == {*exported.files}


def test_wrong_places_and_words_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = finished(tmp_path / "run")
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "README.md").write_text("precious")
    for out, message in (("mine", "other files"), ("mine/README.md", "got a file")):
        with pytest.raises(ValueError, match=message):
            export(run, "torch", out=tmp_path / out)
    with pytest.raises(ValueError, match="onnx, torch, timm, got 'coreml'"):
        export(run, "coreml")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="at least one image"):
        export(run, "torch", images=0)
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(ModuleNotFoundError, match=r"pip install 'longtail\[export\]'"):
        export(run, "onnx")
