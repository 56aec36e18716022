"""The network of a run: custom networks train, and are imported again only with trust."""

from __future__ import annotations

import importlib
import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from finished import changed
from PIL import Image
from typer.testing import CliRunner

import longtail
from longtail.cli.main import app
from longtail.data.open import open_data
from longtail.records.predictions import read_predictions
from longtail.runs import evaluate, export, load, train
from longtail.runs.restore import restore_method

SOURCE = """
from pathlib import Path

from torch import nn

Path({marker!r}).touch()


def small(size, *, width: int = 6):
    return nn.Sequential(nn.Flatten(), nn.Linear(3 * size * size, width), nn.ReLU())
"""


@pytest.fixture
def forget(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[], Path]:
    """A module with a network; called, it makes Python forget it. Its import leaves a file."""
    marker = tmp_path / "imported"
    (tmp_path / "networks_of_mine.py").write_text(SOURCE.format(marker=str(marker)))
    monkeypatch.syspath_prepend(str(tmp_path))

    def forgotten() -> Path:
        sys.modules.pop("networks_of_mine", None)
        marker.unlink(missing_ok=True)
        return marker

    forgotten()
    return forgotten


def test_a_custom_network_trains_and_is_reloaded_only_with_trust(
    tmp_path: Path, forget: Callable[[], Path]
) -> None:
    run = tmp_path / "run"
    train(
        "cross_entropy",
        "digits-lt",
        run,
        network="networks_of_mine:small",
        epochs=1,
        device="cpu",
        threads=1,
    )
    network = json.loads((run / "model" / "spec.json").read_text())["network"]["network"]
    assert network["name"] == "networks_of_mine:small"
    assert (network["width"], network["size"]) == (6, 8)

    marker, message = forget(), r"networks_of_mine:small is code outside longtail.*--trust"
    for use in (
        lambda: load(run, device="cpu"),
        lambda: evaluate(run, device="cpu"),
        lambda: export(run, "torch"),
    ):
        with pytest.raises(ValueError, match=message):
            use()
    with pytest.raises(ValueError, match=r"networks_of_mine:small is code.*trust=True"):
        restore_method(run)
    cli = CliRunner()
    image = str(tmp_path / "image.png")
    Image.new("RGB", (8, 8)).save(image)
    for command in (["predict", str(run), image], ["eval", str(run)], ["serve", str(run)]):
        result = cli.invoke(app, [*command, "--device", "cpu"])
        assert result.exit_code != 0
        assert "code outside longtail" in str(result.exception)
    assert not marker.exists(), "it was imported without trust"

    loaded = load(run, device="cpu", trust=True)
    assert marker.exists()
    assert loaded.predict_proba(torch.zeros(2, 3, 8, 8)).shape == (2, 10)
    saved = json.loads((run / "row.json").read_text())["test"]["top1"]
    summary = evaluate(run, device="cpu", threads=1, trust=True)["test"]
    assert summary is not None
    assert summary["top1"] == saved
    result = cli.invoke(app, ["predict", str(run), image, "--device", "cpu", "--trust"])
    assert result.exit_code == 0, result.output
    method, _ = restore_method(run, trust=True)
    deployed = method.deploy().state_dict()
    assert all(torch.equal(deployed[k], v) for k, v in loaded.network.state_dict().items())


def test_loading_gives_the_network_that_was_tested(finished: Path) -> None:
    loaded = load(finished, device="cpu")
    test = open_data("digits-lt").test
    saved, _ = read_predictions(finished / "predictions" / "test.npz")
    images = [test.inputs.image(index) for index in range(20)]
    predictions = loaded.predict(images)
    assert torch.allclose(
        predictions.probabilities,
        torch.from_numpy(saved.logits["logits"][:20]).softmax(dim=1),
        atol=1e-5,
    )
    assert predictions.labels == tuple(
        loaded.classes[int(i)] for i in saved.logits["logits"][:20].argmax(axis=1)
    )
    assert loaded.classes == tuple("0123456789")
    assert loaded.row["recipe"] == "balanced_softmax"
    assert longtail.load is load
    assert longtail.train is train
    assert longtail.nn is importlib.import_module("longtail.nn")
    assert all(getattr(longtail, name) for name in dir(longtail))
    with pytest.raises(AttributeError, match="no attribute 'losess'"):
        _ = longtail.losess


def test_loaded_networks_take_paths_images_and_tensors(finished: Path, tmp_path: Path) -> None:
    loaded = load(finished, device="cpu")
    image = Image.fromarray(np.random.default_rng(0).integers(0, 255, (8, 8, 3), dtype=np.uint8))
    image.save(tmp_path / "a.png")
    tensor = torch.from_numpy(np.asarray(image).copy()).permute(2, 0, 1).float() / 255
    ways = [
        loaded.predict(given).probabilities
        for given in (
            image,
            tmp_path / "a.png",
            str(tmp_path / "a.png"),
            [image],
            tensor,
            tensor[None],
        )
    ]
    assert all(torch.equal(way, ways[0]) for way in ways)
    (tmp_path / "b.png").write_bytes((tmp_path / "a.png").read_bytes()[:40])
    unexpected: list[Any] = [
        tensor * 255,
        tensor[:1],
        torch.zeros(0, 3, 8, 8),
        tmp_path / "b.png",
        tmp_path / "none.png",
        [],
    ]
    for given in unexpected:
        with pytest.raises(ValueError, match="expected"):
            loaded.predict(given)


@pytest.mark.parametrize(
    "kind",
    [
        "unfinished",
        "empty",
        "newer row",
        "newer spec",
        "truncated",
        "other network",
        "no weights",
        "no spec",
        "broken",
    ],
)
def test_a_folder_that_cannot_be_loaded_says_why(copied: Path, tmp_path: Path, kind: str) -> None:
    weights, spec = copied / "model" / "model.safetensors", copied / "model" / "spec.json"
    if kind == "unfinished":
        (copied / "row.json").unlink()
    elif kind == "empty":
        (copied := tmp_path / "empty").mkdir()
    elif kind == "newer row":
        changed(copied / "row.json", format=99)
    elif kind == "newer spec":
        changed(spec, format=99)
    elif kind == "truncated":
        weights.write_bytes(weights.read_bytes()[:-100])
    elif kind == "other network":
        network = json.loads(spec.read_text())["network"]
        network["network"]["width"] = 8
        network["head"]["dim"] = 32
        changed(spec, network=network)
    elif kind == "no weights":
        weights.unlink()
    elif kind == "no spec":
        spec.unlink()
    elif kind == "broken":
        spec.write_text(spec.read_text()[:50])
    words = {
        "unfinished": "unfinished",
        "empty": "empty",
        "newer row": "newer",
        "newer spec": "newer",
        "truncated": "incomplete",
        "other network": "not those of the network",
        "no weights": "are missing",
    }
    with pytest.raises(ValueError, match=words.get(kind, "expected")):
        load(copied, device="cpu")
