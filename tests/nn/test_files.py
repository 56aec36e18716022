import json
import os
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_model

from longtail.errors import LongtailError
from longtail.nn import Classifier, Linear, build, files


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    network = build({"name": "fast_cnn", "size": 8, "width": 4})
    classifier = Classifier(network, Linear(network.dim, 2))
    save_model(classifier, str(tmp_path / "model.safetensors"))
    (tmp_path / "spec.json").write_text(
        json.dumps({"format": 1, "network": classifier.spec, "classes": ["cat", "dog"], "size": 8})
    )
    torch.save(classifier.state_dict(), tmp_path / "expected.pt")
    return tmp_path


def test_a_network_comes_back_with_its_classes(folder: Path) -> None:
    network, classes, size = files.read(folder)
    assert (classes, size) == (("cat", "dog"), 8)
    expected = torch.load(folder / "expected.pt")
    assert all(torch.equal(tensor, expected[name]) for name, tensor in network.state_dict().items())


def test_what_is_not_a_model_is_refused(folder: Path, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="there is no trained network at"):
        files.read(tmp_path / "nowhere")
    (folder / "model.safetensors").write_bytes(b"half")
    with pytest.raises(ValueError, match="are incomplete, or not those of the network"):
        files.read(folder)
    (folder / "model.safetensors").unlink()
    with pytest.raises(ValueError, match="are missing: restore the file"):
        files.read(folder)


@pytest.mark.parametrize("width", [20_000, -3, "x", None, [1], 1.5])
def test_a_spec_that_cannot_be_built_or_is_larger_than_its_weights_is_refused(
    folder: Path, width: object
) -> None:
    spec = json.loads((folder / "spec.json").read_text())
    spec["network"] = {
        "name": "classifier",
        "network": {"name": "fast_cnn", "size": 8, "width": width},
        "head": {"name": "linear", "dim": 16, "classes": 2},
    }
    (folder / "spec.json").write_text(json.dumps(spec))
    with pytest.raises(LongtailError, match=r"cannot be built .*: restore the file, or train"):
        files.read(folder)


def test_weights_that_are_no_file_are_refused(folder: Path) -> None:
    (folder / "model.safetensors").unlink()
    os.mkfifo(folder / "model.safetensors")
    with pytest.raises(LongtailError, match=r"model\.safetensors is a pipe, not a file"):
        files.read(folder)


def test_what_is_written_is_read(tmp_path: Path) -> None:
    network = build({"name": "fast_cnn", "size": 8, "width": 4})
    classifier = Classifier(network, Linear(network.dim, 2))
    files.write(tmp_path / "model", classifier, classes=("cat", "dog"), size=8)
    assert sorted(path.name for path in (tmp_path / "model").iterdir()) == [
        "model.safetensors",
        "spec.json",
    ]
    repeated, classes, size = files.read(tmp_path / "model")
    assert (classes, size, repeated.spec) == (("cat", "dog"), 8, classifier.spec)
    assert all(
        torch.equal(tensor, repeated.state_dict()[name])
        for name, tensor in classifier.state_dict().items()
    )
