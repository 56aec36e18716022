"""A run as a model folder of timm: networks, heads and preprocessing that timm has."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import timm
import torch
from finished import adjusted, finished
from PIL import Image

from longtail.nn import Linear
from longtail.runs import load
from longtail.runs.exporting import export

pytestmark = pytest.mark.usefixtures("program_in_this_process")

# timm has several names for a classifier.
FURTHER: dict[str, tuple[dict[str, Any], Any]] = {
    "plain vit": ({"name": "vit_mini", "size": 8, "width": 16, "depth": 2}, Linear),
    "resnet": ({"name": "timm:resnet10t", "size": 32}, Linear),
    "efficientnet": ({"name": "timm:test_efficientnet", "size": 32}, Linear),
    "convnext": ({"name": "timm:test_convnext", "size": 32}, Linear),
    "mean of tokens": (
        {"name": "timm:deit_tiny_distilled_patch16_224", "size": 16, "patch": 8},
        Linear,
    ),
    "pool of its own": ({"name": "timm:test_vit", "size": 32, "pool": "avg"}, Linear),
}


@pytest.mark.parametrize("name", FURTHER)
def test_timm_gets_what_it_has(name: str, tmp_path: Path) -> None:
    spec, head = FURTHER[name]
    export(finished(tmp_path, adjusted(spec, head), size=spec["size"]), "timm", images=8)


@pytest.mark.parametrize("crop", [1.0, 0.8])
def test_timm_gets_the_crop_of_an_image_that_the_run_used(crop: float, tmp_path: Path) -> None:
    spec, head = {"name": "vit_mini", "size": 8, "width": 16, "depth": 1}, Linear
    run = finished(tmp_path, adjusted(spec, head))
    written = json.loads((run / "model" / "spec.json").read_text(encoding="utf-8"))
    written["fit"] = {"kept": None, "crop": crop}
    (run / "model" / "spec.json").write_text(json.dumps(written), encoding="utf-8")
    folder = export(run, "timm", images=8).folder
    theirs: Any = timm.data
    transform = theirs.create_transform(
        **theirs.resolve_model_data_config(
            timm.create_model(f"local-dir:{folder}", pretrained=True)
        )
    )
    image = Image.fromarray(np.random.default_rng(5).integers(0, 255, (29, 41, 3), dtype=np.uint8))
    loaded = load(run)
    body: Any = loaded.network.network
    ours = body.normalize(loaded.preprocessing(image).float()[None] / 255)[0]
    assert torch.allclose(transform(image), ours, atol=1e-6)
