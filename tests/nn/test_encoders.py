"""Weights of networks that are no transformers; those of transformers are in test_mae_files."""

from __future__ import annotations

from pathlib import Path

import pytest
import timm
import torch
from safetensors.torch import save_file

from longtail.nn import Classifier, Linear, Network, build, files
from longtail.nn.encoders import Weights, encoder_weights, load_encoder, read_weights, write_weights

CNN = {"name": "fast_cnn", "size": 8, "width": 8}


def cnn(seed: int) -> Network:
    torch.manual_seed(seed)
    return build(CNN)


def equal(first: Network, second: Network) -> bool:
    theirs = second.state_dict()
    return all(torch.equal(tensor, theirs[name]) for name, tensor in first.state_dict().items())


def test_an_encoder_comes_back(tmp_path: Path) -> None:
    first = cnn(0)
    written = Weights(tmp_path, encoder_weights(first), first.spec, "digits", 3.5)
    write_weights(tmp_path / "encoder", written)
    read = read_weights(tmp_path)
    assert (read.data, read.minutes, read.statistics["mean"]) == ("digits", 3.5, first.spec["mean"])
    assert equal(load_encoder(cnn(1), read), first)


def test_the_network_of_a_classifier_is_its_encoder(tmp_path: Path) -> None:
    first = cnn(0)
    classifier = Classifier(first, Linear(first.dim, 3))
    files.write(tmp_path / "model", classifier, classes="abc", size=8)
    assert equal(load_encoder(cnn(1), read_weights(tmp_path)), first)


@pytest.mark.parametrize("prefix", ["", "module.encoder_q."])
def test_a_file_of_timm_with_or_without_a_wrapper(prefix: str, tmp_path: Path) -> None:
    torch.manual_seed(0)
    theirs = timm.create_model("test_resnet", num_classes=5).state_dict()
    tensors = {f"{prefix}{name}": tensor for name, tensor in theirs.items()}
    if prefix:  # a public MoCo checkpoint also has the momentum copy, and a queue
        tensors |= {name.replace("_q.", "_k."): 0 * tensor for name, tensor in tensors.items()}
        tensors["module.queue"] = torch.zeros(2)
    path = tmp_path / "weights.safetensors"
    save_file({name: tensor.contiguous() for name, tensor in tensors.items()}, path)
    network = load_encoder(build({"name": "timm:test_resnet", "size": 32}), read_weights(path))
    assert torch.equal(network.state_dict()["body.conv1.0.weight"], theirs["conv1.0.weight"])


def test_weights_of_another_network_are_refused(tmp_path: Path) -> None:
    first = cnn(0)
    weights = Weights(tmp_path, encoder_weights(first), first.spec)
    with pytest.raises(ValueError, match="no weights of a resnet32, but they are of fast_cnn"):
        load_encoder(build("resnet32"), weights)
    with pytest.raises(ValueError, match=r"got another stem\.0\.weight"):
        load_encoder(build({**CNN, "width": 16}), weights)
    more = Weights(tmp_path, {**weights.tensors, "further.weight": torch.zeros(1)})
    with pytest.raises(ValueError, match=r"got another further\.weight"):
        load_encoder(cnn(1), more)
    with pytest.raises(ValueError, match="expected the weights of one vision transformer, got 0"):
        load_encoder(build({"name": "vit_mini", "size": 8, "width": 16, "depth": 1}), weights)
    with pytest.raises(ValueError, match="vectors takes no weights"):
        load_encoder(build({"name": "vectors", "size": 8}), weights)
